"""A CPU's layouts: images blocked by channels (n, C/b, h, w, b), weights packed for the register tiles of kernels.

Channels that b does not divide are padded with zeros; zero weights cancel whatever padded channels hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from tvm import relax, te, tirx, topi

from autotune.importer.layouts import channel_orders, low_bit_layouts
from autotune.importer.layouts.layout_agnostic import (
    BINARY,
    SHARED_RULES,
    STRICT,
    UNARY,
    Convolution,
    binary,
    convolution_of,
    images_added,
    unary,
)
from autotune.importer.layouts.packing import (
    Array,
    Shape,
    block_array,
    dense_filters,
    pack_conv,
    pack_dots,
    pack_matmul,
    pack_taps,
    up,
)
from autotune.importer.layouts.tensor_layouts import ELEMENTWISE, Rule, TensorLayouts, Value
from autotune.importer.layouts.views import product, units_moved
from autotune.importer.rewriting.registry import INJECTIVE_PATTERN, OPAQUE_PATTERN
from autotune.importer.rewriting.relax_values import operator_name, shape_of
from schedules.templates.common.movements import SIDE, concat, from_blocks, to_blocks
from schedules.templates.common.windows import Window
from schedules.templates.cpu.batch_matmul import batch_matmul
from schedules.templates.cpu.channel_sums import channel_sums, is_worth_it
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.depthwise import depthwise
from schedules.templates.cpu.matmul import matmul
from schedules.templates.cpu.pooling import pool2d
from schedules.templates.instructions.byte_lookup import SIZE, looked_up
from schedules.templates.instructions.dots import FORMS, U8S8, DotForm, form_of

MOST_PADDED = 1.05
"""Channels read per channel up to which the last block of a plain image is read with the zeros that fill it. Kernels in
assembly read whole blocks, and their tiles need not divide a row: 514 channels in rows of 131 ran 1.9 times as fast,
100 channels, with 12 % more to read, in rows of 100 ran 0.94 times as fast (Zen 4)."""


def convolution(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Depthwise where every group is one channel; few input channels are read plain, as images come."""
    conv = convolution_of(layouts, call, ("float32", *(form.weight for form in FORMS.values())))
    if conv is None:
        return None
    form = form_of(str(call.args[0].ty.dtype), str(conv.weight.dtype))
    if form is not None:
        return _dot_convolution(layouts, conv, form, shape) if str(call.ty.dtype) == form.sum else None
    if str(call.args[0].ty.dtype) != "float32":
        return None
    groups, block = conv.groups, layouts.block
    image, weight, order, shuffle = channel_orders.readable(layouts, conv.value, conv.weight, groups, conv.is_depthwise)
    if conv.is_depthwise:
        packed = layouts.constant(block_array(weight.transpose(1, 0, 2, 3), block)[0])
        out = layouts.emit_anchor("depthwise", depthwise, layouts.native(image), packed, *conv.geometry)
        return channel_orders.ordered(out, order, shape)
    out_channels, per_group, _, _ = weight.shape
    is_plain = not image.is_image and image.channels < block
    window = Window(_kernel_size(weight), *conv.geometry)
    if groups == 1 and not is_plain and is_worth_it(out_channels, per_group, window, shape[3], block):
        packed = layouts.constant(block_array(weight, block))
        return Value(
            shape, plain=layouts.emit_anchor("channel_sums", channel_sums, layouts.native(image), packed, window)
        )
    whole = up(per_group, block)
    is_filled = not (is_plain or image.is_image or image.border)
    if groups == 1 and is_filled and per_group < whole <= MOST_PADDED * per_group:
        # Only blocks made of a plain image surely end with zeros: an operator between may have made NaN of them.
        weight, per_group = np.pad(weight, ((0, 0), (0, whole - per_group), (0, 0), (0, 0))), whole
    inner = 1 if is_plain else math.gcd(per_group, block)
    packed = layouts.constant(pack_conv(weight, block, inner, groups))
    grouped_channels = out_channels if groups > 1 else 0
    compute = partial(conv2d, window=window, groups=groups, outputs=grouped_channels, dealt=shuffle)
    read = layouts.plain(image) if is_plain else layouts.native(image)
    return Value(shape, native=layouts.emit_anchor("conv2d", compute, read, packed))


