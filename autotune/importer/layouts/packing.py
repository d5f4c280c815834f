"""Constants in the layouts that kernels read: images blocked in groups of channels, weights packed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.templates.common.windows import group_span

Array = NDArray[Any]
Shape = tuple[int, ...]


def block_array(array: Array, block: int, fill: float = 0.0) -> Array:
    """(n, C, h, w) → (n, ceil(C/b), h, w, b), padded channels set to ``fill``."""
    n, channels, height, width = array.shape
    missing = -channels % block
    if missing:
        array = np.pad(array, ((0, 0), (0, missing), (0, 0), (0, 0)), constant_values=fill)
    split = array.reshape(n, -1, block, height, width)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def up(size: int, step: int) -> int:
    """``size`` rounded up to a multiple of ``step``."""
    return -(-size // step) * step


def reached(
    weight: Array, image: Shape, out: Shape, strides: Shape, pads: Shape, dilation: Shape
) -> tuple[Array, Shape]:
    """The filters without the places that meet nothing but the border, as most do that are spread wider than the image.

    Args:
        weight: (…, kh, kw).
        image, out: height and width of what is read and of what is made.
        pads: top, left, bottom, right.

    Returns:
        The smaller filters, and the padding that they need. Filters that would need an image cut off, or of which
        nothing would be left, stay as they are along that axis.
    """
    left = list(pads)
    for axis in (0, 1):
        step, size = dilation[axis], weight.shape[axis - 2]
        last = strides[axis] * (out[axis] - 1)
        places = [place * step - pads[axis] for place in range(size)]
        first = sum(place + last < 0 for place in places)
        behind = sum(place >= image[axis] for place in places)
        if first + behind == size or first * step > pads[axis] or behind * step > pads[axis + 2]:
            continue  # no place of the filter would be left, or the image would have to be cut
        weight = weight.take(range(first, size - behind), axis - 2)
        left[axis], left[axis + 2] = pads[axis] - first * step, pads[axis + 2] - behind * step
    return weight, tuple(left)


def dense_filters(weight: Array, groups: int) -> Array:
    """(O, C/groups, kh, kw) → (O, C, kh, kw): filters of a group are zero where others' channels are."""
    out_channels, per_group, kh, kw = weight.shape
    dense = np.zeros((groups, out_channels // groups, groups, per_group, kh, kw), weight.dtype)
    for group, filters in enumerate(weight.reshape(groups, -1, per_group, kh, kw)):
        dense[group, :, group] = filters
    return dense.reshape(out_channels, groups * per_group, kh, kw)


def pack_conv(weight: Array, block: int, inner: int, groups: int = 1, depth: int = 0) -> Array:
    """(O, C', kh, kw) → (ceil(O/b), C''/i, kh, kw, i, b), output channels padded with zero filters.

    With the ``depth`` Q of a dot product (ceil(O/b), C''/i, kh, kw, i/Q, b, Q), input channels padded to whole ones.

    C'' = C' unless a block of output channels touches several groups: then it spans the inputs of all of them, with
    zeros where an output channel does not belong.
    """
    out_channels, per_group, kh, kw = weight.shape
    outputs = out_channels // groups
    span = group_span(outputs, groups, block)
    if span > 1:
        wide = np.zeros((out_channels, span * per_group, kh, kw), weight.dtype)
        for channel in range(out_channels):
            first = min(channel // block * block // outputs, groups - span)
            start = (channel // outputs - first) * per_group
            wide[channel, start : start + per_group] = weight[channel]
        weight, per_group = wide, span * per_group
    weight = np.pad(weight, ((0, -out_channels % block), (0, -per_group % (depth or 1)), (0, 0), (0, 0)))
    if depth:
        split = weight.reshape(-1, block, weight.shape[1] // inner, inner // depth, depth, kh, kw)
        return np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4))
    split = weight.reshape(-1, block, per_group // inner, inner, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def pack_taps(filters: Array, depth: int) -> Array:
    """(C/b, kh, kw, b) → (C/b, kh, ceil(kw/Q), b, Q) with the ``depth`` Q of a dot product; zeros beyond kw."""
    wide = np.pad(filters, ((0, 0), (0, 0), (0, -filters.shape[2] % depth), (0, 0)))
    blocks, kh, kw, lanes = wide.shape
    return np.ascontiguousarray(wide.reshape(blocks, kh, kw // depth, depth, lanes).transpose(0, 1, 2, 4, 3))


def pack_dots(weight: Array, block: int, quad: int) -> Array:
    """(k, n) → (ceil(n/l), ceil(k/Q), l, Q) with l as in ``pack_matmul``, Q numbers a lane; zeros beyond n and k."""
    packed = pack_matmul(np.pad(weight, ((0, -weight.shape[0] % quad), (0, 0))), block)
    panels, depth, lanes = packed.shape
    return np.ascontiguousarray(packed.reshape(panels, depth // quad, quad, lanes).transpose(0, 1, 3, 2))


def pack_matmul(weight: Array, block: int) -> Array:
    """(k, n) → (ceil(n/l), k, l) with l = b, or b/2 where only that divides n; columns padded with zeros."""
    depth, columns = weight.shape
    lanes = next((n for n in (block, block // 2) if columns % n == 0), block)
    padded = -(-columns // lanes) * lanes
    wide = np.pad(weight, ((0, 0), (0, padded - columns)))
    return wide.reshape(depth, padded // lanes, lanes).transpose(1, 0, 2)
