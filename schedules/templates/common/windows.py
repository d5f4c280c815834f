"""Windows over images in any layout: where their taps lie, padding, and pooling.

Notation: an image has its height at axis ``spatial`` and its width behind it, as (n, C/b, h, w, b), (n, C, h, w) and
(n, h, w, C) do. A window has kh·kw taps. Padding is top, left, bottom, right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]

LOWEST = {
    "float32": -3.4028234663852886e38,
    "float16": -65504.0,
    "bfloat16": -3.3895313892515355e38,
    "uint8": 0,
    "int8": -128,
}
"""Least finite number of each type: what pads an image before a maximum."""


@dataclass(frozen=True)
class Window:
    """Size (kh, kw), strides, padding and dilation of a window."""

    size: Pair
    strides: Pair
    padding: Pads
    dilation: Pair

    def output_size(self, height: int, width: int) -> Pair:
        """Height and width of what the windows over an image give."""
        top, left, bottom, right = self.padding
        return (
            (height + top + bottom - self.dilation[0] * (self.size[0] - 1) - 1) // self.strides[0] + 1,
            (width + left + right - self.dilation[1] * (self.size[1] - 1) - 1) // self.strides[1] + 1,
        )

    def overhang(self, out_size: Pair, height: int, width: int) -> Pair:
        """Return how far the last windows of ``out_size`` reach beyond the padded image, as in ONNX's ceil mode."""
        top, left, bottom, right = self.padding
        reach = [(out_size[i] - 1) * self.strides[i] + self.dilation[i] * (self.size[i] - 1) + 1 for i in range(2)]
        return max(0, reach[0] - height - top - bottom), max(0, reach[1] - width - left - right)


@dataclass(frozen=True)
class Pooling:
    """The function of a pooling.

    Attributes:
        kind: ``max`` or ``avg``.
        out_size: (oh, ow), decided by the caller: ceil mode reads beyond the given padding.
        count_include_pad: whether an average counts padded taps.
    """

    kind: str
    window: Window
    out_size: Pair
    count_include_pad: bool


@dataclass(frozen=True)
class ImageLayout:
    """How images lie in memory, and what pooling over them is called.

    Attributes:
        spatial: position of the height among the axes.
        axes, padded_axes: names of the axes of results and of padded images.
        block, anchor: name and ``tune.anchor`` of the block that runs over the windows.
        sum_dtype: the type of sums; empty for that of the data.
    """

    spatial: int
    axes: tuple[str, ...]
    padded_axes: tuple[str, ...]
    block: str
    anchor: str
    sum_dtype: str = ""


BLOCKED_AXES = ("n", "c", "h", "w", "i0")


def pad_spatial(
    data: te.Tensor,
    padding: Pads,
    value: float,
    spatial: int = 2,
    axes: Sequence[str] = BLOCKED_AXES,
    words: str = "",
) -> te.Tensor:
    """``data`` with ``value`` around height and width; ``data`` itself where the padding is empty.

    Args:
        words: the type that the result keeps the numbers' bits in; empty for their own. TVM makes float32 of a bfloat16
            between two stages, and a uint16 stays one.
    """
    if not any(padding):
        return data
    top, left, bottom, right = padding
    height, width = int(data.shape[spatial]), int(data.shape[spatial + 1])
    shape = [*data.shape[:spatial], height + top + bottom, width + left + right, *data.shape[spatial + 2 :]]
    fill = tirx.const(value, words or data.dtype)

    def element(*at: tirx.Var) -> tirx.Expr:
        h, w = at[spatial : spatial + 2]
        inside = tirx.all(h >= top, h < height + top, w >= left, w < width + left)
        number = data[(*at[:spatial], h - top, w - left, *at[spatial + 2 :])]
        return tirx.if_then_else(inside, tirx.reinterpret(words, number) if words else number, fill)

    return te.compute(shape, element, name="pad", varargs_names=list(axes[: len(shape)]))


def pool(data: te.Tensor, pooling: Pooling, layout: ImageLayout) -> te.Tensor:
    """``pooling`` of the images ``data``."""
    window, at = pooling.window, layout.spatial
    top, left, bottom, right = window.padding
    height, width = int(data.shape[at]), int(data.shape[at + 1])
    over_h, over_w = window.overhang(pooling.out_size, height, width)
    around = (top, left, bottom + over_h, right + over_w)
    maximum = pooling.kind == "max"
    lowest = LOWEST.get(str(data.dtype), LOWEST["float32"])
    source = pad_spatial(data, around, lowest if maximum else 0.0, at, layout.padded_axes)
    kh, kw = te.reduce_axis((0, window.size[0]), "kh"), te.reduce_axis((0, window.size[1]), "kw")
    wide = "float32" if str(data.dtype) == "bfloat16" else data.dtype
    combine, dtype = (te.max, wide) if maximum else (te.sum, layout.sum_dtype or wide)

    def element(*index: tirx.Var) -> tirx.Expr:
        y = index[at] * window.strides[0] + kh * window.dilation[0]
        x = index[at + 1] * window.strides[1] + kw * window.dilation[1]
        return combine(source[(*index[:at], y, x, *index[at + 2 :])].astype(dtype), axis=[kh, kw])

    shape = (*data.shape[:at], *pooling.out_size, *data.shape[at + 2 :])
    names = list(layout.axes)
    pooled = te.compute(shape, element, name=layout.block, attrs={"tune.anchor": layout.anchor}, varargs_names=names)
    if maximum and wide == data.dtype:
        return pooled
    if maximum:
        return te.compute(shape, lambda *index: pooled[index].astype(data.dtype), name="narrow", varargs_names=names)
    all_taps = not any(around) or (pooling.count_include_pad and not over_h and not over_w)

    def average(*index: tirx.Var) -> tirx.Expr:
        value = pooled[index]
        if all_taps:
            return (value * tirx.const(1.0 / (window.size[0] * window.size[1]), dtype)).astype(data.dtype)
        rows = _taps(index[at], height, 0, pooling)
        columns = _taps(index[at + 1], width, 1, pooling)
        return (value / tirx.Cast(dtype, rows * columns)).astype(data.dtype)

    return te.compute(shape, average, name="average", varargs_names=names)


def _taps(position: tirx.Expr, size: int, axis: int, pooling: Pooling) -> tirx.Expr:
    """Number of taps that an average counts at one output position along one axis, 0 for height and 1 for width."""
    window = pooling.window
    before, after = window.padding[axis], window.padding[axis + 2]
    low, high = (-before, size + after) if pooling.count_include_pad else (0, size)
    start = position * window.strides[axis] - before
    total: tirx.Expr = tirx.const(0, "int32")
    for tap in range(window.size[axis]):
        at = start + tap * window.dilation[axis]
        total = total + tirx.Select(tirx.all(at >= low, at < high), tirx.const(1, "int32"), tirx.const(0, "int32"))
    return total


def group_span(per_group: int, groups: int, lanes: int) -> int:
    """The largest number of groups that share one block of ``lanes`` channels, with ``per_group`` channels a group."""
    return 1 if per_group % lanes == 0 else min(groups, -(-lanes // per_group) + 1)


def touches(o: tirx.Expr, index: tirx.Expr, per_group: int, groups: int, lanes: int) -> tirx.Expr:
    """Return whether output block ``o`` has a channel of the group at position ``index`` among those it may overlap."""
    group = tirx.min(o * lanes // per_group, groups - group_span(per_group, groups, lanes)) + index
    return tirx.all(group * per_group < (o + 1) * lanes, (group + 1) * per_group > o * lanes)