def _dot_convolution(layouts: TensorLayouts, conv: Convolution, form: DotForm, shape: Shape) -> Value:
    """Convolve short types: few input channels are one block of whole dot products, and the kernel makes its border."""
    value, weight, groups, block = conv.value, conv.weight, conv.groups, layouts.block
    strides, padding, dilation = conv.geometry
    fill = 0
    if value.border is not None and not any(padding):
        value, padding, fill = value.border
    order = None
    if groups == 1 or conv.is_depthwise:
        value, weight, order, _ = channel_orders.readable(layouts, value, weight, groups, conv.is_depthwise)
    geometry = strides, padding, dilation
    if conv.is_depthwise:
        array, width = block_array(weight.transpose(1, 0, 2, 3), block)[0], 0
        if form is U8S8 and dilation[1] == 1 and weight.shape[3] > 1:
            array, width = pack_taps(array, form.depth), weight.shape[3]
        image, packed = layouts.native(value), layouts.constant(array)
        out = layouts.emit_anchor("depthwise", depthwise, image, packed, *geometry, fill, width)
        return channel_orders.ordered(out, order, shape)
    if groups > 1 and weight.shape[1] % form.depth:
        weight, groups = dense_filters(weight, groups), 1
    lanes, image = block, None
    if not value.is_image and value.channels < block:
        lanes = up(value.channels, form.depth)
        image = layouts.builder.emit_te(to_blocks, layouts.plain(value), lanes, primfunc_name_hint="block")
    elif groups == 1 and strides[1] == 1:
        form = layouts.pair_form(form) or form
    inner = math.gcd(up(weight.shape[1], form.depth), lanes)
    packed = layouts.constant(pack_conv(weight, block, inner, groups, form.depth))
    grouped_channels = weight.shape[0] if groups > 1 else 0
    image = layouts.native(value) if image is None else image
    window = Window(_kernel_size(weight), *geometry)
    compute = partial(conv2d, window=window, groups=groups, outputs=grouped_channels, border=fill)
    out = layouts.emit_anchor("conv2d", compute, image, packed)
    return Value(shape, native=out)


def _kernel_size(weight: Array) -> tuple[int, int]:
    return weight.shape[2], weight.shape[3]


