"""Reading between the pixels at places that are computed: DeformConv, and the places of AffineGrid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import OPAQUE_PATTERN, UNFUSED_PATTERN, Inputs, converts, rewrites
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
    """Sampled columns (n, oh, ow, kh · kw, c), each bilinear and 0 outside, times its mask; then products with w.

    Channels lie innermost, so the four pixels around a position are four vectors. Their indices and weights are
    computed once for all channels. Halves are computed in fp32.

    Inputs: x (n, c, h, w), weights (oc, c/groups, kh, kw), offsets
    (n, offset groups · kh · kw · 2, oh, ow) as (dy, dx), bias (oc,) and mask (n, offset groups · kh · kw, oh, ow), both
    optional.

    Raises:
        ModelError: for images of one or three dimensions.
    """
    if len(sizes_of(inputs[0])) != 4:
        raise ModelError("only images of two dimensions are")
    kind = dtype_of(inputs[0])
    real = "float64" if kind == "float64" else "float32"
    x, filters, offset, bias, mask = (
        value if value is None or kind == real else bb.emit(relax.op.astype(value, real)) for value in inputs[:5]
    )
    (outputs, _, *window), out = sizes_of(filters), sizes_of(offset)[2:]
    product = _multiplied(bb, _columns(bb, (x, offset, mask), window, attrs), filters, int(attrs.get("group", 1)))
    if bias is not None:
        product = bb.emit(relax.op.add(product, bias))
    product = product if kind == real else bb.emit(relax.op.astype(product, kind))
    result = bb.emit(relax.op.reshape(product, (sizes_of(x)[0], *out, outputs)))
    return relax.op.permute_dims(result, (0, 3, 1, 2))


def _columns(
    bb: relax.BlockBuilder, operands: Sequence[relax.Expr | None], window: Sequence[int], attrs: dict[str, Any]
) -> relax.Expr:
    """The columns (n, oh, ow, kh · kw, c) of images, sampled at offsets, times a mask."""
    x, offset, mask = operands
    real, shared = dtype_of(x), int(attrs.get("offset_group", 1))
    (batch, channels, height, width), (out_h, out_w) = sizes_of(x), sizes_of(offset)[2:]
    taps = math.prod(window)
    count, size = batch * out_h * out_w * shared * taps, (height, width)

    def in_order(value: relax.Expr, *shape: int) -> relax.Expr:
        """``value`` (n, k, oh, ow) as (n, oh, ow, k), under another shape."""
        return bb.emit(relax.op.reshape(bb.emit(relax.op.permute_dims(value, (0, 2, 3, 1))), shape))

    def per_corner(name: str, element: Callable[..., tirx.Expr], *tensors: relax.Expr) -> relax.Expr:
        def compute(at: te.Tensor, *masks: te.Tensor) -> te.Tensor:
            def corner(q: Any, p: Any) -> tirx.Expr:
                return element(size, (at(p, 0), at(p, 1)), q, *(values(p) for values in masks))

            return te.compute((4, count), corner, name=name)

        # Nothing fuses with it: fused into the columns, it would be computed for every channel.
        return bb.emit_te(compute, *tensors, primfunc_name_hint=name, primfunc_attrs={"op_pattern": OPAQUE_PATTERN})

    def columns(image: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def sample(n: Any, oy: Any, ox: Any, tap: Any, c: Any) -> tirx.Expr:
            row, total = c // (channels // shared) * taps + tap, tirx.const(0, real)
            position = ((n * out_h + oy) * out_w + ox) * (shared * taps) + row
            for q in range(4):
                place = places(q, position)
                pixel = image(n, place ^ (place >> 31), c)
                total += weights(q, position) * tirx.Select(place >= 0, pixel, tirx.const(0, real))
            return total

        return te.compute((batch, out_h, out_w, taps, channels), sample, name="deform_columns")

    image = in_order(x, batch, height * width, channels)
    starts = relax.const(np.tile(_starts((out_h, out_w), window, attrs), (1, 1, 1, shared, 1)).astype(real), real)
    moved = bb.emit(relax.op.add(in_order(offset, batch, out_h, out_w, shared * taps, 2), starts))
    positions = bb.emit(relax.op.reshape(moved, (count, 2)))
    places = per_corner("deform_places", _place, positions)
    weights = per_corner("deform_weights", _weight, positions, *([] if mask is None else [in_order(mask, count)]))
    attributes = {"op_pattern": UNFUSED_PATTERN}
    return bb.emit_te(columns, image, places, weights, primfunc_name_hint="deform_columns", primfunc_attrs=attributes)


def _multiplied(bb: relax.BlockBuilder, columns: relax.Expr, filters: relax.Expr, groups: int) -> relax.Expr:
    """Columns (n, oh, ow, taps, c) times filters (oc, c/groups, kh, kw): (n · oh · ow, oc)."""
    *outer, taps, channels = sizes_of(columns)
    outputs, own, *window = sizes_of(filters)
    rows, known = math.prod(outer), constant_of(filters)
    apart, order = (groups, outputs // groups, own, *window), (0, 3, 4, 2, 1)
    shape = (groups, taps * own, outputs // groups)[groups == 1 :]
    if known is None:
        turned = bb.emit(relax.op.permute_dims(bb.emit(relax.op.reshape(filters, apart)), order))
        matrix = bb.emit(relax.op.reshape(turned, shape))
    else:
        turned = np.ascontiguousarray(known.reshape(apart).transpose(order).reshape(shape))
        matrix = relax.const(turned, dtype_of(filters))
    if groups == 1:
        return bb.emit(relax.op.matmul(bb.emit(relax.op.reshape(columns, (rows, taps * channels))), matrix))
    by_group = bb.emit(
        relax.op.permute_dims(bb.emit(relax.op.reshape(columns, (rows, taps, groups, own))), (2, 0, 1, 3))
    )
    product = bb.emit(relax.op.matmul(bb.emit(relax.op.reshape(by_group, (groups, rows, taps * own))), matrix))
    return bb.emit(relax.op.reshape(bb.emit(relax.op.permute_dims(product, (1, 0, 2))), (rows, outputs)))


def _starts(size: tuple[int, int], window: Sequence[int], attrs: dict[str, Any]) -> Array:
    """Return where the taps of all outputs read if no offset moves them: (1, oh, ow, kh · kw, 2), y first."""
    strides, dilations = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    lines = [
        np.arange(count)[:, None] * int(step) - int(before) + np.arange(taps) * int(spread)
        for count, taps, step, before, spread in zip(
            size, window, strides, attrs.get("pads", (0, 0, 0, 0)), dilations, strict=False
        )
    ]
    y, x = np.broadcast_arrays(lines[0][:, None, :, None], lines[1][None, :, None, :])
    return np.stack([y, x], axis=-1).reshape(1, *size, -1, 2)


def _place(size: tuple[int, int], position: tuple[tirx.Expr, tirx.Expr], q: tirx.Expr) -> tirx.Expr:
    """The index in its image of one of four pixels around ``position``, or ¬ of an index if it lies outside."""
    index, inside, real = tirx.const(0, "int32"), tirx.const(True, "bool"), str(position[0].ty.dtype)
    for axis, count in enumerate(size):
        first, last = tirx.floor(position[axis]) + tirx.Cast(real, _bit(q, axis)), tirx.const(count - 1.0, real)
        held = tirx.Cast("int32", tirx.max(tirx.min(first, last), tirx.const(0.0, real)))
        held = tirx.max(tirx.min(held, count - 1), 0)  # of NaN, the cast makes any number
        index = index * count + held
        inside = tirx.all(inside, first >= 0, first <= last)
    return tirx.Select(inside, index, tirx.bitwise_not(index))


def _weight(size: tuple[int, int], position: tuple[tirx.Expr, tirx.Expr], q: tirx.Expr, *mask: tirx.Expr) -> tirx.Expr:
    """The weight of a pixel, times the mask: 0 for positions outside of the image, NaN for NaN."""
    real = str(position[0].ty.dtype)
    total, outside = tirx.const(1, real), tirx.const(False, "bool")
    for axis, count in enumerate(size):
        at = position[axis]
        part = at - tirx.floor(at)
        total *= tirx.Select(tirx.Cast(real, _bit(q, axis)) > 0, part, 1 - part)
        outside = tirx.any(outside, at <= -1, at >= count)
    total = tirx.Select(outside, tirx.const(0, real), total)
    return total * mask[0] if mask else total


def _bit(q: tirx.Expr, axis: int) -> tirx.Expr:
    """1 if corner ``q`` is the lower one (axis 0), or the right one (axis 1)."""
    return q // 2 if axis == 0 else q % 2
