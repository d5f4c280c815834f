"""Reading between the pixels at places that are computed: DeformConv, and the places of AffineGrid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from autotune.importer.operators.contractions.grids import UNFUSED_PATTERN
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, dtype_of, sizes_of
from schedules.vocabulary.errors import ModelError


@rewrites("AffineGrid")
def affine_grid(node: Node, e: Emit) -> list[str] | None:
    """The places of all pixels, x first, times the transposed matrices; ONNX's own function loses a batch of one."""
    sizes = [int(size) for size in node.constant(1, "size")][2:]
    corners = bool(node.attr("align_corners", 0))
    # One pixel between two corners lies at the last one, as ONNX Runtime has it.
    lines = [np.linspace(-1, 1, n) if corners and n > 1 else (2 * np.arange(n) + 1) / n - 1 + corners for n in sizes]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes)], axis=-1)
    flat = e.const(places.reshape(-1, len(sizes) + 1).astype(node.dtype(0)))
    grid = e.op("MatMul", flat, e.transpose(node.input(0), 0, 2, 1))
    return [e.reshape(grid, node.shape(0)[0], *sizes, len(sizes))]


@converts("DeformConv")
def deform_conv(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Sampled columns (n, c, kh, kw, oh, ow), each bilinear and 0 outside, times its mask; then products with w.

    Constant weights of one group are multiplied as a matrix (``_by_columns``), others in one kernel.

    Inputs: x (n, c, h, w), weights (oc, c/groups, kh, kw), offsets
    (n, offset groups · kh · kw · 2, oh, ow) as (dy, dx), bias (oc,) and mask (n, offset groups · kh · kw, oh, ow), both
    optional.

    Raises:
        ModelError: for images of one or three dimensions.
    """
    if (by_columns := _by_columns(bb, inputs, attrs)) is not None:
        return by_columns
    operands = [value for value in inputs[:5] if value is not None]
    has_bias, has_mask = inputs[3] is not None, inputs[4] is not None
    if len(sizes_of(inputs[0])) != 4:
        raise ModelError("only images of two dimensions are")
    groups, shared = int(attrs.get("group", 1)), int(attrs.get("offset_group", 1))
    strides, dilations = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    top, left = (attrs.get("pads", (0, 0, 0, 0)))[:2]

    def compute(*tensors: te.Tensor) -> te.Tensor:
        x, weight, offset = tensors[:3]
        bias = tensors[3] if has_bias else None
        mask = tensors[3 + has_bias] if has_mask else None
        batch, channels, height, width = x.shape
        outputs, per_group, kh, kw = weight.shape
        out_h, out_w = offset.shape[2:]
        together = channels // shared

        def pixel(n: Any, c: Any, y: Any, xx: Any) -> Any:
            inside = tirx.all(y >= 0, y < height, xx >= 0, xx < width)
            return tirx.if_then_else(inside, x(n, c, y, xx), tirx.const(0, x.dtype))

        def sample(n: Any, c: Any, i: Any, j: Any, oy: Any, ox: Any) -> Any:
            row = ((c // together) * kh + i) * kw + j
            y = offset(n, 2 * row, oy, ox) + (oy * strides[0] - top + i * dilations[0]).astype(x.dtype)
            xx = offset(n, 2 * row + 1, oy, ox) + (ox * strides[1] - left + j * dilations[1]).astype(x.dtype)
            fy, fx = tirx.floor(y), tirx.floor(xx)
            iy, ix = fy.astype("int64"), fx.astype("int64")
            dy, dx = y - fy, xx - fx
            upper = pixel(n, c, iy, ix) * (1 - dx) + pixel(n, c, iy, ix + 1) * dx
            lower = pixel(n, c, iy + 1, ix) * (1 - dx) + pixel(n, c, iy + 1, ix + 1) * dx
            value = upper * (1 - dy) + lower * dy
            return value * mask(n, row, oy, ox) if mask is not None else value

        columns = te.compute((batch, channels, kh, kw, out_h, out_w), sample, name="columns")
        c = te.reduce_axis((0, per_group), "c")
        i, j = te.reduce_axis((0, kh), "i"), te.reduce_axis((0, kw), "j")
        group_outputs = outputs // groups
        product = te.compute(
            (batch, outputs, out_h, out_w),
            lambda n, o, oy, ox: te.sum(
                columns(n, (o // group_outputs) * per_group + c, i, j, oy, ox) * weight(o, c, i, j), axis=[c, i, j]
            ),
            name="product",
        )
        if bias is None:
            return product
        return te.compute(product.shape, lambda n, o, y, xx: product(n, o, y, xx) + bias(o), name="biased")

    return bb.emit_te(compute, *operands, primfunc_name_hint="deform_conv")


def _by_columns(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any]) -> relax.Expr | None:
    """Sampled columns (n, oh, ow, kh · kw, c) times a matrix of weights; None for groups and for computed weights.

    Channels lie innermost, so the four pixels around a position are four vectors. Their indices and weights are
    computed once for all channels.
    """
    x, offset, bias, mask = inputs[0], inputs[2], inputs[3], inputs[4]
    filters = constant_of(inputs[1])
    groups, shared = int(attrs.get("group", 1)), int(attrs.get("offset_group", 1))
    if filters is None or groups > 1 or len(sizes_of(x)) != 4 or dtype_of(x) != "float32":
        return None
    batch, channels, height, width = sizes_of(x)
    outputs, _, *window = filters.shape
    out_h, out_w = sizes_of(offset)[2:]
    taps = math.prod(window)
    corners = _Corners((height, width), tuple(window), attrs)

    def per_corner(name: str, element: Callable[..., tirx.Expr], *tensors: relax.Expr) -> relax.Expr:
        def compute(*read: te.Tensor) -> te.Tensor:
            def corner(n: Any, oy: Any, ox: Any, row: Any, q: Any) -> tirx.Expr:
                return element(
                    corners.position(read[0], n, oy, ox, row), q, *(more(n, row, oy, ox) for more in read[1:])
                )

            return te.compute((batch, out_h, out_w, shared * taps, 4), corner, name=name)

        # Nothing fuses with it: fused into the columns, it would be computed for every channel.
        return bb.emit_te(compute, *tensors, primfunc_name_hint=name, primfunc_attrs={"op_pattern": OPAQUE_PATTERN})

    def columns(image: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def sample(n: Any, oy: Any, ox: Any, tap: Any, c: Any) -> tirx.Expr:
            row, total = c // (channels // shared) * taps + tap, tirx.const(0, "float32")
            for q in range(4):
                place = places(n, oy, ox, row, q)
                pixel = image(n, place ^ (place >> 31), c)
                total += weights(n, oy, ox, row, q) * tirx.Select(place >= 0, pixel, tirx.const(0, "float32"))
            return total

        return te.compute((batch, out_h, out_w, taps, channels), sample, name="deform_columns")

    last = bb.emit(relax.op.permute_dims(x, (0, 2, 3, 1)))
    image = bb.emit(relax.op.reshape(last, (batch, height * width, channels)))
    places = per_corner("deform_places", corners.place, offset)
    weights = per_corner("deform_weights", corners.weight, *([offset] if mask is None else [offset, mask]))
    attributes = {"op_pattern": UNFUSED_PATTERN}
    sampled = bb.emit_te(
        columns, image, places, weights, primfunc_name_hint="deform_columns", primfunc_attrs=attributes
    )
    matrix = np.ascontiguousarray(filters.transpose(2, 3, 1, 0).reshape(taps * channels, outputs))
    rows = bb.emit(relax.op.reshape(sampled, (batch * out_h * out_w, taps * channels)))
    product = bb.emit(relax.op.matmul(rows, relax.const(matrix)))
    if bias is not None:
        product = bb.emit(relax.op.add(product, bias))
    result = bb.emit(relax.op.reshape(product, (batch, out_h, out_w, outputs)))
    return relax.op.permute_dims(result, (0, 3, 1, 2))


class _Corners:
    """The four pixels around every position of a filter's taps, upper ones first."""

    def __init__(self, size: tuple[int, int], window: tuple[int, ...], attrs: dict[str, Any]) -> None:
        self.size, self.window = size, window
        self.strides, self.dilations = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
        self.before = attrs.get("pads", (0, 0, 0, 0))[:2]

    def position(self, offset: te.Tensor, n: Any, oy: Any, ox: Any, row: Any) -> tuple[tirx.Expr, tirx.Expr]:
        """Return where tap ``row`` of all offset groups reads: (y, x)."""
        tap = row % math.prod(self.window)
        steps = (tap // self.window[1], tap % self.window[1])
        at = []
        for axis, (out, step) in enumerate(zip((oy, ox), steps, strict=True)):
            start = out * self.strides[axis] - self.before[axis] + step * self.dilations[axis]
            at.append(offset(n, 2 * row + axis, oy, ox) + tirx.Cast("float32", start))
        return at[0], at[1]

    def place(self, position: tuple[tirx.Expr, tirx.Expr], q: tirx.Expr) -> tirx.Expr:
        """Return the index of a pixel in its image, or ¬ of an index if it lies outside."""
        index, inside = tirx.const(0, "int32"), tirx.const(True, "bool")
        for axis, size in enumerate(self.size):
            first, last = tirx.floor(position[axis]) + _bit(q, axis), tirx.const(size - 1.0, "float32")
            held = tirx.Cast("int32", tirx.max(tirx.min(first, last), tirx.const(0.0, "float32")))
            held = tirx.max(tirx.min(held, size - 1), 0)  # of NaN, the cast makes any number
            index = index * size + held
            inside = tirx.all(inside, first >= 0, first <= last)
        return tirx.Select(inside, index, tirx.bitwise_not(index))

    def weight(self, position: tuple[tirx.Expr, tirx.Expr], q: tirx.Expr, *mask: tirx.Expr) -> tirx.Expr:
        """Return the weight of a pixel, times the mask: 0 for positions outside of the image, NaN for NaN."""
        total, outside = tirx.const(1, "float32"), tirx.const(False, "bool")
        for axis, size in enumerate(self.size):
            at = position[axis]
            part = at - tirx.floor(at)
            total *= tirx.Select(_bit(q, axis) > 0, part, 1 - part)
            outside = tirx.any(outside, at <= -1, at >= size)
        total = tirx.Select(outside, tirx.const(0, "float32"), total)
        return total * mask[0] if mask else total


def _bit(q: tirx.Expr, axis: int) -> tirx.Expr:
    """Return 1.0 if corner ``q`` is the lower one (axis 0), or the right one (axis 1)."""
    return tirx.Cast("float32", q // 2 if axis == 0 else q % 2)