def bordered(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A border around an image of integers that only convolutions read: they add it themselves; or more images."""
    if (padded := images_added(layouts, call, shape)) is not None:
        return padded
    value, widths = layouts.value(call.args[0]), [int(width) for width in call.attrs.pad_width]
    if value is None or len(shape) != 4 or any(widths[:4]) or str(call.attrs.pad_mode) != "constant":
        return None
    readers = layouts.consumers.get(layouts.current, [])
    if str(call.ty.dtype) not in ("uint8", "int8") or any(
        operator_name(reader) != "relax.nn.conv2d" for reader in readers
    ):
        return None
    top, bottom, left, right = widths[4:]
    return Value(shape, border=(value, (top, left, bottom, right), int(call.attrs.pad_value)))


def matrix_product(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """``x @ weight`` for all rows at once, the weight in panels of columns; else a product of two activations."""
    value, weight = layouts.value(call.args[0]), layouts.array(call.args[1])
    if value is None or weight is None or weight.ndim != 2 or len(value.shape) < 2:
        return _activation_product(layouts, call, shape)
    dtypes = [str(call.args[0].ty.dtype), str(weight.dtype)]
    form = form_of(dtypes[0], dtypes[1])
    if (form is None and dtypes != ["float32"] * 2) or (form is not None and str(call.ty.dtype) != form.sum):
        return None
    rows, columns = math.prod(value.shape[:-1]), weight.shape[1]
    matrix = layouts.matrix(value)
    if form is None:
        packed = pack_matmul(weight, layouts.panel)
    else:
        if math.prod(value.shape[:-1]) % 2 == 0:
            form = layouts.pair_form(form) or form
        packed, missing = pack_dots(weight, layouts.panel, form.depth), -weight.shape[0] % form.depth
        if missing:
            matrix = layouts.builder.emit(relax.op.nn.pad(matrix, [0, 0, 0, missing]))
    out = layouts.emit_anchor("matmul", matmul, matrix, layouts.constant(packed))
    if packed.shape[0] * packed.shape[2] != columns:
        out = layouts.builder.emit_te(
            lambda t: topi.strided_slice(t, [0, 0], [rows, columns]), out, primfunc_name_hint="crop"
        )
    return Value(shape, plain=out) if len(shape) == 2 else Value(shape, matrix=out)


def _activation_product(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """(…, m, k) @ (…, k, n) of two activations."""
    dtypes = [str(arg.ty.dtype) for arg in call.args]
    if dtypes not in (["float32"] * 2, ["bfloat16"] * 2) or str(call.ty.dtype) != "float32":
        return None
    if any(layouts.is_native(arg) for arg in call.args):
        return None
    return product(
        layouts,
        call,
        shape,
        lambda *operands: layouts.emit_anchor("batch_matmul", batch_matmul, *operands, layouts.panel),
    )


def elementwise(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """In the layout of the operands; a number for each channel that scales a whole map is a kernel's operand.

    TVM would fuse the map's kernel behind the product that makes those numbers, whose tiles hold no map.
    """
    strict = str(call.op.name) in STRICT  # padded channels would become NaN
    if not strict and (result := channel_orders.elementwise(layouts, call, shape)) is not None:
        return result
    if (result := _less_sums(layouts, call, shape)) is not None:
        return result
    values = [layouts.value(arg) for arg in call.args]
    native = [value is not None and value.is_image for value in values]
    sizes = [value.shape[2:] if value is not None and len(value.shape) == 4 else () for value in values]
    if not all(native) or (1, 1) not in sizes or shape[2:] == (1, 1) or str(call.op.name) not in BINARY:
        return binary(layouts, call, shape)
    name = str(call.op.name).removeprefix("relax.")
    attrs = {"op_pattern": INJECTIVE_PATTERN}
    operands = [layouts.native(value) for value in values if value is not None]
    image = layouts.builder.emit_te(getattr(topi, name), *operands, primfunc_name_hint=name, primfunc_attrs=attrs)
    return Value(shape, native=image)


def _less_sums(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """product − c·s with a number c for each channel and an image s of one: sums of what a quantised filter reads.

    The image stays as it is. It would be as large as the product otherwise, since one channel is padded to a block.
    """
    maker = layouts.made_by.get(call.args[1]) if operator_name(call) == "relax.subtract" else None
    if maker is None or operator_name(maker) != "relax.multiply" or len(shape) != 4:
        return None
    product, sums, factors = layouts.value(call.args[0]), layouts.value(maker.args[0]), layouts.array(maker.args[1])
    if product is None or not product.is_image or product.shape != shape or sums is None or factors is None:
        return None
    if sums.shape != (shape[0], 1, *shape[2:]) or factors.shape != (shape[1], 1, 1):
        return None

    def less(product: te.Tensor, sums: te.Tensor, factors: te.Tensor) -> te.Tensor:
        def element(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, b: tirx.Var) -> tirx.Expr:
            return product[n, c, h, w, b] - factors[0, c, 0, 0, b] * sums[n, 0, h, w]

        return te.compute(product.shape, element, name="less_sums")

    operands = layouts.native(product), layouts.plain(sums), layouts.native_constant(factors[None], 0.0)
    attrs = {ELEMENTWISE: True}
    return Value(
        shape, native=layouts.builder.emit_te(less, *operands, primfunc_name_hint="less_sums", primfunc_attrs=attrs)
    )


def alone(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """In the layout of the operand; before a shuffle rather than behind it."""
    return channel_orders.elementwise(layouts, call, shape) or unary(layouts, call, shape)


def layer_norm(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Row by row of a matrix."""
    value, axes = layouts.value(call.args[0]), [int(axis) % len(shape) for axis in call.attrs.axes]
    if value is None or not value.is_matrix or axes != [len(shape) - 1]:
        return None
    scale, shift = (layouts.plain_expr(arg) for arg in call.args[1:])
    attrs = call.attrs
    rows = relax.op.nn.layer_norm(value.matrix, scale, shift, [-1], attrs.epsilon, attrs.center, attrs.scale)
    return Value(shape, matrix=layouts.builder.emit(rows))


def taken(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Rows or columns of an image at constant places, as resizing takes them, and tables of a byte's function."""
    value, places = layouts.value(call.args[0]), layouts.array(call.args[1])
    if value is None or not value.is_image or places is None or call.attrs.axis is None:
        return _table(layouts, call, shape)
    if len(shape) != 4 or places.ndim != 1 or int(call.attrs.axis) % 4 not in (2, 3):
        return None
    image = relax.op.take(layouts.native(value), layouts.constant(places), int(call.attrs.axis) % 4, call.attrs.mode)
    return Value(shape, native=layouts.builder.emit(image))


def _table(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A table of a byte's function, in the layout of the bytes; other gathers take plain tensors."""
    array, value = layouts.array(call.args[0]), layouts.value(call.args[1])
    if array is None or value is None or array.shape != (SIZE,) or array.dtype.itemsize != 1 or value.shape != shape:
        return None

    def table_of(x: relax.Expr) -> relax.Expr:
        attrs = {ELEMENTWISE: True}
        return layouts.builder.emit_te(
            looked_up, x, layouts.constant(array), primfunc_name_hint="table", primfunc_attrs=attrs
        )

    if value.is_matrix:
        return Value(shape, matrix=table_of(value.matrix))
    if value.is_image and len(shape) == 4:
        return Value(shape, native=table_of(layouts.native(value)))
    return Value(shape, plain=table_of(layouts.plain(value)))


def reshape(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Rows of a matrix are split and joined for free, and (n, C, 1, 1) → (n, C) is where no channel is padded.

    The last step of a channel shuffle stands for all of it.
    """
    value = layouts.value(call.args[0])
    if value is None:
        return None
    if (moved := units_moved(layouts, call, shape)) is not None:
        return moved
    if _keeps_columns(value, shape):
        matrix = layouts.matrix(value)
        return Value(shape, plain=matrix) if len(shape) == 2 else Value(shape, matrix=matrix)
    if (moved := channel_orders.shuffled(layouts, call, shape)) is not None:
        return moved
    if value.native is None or value.plain is not None or value.channels % layouts.block:
        return None
    if value.shape[2:] != (1, 1) or shape != value.shape[:2]:
        return None
    return Value(shape, plain=layouts.builder.emit(relax.op.reshape(value.native, shape)))


def _keeps_columns(value: Value, shape: Shape) -> bool:
    """Return whether a reshape to ``shape`` only splits or joins the rows of a matrix."""
    if value.native is not None or value.view is not None or min(len(value.shape), len(shape)) < 2:
        return False
    return value.shape[-1] == shape[-1] and (value.matrix is not None or 2 in (len(value.shape), len(shape)))


FEW_PIXELS = 64
"""Pixels of an image up to which its way into blocks and back is fused with what surrounds it. Heuristic, not measured:
beyond, a kernel of its own turns tiles in registers, where one of several steps moves numbers one by one."""


class Blocked(TensorLayouts):
    """Native images are blocked in groups of ``block`` channels."""

    pool = staticmethod(pool2d)
    image_axes = (2, 3)
    rules: ClassVar[Mapping[str, Rule]] = {
        **SHARED_RULES,
        "relax.nn.conv2d": convolution,
        "relax.nn.pad": bordered,
        "relax.matmul": matrix_product,
        low_bit_layouts.CALL: low_bit_layouts.for_vectors,
        "relax.concat": channel_orders.concatenated,
        "relax.strided_slice": channel_orders.sliced,
        "relax.reshape": reshape,
        "relax.nn.layer_norm": layer_norm,
        "relax.take": taken,
        **dict.fromkeys(BINARY | STRICT, elementwise),
        **dict.fromkeys(UNARY, alone),
    }

    def plain(self, value: Value) -> relax.Expr:
        """``value`` as ONNX has it."""
        if value.plain is None and value.native is None and value.picked is not None:
            value.plain = channel_orders.plain_image(self, value, value.picked)
        return super().plain(value)

    def native(self, value: Value) -> relax.Expr:
        """``value``, an image, in blocks."""
        if value.native is None and value.picked is not None:
            value.native = channel_orders.native_image(self, value.picked, value.picked.order)
        return super().native(value)

    def from_native(self, value: Value) -> relax.Expr:
        """Channels in their own axis again, without padding."""
        return self._between_blocks(from_blocks, value.native, value.channels, self._is_turned_next())

    def to_native(self, plain: relax.Expr) -> relax.Expr:
        """Blocked, padded with zeros."""
        return self._between_blocks(to_blocks, plain, self.block, self._was_turned(plain))

    def _between_blocks(self, compute: Callable[..., Any], image: relax.Expr, size: int, turned: bool) -> relax.Expr:
        """``compute`` of an image, a kernel of its own where that is the faster way.

        Args:
            turned: whether pixels are rows of channels on the other side: then vectors are moved as they are.
        """
        alone = self.block == SIDE and not turned and math.prod((shape_of(image) or ())[2:4]) > FEW_PIXELS
        attrs = {"op_pattern": OPAQUE_PATTERN} if alone else None
        name = "block" if compute is to_blocks else "unblock"
        return self.builder.emit_te(compute, image, size, primfunc_name_hint=name, primfunc_attrs=attrs)

    def _is_turned_next(self) -> bool:
        """Return whether what is being rebuilt transposes, or reshapes and is transposed then."""
        call = None if self.current is None else self.made_by.get(self.current)
        if call is None or operator_name(call) != "relax.reshape":
            return call is not None and operator_name(call) == "relax.permute_dims"
        return any(operator_name(reader) == "relax.permute_dims" for reader in self.consumers.get(self.current, []))

    def _was_turned(self, plain: relax.Expr) -> bool:
        """Return whether ``plain`` was transposed, or transposed and reshaped."""
        for name in ("relax.reshape", "relax.permute_dims"):
            maker = self.builder.lookup_binding(plain) if isinstance(plain, relax.Var) else None
            if maker is not None and operator_name(maker) == name:
                if name == "relax.permute_dims":
                    return True
                plain = maker.args[0]
        return False

    def native_constant(self, array: Array, fill: float) -> relax.Expr:
        """Blocked; a single channel stays one, and broadcasts."""
        return self.constant(array[..., None] if array.shape[1] == 1 else block_array(array, self.block, fill))

    def joined(self, parts: list[relax.Expr]) -> relax.Expr:
        """Along whole blocks, in a kernel that can be left out where the parts are written in place."""
        attrs = {"op_pattern": OPAQUE_PATTERN}
        return self.builder.emit_te(concat, parts, 1, primfunc_name_hint="concat", primfunc_attrs=attrs)
