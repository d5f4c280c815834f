"""Reading between the pixels: DeformConv at learnt places, RoiAlign at those of a grid in every region."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from autotune.importer.conversion.registry import Inputs, converts
from schedules.errors import ModelError


@converts("DeformConv")
def deform_conv(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Sampled columns (n, c, kh, kw, oh, ow), each bilinear and 0 outside, times its mask; then products with w.

    Inputs: x (n, c, h, w), weights (oc, c/groups, kh, kw), offsets
    (n, offset groups · kh · kw · 2, oh, ow) as (dy, dx), bias (oc,) and mask (n, offset groups · kh · kw, oh, ow), both
    optional.

    Raises:
        ModelError: for images of one or three dimensions.
    """
    given = [value for value in inputs[:5] if value is not None]
    has_bias, has_mask = inputs[3] is not None, inputs[4] is not None
    if len(inputs[0].ty.shape) != 4:  # type: ignore[union-attr]
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
        each = outputs // groups
        product = te.compute(
            (batch, outputs, out_h, out_w),
            lambda n, o, oy, ox: te.sum(
                columns(n, (o // each) * per_group + c, i, j, oy, ox) * weight(o, c, i, j), axis=[c, i, j]
            ),
            name="product",
        )
        if bias is None:
            return product
        return te.compute(product.shape, lambda n, o, y, xx: product(n, o, y, xx) + bias(o), name="biased")

    return bb.emit_te(compute, *given, primfunc_name_hint="deform_conv")


@converts("RoiAlign")
def roi_align(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Means of samples by TVM's kernel; greatest samples by ours, in which a sample is the greatest of its four
    weighted corners, as in ONNX Runtime.

    Raises:
        ModelError: for as many samples as fit a region, which depends on data.
    """
    x, rois, batch = inputs[:3]
    assert x is not None
    assert rois is not None
    assert batch is not None
    scale, ratio = float(attrs.get("spatial_scale", 1.0)), int(attrs.get("sampling_ratio", 0))
    mode = bytes(attrs.get("mode", b"avg"))
    default = b"half_pixel" if opset >= 16 else b"output_half_pixel"
    half = bytes(attrs.get("coordinate_transformation_mode", default)) == b"half_pixel"
    if half:  # half a pixel of the map, which TVM's converter takes off the unscaled regions
        rois = bb.normalize(relax.op.subtract(rois, relax.const(0.5 / scale, str(rois.ty.dtype))))
    size = int(attrs.get("output_height", 1)), int(attrs.get("output_width", 1))
    if ratio < 1:
        raise ModelError("with as many samples as fit a region; give a sampling_ratio")
    if mode == b"max":
        return bb.emit_te(_greatest, x, rois, batch, size, ratio, scale, half, primfunc_name_hint="roi_align_max")
    column = bb.normalize(relax.op.astype(relax.op.expand_dims(batch, axis=1), str(rois.ty.dtype)))
    boxes = bb.normalize(relax.op.concat([column, rois], axis=1))
    return relax.op.vision.roi_align(x, boxes, size, scale, ratio, half, "NCHW", mode.decode())


def _greatest(
    x: te.Tensor, rois: te.Tensor, batch: te.Tensor, size: tuple[int, int], ratio: int, scale: float, half: bool
) -> te.Tensor:
    """(regions, channels, *size): the greatest sample of every bin."""
    dtype, (_, channels, height, width) = x.dtype, x.shape

    def place(r: Any, which: int, bin_index: Any, sample: Any) -> Any:
        start, end = rois[r, which] * scale, rois[r, which + 2] * scale
        extent = end - start if half else tirx.max(end - start, tirx.const(1, dtype))
        step = extent / size[1 - which]
        return start + bin_index.astype(dtype) * step + (sample.astype(dtype) + 0.5) * step / ratio

    def corners(at: Any, limit: Any) -> tuple[Any, Any, Any, Any]:
        at = tirx.max(at, tirx.const(0, dtype))
        low = tirx.min(at.astype("int64"), limit - 1)
        share = tirx.Select(low >= limit - 1, tirx.const(0, dtype), at - low.astype(dtype))
        return low, tirx.min(low + 1, limit - 1), 1 - share, share

    sy, sx = te.reduce_axis((0, ratio), "sy"), te.reduce_axis((0, ratio), "sx")

    def element(r: Any, c: Any, i: Any, j: Any) -> Any:
        y, z = place(r, 1, i, sy.var), place(r, 0, j, sx.var)
        top, bottom, above, below = corners(y, height)
        left, right, before, behind = corners(z, width)
        b = batch[r]
        best = above * before * x[b, c, top, left]
        for weight, value in (
            (above * behind, x[b, c, top, right]),
            (below * before, x[b, c, bottom, left]),
            (below * behind, x[b, c, bottom, right]),
        ):
            best = tirx.max(best, weight * value)
        inside = tirx.all(y >= -1.0, y <= height.astype(dtype), z >= -1.0, z <= width.astype(dtype))
        return te.max(tirx.Select(inside, best, tirx.const(0, dtype)), axis=[sy, sx])

    return te.compute((rois.shape[0], channels, *size), element, name="greatest")
