"""Reading between the pixels at places that are computed: DeformConv, and the places of AffineGrid."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import sizes_of
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

    Inputs: x (n, c, h, w), weights (oc, c/groups, kh, kw), offsets
    (n, offset groups · kh · kw · 2, oh, ow) as (dy, dx), bias (oc,) and mask (n, offset groups · kh · kw, oh, ow), both
    optional.

    Raises:
        ModelError: for images of one or three dimensions.
    """
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
