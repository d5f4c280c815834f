"""Layout-agnostic operators: elementwise ones and others that work in any layout and keep the one they are given.

Every function is a rule (``tensor_layouts.Rule``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from autotune.importer.layouts.packing import Array, Shape, reached
from autotune.importer.layouts.tensor_layouts import ELEMENTWISE, Rule, TensorLayouts, Value
from autotune.importer.layouts.views import (
    REDUCTIONS,
    broadcast_view,
    elementwise_on_views,
    reduced_view,
    transposed,
    units_moved,
)
from autotune.importer.rewriting.relax_values import operator_name, shape_of
from schedules.templates.common.extremes import EXTREMES, along
from schedules.templates.common.movements import BORDER, REPEATED_BORDER, with_border, with_repeated_border
from schedules.templates.common.windows import Pads, Pair, Pooling, Window

UNARY = frozenset(
    f"relax.{name}"
    for name in [
        "nn.relu",
        "nn.gelu",
        "nn.gelu_tanh",
        "nn.silu",
        "nn.leakyrelu",
        "sigmoid",
        "tanh",
        "clip",
        "negative",
        "abs",
        "exp",
        "erf",
        "floor",
        "ceil",
        "round",
        "square",
        "sign",
        "astype",
    ]
)
"""Operations f with a finite f(0): channels that are padded with zeros stay finite."""

BINARY = frozenset(f"relax.{name}" for name in ["add", "subtract", "multiply", "maximum", "minimum"])

MOST_TAPS = 16
"""Taps of an average that is a sum of images, in one kernel. Heuristic: each of them is written out."""

CHANNELS = 1
"""Axis of channels, as ONNX has it."""

STRICT = frozenset(f"relax.{name}" for name in ["divide", "power", "log", "sqrt", "rsqrt"])
"""Operations that can make NaN of a padded zero, and NaN times a zero weight is NaN: native only without padding."""


def unary(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """In the layout of its operand."""
    value = layouts.value(call.args[0])
    if value is not None and value.is_matrix:
        args = [value.matrix, *(layouts.plain_expr(arg) for arg in call.args[1:])]
        return Value(shape, matrix=layouts.emit_like(call, args))
    if value is None or not value.is_image or len(shape) != 4:
        return elementwise_on_views(layouts, call, shape)
    args = [layouts.native(value), *(layouts.plain_expr(arg) for arg in call.args[1:])]
    return Value(shape, native=layouts.emit_like(call, args))


def binary(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """As a matrix or native if either operand is and the other can be."""
    values = [layouts.value(arg) for arg in call.args]
    if any(value is not None and value.is_matrix for value in values):
        operands = [_matrix_operand(layouts, arg, shape) for arg in call.args]
        if any(operand is None for operand in operands):
            return None
        return Value(shape, matrix=layouts.emit_like(call, operands))
    if len(shape) == 4 and any(layouts.is_native(arg) for arg in call.args):
        return native_binary(layouts, call, shape)
    return elementwise_on_views(layouts, call, shape) or _binary_with_scalar(layouts, call, shape)


def native_binary(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Native if either operand is and the other can be."""
    strict = str(call.op.name) in STRICT
    if len(shape) != 4 or not any(layouts.is_native(arg) for arg in call.args):
        return None
    if strict and shape[1] % layouts.block and not _keeps_zeros(layouts, call):
        return None
    operands = [_native_operand(layouts, arg, shape, fill=1.0 if strict else 0.0) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return Value(shape, native=layouts.emit_like(call, operands))


def _keeps_zeros(layouts: TensorLayouts, call: relax.Call) -> bool:
    """Return whether padded channels stay finite: constants are padded with ones, and one number divides 0 into 0.

    If that number is 0, there is nothing finite among the channels that exist either.
    """
    if len(call.args) < 2 or layouts.array(call.args[1]) is not None:
        return len(call.args) > 1
    divisor = layouts.value(call.args[1])
    return operator_name(call) == "relax.divide" and divisor is not None and math.prod(divisor.shape) == 1


def _matrix_operand(layouts: TensorLayouts, expr: relax.Expr, shape: Shape) -> relax.Expr | None:
    """``expr`` as what broadcasts against the matrix of a tensor of ``shape``."""
    array = layouts.array(expr)
    if array is not None:
        if array.size == 1:
            return layouts.scalar(array)
        return layouts.constant(array.reshape(-1)) if array.size == array.shape[-1] == shape[-1] else None
    value = layouts.value(expr)
    if value is None:
        return None
    size = math.prod(value.shape)
    if value.shape != shape and (size == 1 or size == value.shape[-1] == shape[-1]):
        return _flat(layouts, value)
    if value.shape[:-1] != shape[:-1] or value.shape[-1] not in (1, shape[-1]):
        return None
    return layouts.matrix(value)


def _flat(layouts: TensorLayouts, value: Value) -> relax.Expr:
    """A tensor of one number, such as a scale that is known when the model runs, or of one row, as a vector."""
    plain = layouts.plain(value)
    return plain if len(value.shape) < 2 else layouts.builder.emit(relax.op.reshape(plain, (math.prod(value.shape),)))


def _native_operand(layouts: TensorLayouts, expr: relax.Expr, shape: Shape, fill: float) -> relax.Expr | None:
    """``expr`` as what broadcasts against a native image of logical ``shape``."""
    array = layouts.array(expr)
    if array is not None:
        if array.size == 1:
            return layouts.scalar(array)
        wide = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim <= 4 else None
        if wide is None or wide.shape[1] not in (1, shape[1]):
            return None
        return layouts.native_constant(wide, fill)
    value = layouts.value(expr)
    if value is not None and value.shape != shape and math.prod(value.shape) == 1:
        return _flat(layouts, value)
    if value is not None and value.shape == (shape[1], 1, 1):
        return layouts.to_native(layouts.builder.emit(relax.op.reshape(layouts.plain(value), (1, shape[1], 1, 1))))
    if value is None or len(value.shape) != 4:
        return None
    if value.channels != shape[1] and layouts.block > 1:  # a single channel, padded to a block, would not broadcast
        return None
    return layouts.native(value)


def _binary_with_scalar(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A constant of one element becomes part of the kernel, which is then compiled for its value."""
    arrays = [layouts.array(arg) for arg in call.args]
    scalars = [array is not None and array.size == 1 for array in arrays]
    if scalars.count(True) != 1:
        return None
    value = layouts.value(call.args[scalars.index(False)])
    if value is None or value.shape != shape:
        return None
    other = layouts.plain(value)
    operands = [layouts.scalar(array) if array is not None and array.size == 1 else other for array in arrays]
    return Value(shape, plain=layouts.emit_like(call, operands))


def masked(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A number in place of some pixels of an image, all channels of them, in the kernel that makes the image."""
    value, number, mask = layouts.value(call.args[1]), layouts.array(call.args[2]), layouts.value(call.args[0])
    if value is None or not value.is_image or value.shape != shape or number is None or number.size != 1:
        return None
    if mask is None or len(mask.shape) != 4 or mask.shape[:2] != (1, 1):
        return None
    fill = tirx.const(number.item(), str(call.ty.dtype))

    def element(image: te.Tensor, mask: te.Tensor) -> te.Tensor:
        def at(*index: tirx.Var) -> tirx.Expr:
            pixel = [index[axis] for axis in layouts.image_axes]
            place = [0 if size == 1 else own for size, own in zip(mask.shape[2:], pixel, strict=True)]
            return tirx.Select(mask(0, 0, *place), image(*index), fill)

        return te.compute(image.shape, at, name="masked")

    operands = layouts.native(value), layouts.plain(mask)
    attrs = {ELEMENTWISE: True}
    return Value(
        shape, native=layouts.builder.emit_te(element, *operands, primfunc_name_hint="masked", primfunc_attrs=attrs)
    )


def reduction(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A sum or mean over a whole native image channel by channel, row by row of a matrix, or of a view."""
    value = layouts.value(call.args[0])
    if value is None or not call.attrs.keepdims:
        return None
    if (reduced := reduced_view(layouts, call, shape)) is not None:
        return reduced
    make = REDUCTIONS[operator_name(call)]
    over = tuple(int(axis) % len(value.shape) for axis in call.attrs.axis or ())
    if value.is_matrix and over == (len(value.shape) - 1,):
        return Value(shape, matrix=layouts.builder.emit(make(value.matrix, [1], keepdims=True)))
    if value.is_matrix or not value.is_image or over != (2, 3):
        return None
    image = layouts.native(value)
    return Value(shape, native=layouts.builder.emit(make(image, layouts.image_axes, keepdims=True)))


def written(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Kernels that the importer wrote and that images keep their layout in: extremes of rows, and borders."""
    function = layouts.functions.get(call.args[0])
    known = (EXTREMES, BORDER, REPEATED_BORDER)
    if function is None or not function.attrs or not any(name in function.attrs for name in known):
        return None
    attrs, value = function.attrs, layouts.value(call.args[1].fields[0])
    if value is None or not value.is_image or len(shape) != 4:
        return None
    height, width = layouts.image_axes

    def emitted(compute: Callable[..., Any], *operands: relax.Expr) -> Value:
        name = call.args[0].name_hint
        return Value(
            shape, native=layouts.builder.emit_te(compute, layouts.native(value), *operands, primfunc_name_hint=name)
        )

    if EXTREMES in attrs:
        largest, count = map(int, attrs[EXTREMES])
        return emitted(partial(along, axes=(height, width)[-count:], largest=bool(largest))) if count < 3 else None
    if BORDER in attrs:
        top, bottom, left, right = map(int, attrs[BORDER])
        number = layouts.plain_expr(call.args[1].fields[1])
        return emitted(partial(with_border, widths=[(top, bottom), (left, right)], first=height), number)
    if REPEATED_BORDER in attrs:
        mode, *flat = map(str, attrs[REPEATED_BORDER])
        pairs = list(zip(map(int, flat[::2]), map(int, flat[1::2]), strict=True))
        if any(pairs[CHANNELS]):
            return None
        axes = {layouts.native_axis(axis): pairs[axis] for axis in (0, 2, 3)}
        rank = len(shape_of(layouts.native(value)) or ())
        return emitted(
            partial(with_repeated_border, widths=[axes.get(axis, (0, 0)) for axis in range(rank)], mode=mode)
        )
    return None


def joined(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Native if any part is; along channels if every part fills whole blocks of them."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    known = [value for value in map(layouts.value, fields) if value is not None]
    if len(shape) != 4 or not any(value.is_image for value in known) or len(known) != len(fields):
        return None
    axis = int(call.attrs.axis) % 4
    if axis == CHANNELS:
        if not any(value.native is not None for value in known):
            return None
        if any(value.channels % layouts.block for value in known):
            return None
        return Value(shape, native=layouts.joined([layouts.native(value) for value in known]))
    parts = [layouts.native(value) for value in known]
    return Value(shape, native=layouts.builder.emit(relax.op.concat(parts, axis=layouts.native_axis(axis))))


def images_taken(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Some of several images, or some of their rows and columns, in the layout that they have."""
    value, axes = layouts.value(call.args[0]), [int(axis) % 4 for axis in call.args[1]]
    if value is None or not value.is_image or len(shape) != 4 or CHANNELS in axes:
        return None
    places = [layouts.native_axis(axis) for axis in axes]
    taken = relax.op.strided_slice(layouts.native(value), places, *call.args[2:])
    return Value(shape, native=layouts.builder.emit(taken))


def images_added(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """More images before and behind, or rows and columns around them; integers get no border, for products add it."""
    value, attrs = layouts.value(call.args[0]), call.attrs
    widths = [[int(width) for width in attrs.pad_width[at : at + 2]] for at in range(0, 2 * len(shape), 2)]
    if value is None or not value.is_image or len(shape) != 4 or any(widths[CHANNELS]):
        return None
    if any(map(any, widths[2:])) and not str(call.ty.dtype).startswith("float"):
        return None
    if float(attrs.pad_value) and value.channels % layouts.block:  # channels that do not exist stay zeros
        return None
    image = layouts.native(value)
    around = [[0, 0] for _ in image.ty.shape]
    for axis in (0, 2, 3):
        around[layouts.native_axis(axis)] = widths[axis]
    padded = relax.op.nn.pad(image, [width for pair in around for width in pair], str(attrs.pad_mode), attrs.pad_value)
    return Value(shape, native=layouts.builder.emit(padded))


def pooling(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Native; an average of fewer channels than a block holds is a sum of plain images, one for each tap."""
    value, attrs = layouts.value(call.args[0]), call.attrs
    if value is None or len(shape) != 4 or str(attrs.layout) != "NCHW":
        return None
    kind = "max" if str(call.op.name) == "relax.nn.max_pool2d" else "avg"
    sizes: list[Any] = [
        tuple(int(part) for part in parts) for parts in (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)
    ]
    pooling = Pooling(kind, Window(*sizes), (shape[2], shape[3]), bool(attrs.count_include_pad))
    if value.channels < layouts.block:
        few = kind == "avg" and math.prod(pooling.window.size) <= MOST_TAPS and str(call.ty.dtype) == "float32"
        return Value(shape, plain=_averaged(layouts, layouts.plain(value), value.shape, pooling)) if few else None
    out = layouts.emit_anchor("pool", partial(layouts.pool, pooling=pooling), layouts.native(value))
    return Value(shape, native=out)


def _averaged(layouts: TensorLayouts, image: relax.Expr, shape: Shape, pooling: Pooling) -> relax.Expr:
    """Emit the average of a few taps: the sum of strided images, times one over their number at each pixel."""
    window, (height, width) = pooling.window, shape[2:]
    top, left, bottom, right = window.padding
    below, beyond = window.overhang(pooling.out_size, height, width)
    around = [(0, 0), (0, 0), (top, bottom + below), (left, right + beyond)]
    inner = np.ones((1, 1, height, width), np.float32)
    if pooling.count_include_pad:
        counted = np.pad(
            np.pad(inner, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=1),
            [(0, 0), (0, 0), (0, below), (0, beyond)],
        )
    else:
        counted = np.pad(inner, around)
    if any(map(any, around)):
        image = layouts.builder.emit(relax.op.nn.pad(image, [side for pair in around for side in pair]))
    total, counts = None, np.zeros((1, 1, *pooling.out_size), np.float32)
    for y, x in np.ndindex(*window.size):
        begin = [y * window.dilation[0], x * window.dilation[1]]
        end = [b + (o - 1) * s + 1 for b, o, s in zip(begin, pooling.out_size, window.strides, strict=True)]
        tap = relax.op.strided_slice(image, [2, 3], begin, end, list(window.strides))
        tap = layouts.builder.emit(tap)
        total = tap if total is None else layouts.builder.emit(relax.op.add(total, tap))
        rows, columns = (slice(b, e, s) for b, e, s in zip(begin, end, window.strides, strict=True))
        counts += counted[:, :, rows, columns]
    share = np.float32(1) / counts
    factor = share.reshape(-1)[:1].reshape(()) if (share == share.flat[0]).all() else share
    return layouts.builder.emit(relax.op.multiply(total, layouts.constant(factor)))


@dataclass(frozen=True)
class Convolution:
    """A convolution of two dimensions whose weight is constant.

    Attributes:
        value: images (n, c, h, w).
        weight: (filters, c / groups, kh, kw).
        geometry: strides, padding (top, left, bottom, right) and dilation.
    """

    value: Value
    weight: Array
    geometry: tuple[Pair, Pads, Pair]
    groups: int

    @property
    def is_depthwise(self) -> bool:
        """Whether every group is one channel in and one out."""
        return self.groups == self.value.channels == self.weight.shape[0] and self.groups > 1


def convolution_of(layouts: TensorLayouts, call: relax.Call, dtypes: Collection[str]) -> Convolution | None:
    """Return the convolution ``call``; None if its weight is not constant or of another type than ``dtypes``."""
    value, weight, attrs = layouts.value(call.args[0]), layouts.array(call.args[1]), call.attrs
    if value is None or weight is None or str(attrs.data_layout) != "NCHW" or str(weight.dtype) not in dtypes:
        return None
    sizes: list[Any] = [tuple(int(size) for size in sizes) for sizes in (attrs.strides, attrs.padding, attrs.dilation)]
    strides, pads, dilation = sizes
    if weight.dtype.kind not in "iu":  # a border of integers is no zero: its products are taken off with the bias
        weight, pads = reached(weight, value.shape[2:], (shape_of(call) or ())[2:], strides, pads, dilation)
    return Convolution(value, weight, (strides, pads, dilation), int(attrs.groups))


SHARED_RULES: Mapping[str, Rule] = {
    "relax.nn.max_pool2d": pooling,
    "relax.nn.avg_pool2d": pooling,
    **dict.fromkeys(REDUCTIONS, reduction),
    "relax.broadcast_to": broadcast_view,
    "relax.call_tir": written,
    "relax.concat": joined,
    "relax.strided_slice": images_taken,
    "relax.nn.pad": images_added,
    "relax.permute_dims": transposed,
    "relax.where": masked,
    **dict.fromkeys(["relax.reshape", "relax.squeeze", "relax.expand_dims"], units_moved),
    **dict.fromkeys(UNARY, unary),
}
"""Rules that are the same for every kind of target."""
