"""Operators that read what stands behind the end of a call, as others that give the results of the call alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike
from onnx import TensorProto

from autotune.importer.live.live_axes import Axes, is_open
from autotune.importer.live.live_masks import Masks
from autotune.importer.live.live_reads import (
    AVERAGED,
    behind_two,
    border_number,
    has_border,
    open_borders,
    open_windows,
    picked,
    reduced,
    softened,
)
from autotune.importer.onnx_model.open_axes import QUANTISER, is_endless
from autotune.importer.operators.recurrent_ops import LENGTHS
from autotune.importer.rewriting.emit import FLOAT, HALVES, Emit, Node, Wide
from autotune.interface import Extent

PER_CHANNEL = 21
"""First opset whose ``GroupNormalization`` has a scale for each channel."""

REPEATING = {"Pad": "constant", "Resize": "nearest", "Upsample": "nearest"}
"""Operator → its mode where none is named, in which it reads no number beside those that it moves."""

Edit = Callable[[Node, Emit, Masks], list[str] | None]
"""The values that take the place of a node's outputs; None where it may stay as it is."""


def _same(node: Node, e: Emit, x: str) -> list[str]:
    """``node`` with another first input."""
    return e.ops(node.kind, x, *node.proto.input[1:], outputs=len(node.proto.output), **node.attributes)


def _filled(over: Callable[[Node, Masks], Collection[int]], number: Callable[[Node], ArrayLike]) -> Edit:
    """Read a number in place of what does not count along some axes."""

    def edit(node: Node, e: Emit, masks: Masks) -> list[str] | None:
        axes, x = over(node, masks), node.input(0)
        if not axes:
            return None
        return _same(node, e, e.op("Where", masks.mask(e, masks.axes[x], axes), x, e.const(_as(node, number(node)))))

    return edit


def _as(node: Node, number: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.asarray(number, node.dtype(0))


def _bounds(node: Node) -> Any:
    """The facts of the numbers that the first input may hold."""
    dtype = node.dtype(0)
    finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16
    return np.iinfo(dtype) if dtype.kind in "iu" else finfo(dtype)


def _least(node: Node) -> ArrayLike:
    """A number that is never the largest; infinite, since those that count may be."""
    return -np.inf if node.dtype(0).kind not in "iu" else np.asarray(_bounds(node).min)


def _most(node: Node) -> ArrayLike:
    """A number that is never the least; infinite, since those that count may be."""
    return np.inf if node.dtype(0).kind not in "iu" else np.asarray(_bounds(node).max)


def _searched(node: Node) -> ArrayLike:
    """A number that is not found where the largest ones are looked for, or the least."""
    return _least(node) if node.attr("largest", 1) else _most(node)


def _along(axes_of: Callable[[Node, int], Collection[int]]) -> Callable[[Node, Masks], list[int]]:
    """Those of an operator's axes that follow open sizes."""
    return lambda node, masks: masks.open_axes(node.input(0), axes_of(node, len(masks.axes.get(node.input(0), ()))))


def _bordered(node: Node, masks: Masks) -> list[int]:
    """The axes of a pool whose windows reach beyond the image."""
    return open_windows(node, masks) if has_border(node) else []


def _with_border(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """A border of another number than zero."""
    number = border_number(node)
    if not number:  # zeros stand there already, or it is not known
        return _continued(node, e, masks)
    return _filled(open_borders, lambda _: number)(node, e, masks)


def _continued(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """An image goes on with its last numbers behind its end, where it is resized linearly or gets a border of them."""
    x, axes, shapes = node.input(0), masks.axes.get(node.input(0), ()), node.scope.shapes
    sizes = zip(shapes.get(x, ()), shapes.get(str(node.proto.output[0]), ()), strict=False)
    over = masks.open_axes(x, [axis for axis, (before, after) in enumerate(sizes) if before != after])
    if str(node.attr("mode", REPEATING.get(node.kind, ""))) in ("constant", "nearest", "reflect", "wrap"):
        return None
    if not over or any(len(axes[axis]) != 1 or not isinstance(axes[axis][0], Extent) for axis in over):
        return None
    for axis in over:
        (part,) = axes[axis]
        assert isinstance(part, Extent)
        last = e.op("Sub", masks.count(e, part), e.ints(1))
        x = e.op("Where", masks.mask(e, axes, [axis]), x, e.op("Gather", x, last, axis=axis))
    return _same(node, e, x)


def _last(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Entries that are counted from the end of an axis."""
    places, axes = node.array(1), masks.axes.get(node.input(0), ())
    at = int(node.attr("axis", 0)) % max(1, len(axes))
    if places is None or not places.size or (places >= 0).any() or not masks.open_axes(node.input(0), [at]):
        return None
    part = axes[at][0]
    if len(axes[at]) != 1 or not isinstance(part, Extent):
        return None
    counted = e.op("Add", masks.count(e, part), e.const(places.reshape(-1).astype(np.int64)))
    return [e.op("Gather", node.input(0), e.reshape(counted, *places.shape), axis=at)]


def _mean(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """The mean of what counts: all else is zero."""
    x = node.input(0)
    axes = [*AVERAGED[node.kind](node, len(masks.axes.get(x, ())))]
    if not masks.open_axes(x, axes):
        return None
    total = e.reduce("ReduceSum", x, axes, bool(node.attr("keepdims", 1)))
    return [e.op("Div", total, e.reshape(masks.total(e, masks.axes[x], axes, node.type(0))))]


def _average(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Averages of what counts: by averages of ones, which have the same borders."""
    over = open_windows(node, masks) if has_border(node) and not node.attr("count_include_pad", 0) else []
    if not over:
        return None
    x, attributes = node.input(0), {**node.attributes, "count_include_pad": 1}
    counted = e.cast(masks.mask(e, masks.axes[x], over), node.type(0))
    sizes = node.scope.shapes[x]
    ones = e.op("Expand", counted, e.ints(1, 1, *sizes[2:]))
    share = e.op("AveragePool", ones, **attributes)
    share = e.op("Max", share, e.const(_as(node, _bounds(node).tiny)))  # windows of nothing that counts
    return [e.op("Div", e.op("AveragePool", x, **attributes), share)]


def _instances(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Normalise each channel by the mean and variance of what counts."""
    axes = masks.axes.get(node.input(0), ())
    if not masks.open_axes(node.input(0), behind_two(node, len(axes))):
        return None
    data = Wide(e, 0)
    normal = _normal(node, e, masks, data, axes)
    return [data.back(_scaled(node, e, normal, len(axes)))]


def _groups(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Normalise each group of channels by the mean and variance of what counts."""
    axes, count = masks.axes.get(node.input(0), ()), int(node.attr("num_groups", 1))
    if node.scope.opset < PER_CHANNEL or not masks.open_axes(node.input(0), behind_two(node, len(axes))):
        return None
    data, shape = Wide(e, 0), node.scope.shapes[node.input(0)]
    x, data.x = data.x, e.reshape(data.x, shape[0], count, shape[1] // count, *shape[2:])
    normal = _normal(node, e, masks, data, (axes[0], (count,), (shape[1] // count,), *axes[2:]))
    data.x = x
    return [data.back(_scaled(node, e, e.reshape(normal, *shape), len(axes)))]


def _normal(node: Node, e: Emit, masks: Masks, data: Wide, axes: Axes) -> str:
    """x less its mean, by the root of its variance, over all axes behind the second."""
    over = [*range(2, len(axes))]
    total = e.reshape(masks.total(e, axes, over, FLOAT if node.type(0) in HALVES else node.type(0)))
    opened = [at for at in over if is_open(axes[at])]
    rest = e.op("Sub", data.x, e.op("Div", e.reduce("ReduceSum", data.x, over), total))
    square = e.op("Where", masks.mask(e, axes, opened), e.op("Mul", rest, rest), data.number(0.0))
    variance = e.op("Div", e.reduce("ReduceSum", square, over), total)
    return e.op("Div", rest, e.op("Sqrt", e.op("Add", variance, data.number(float(node.attr("epsilon", 1e-5))))))


def _scaled(node: Node, e: Emit, x: str, rank: int) -> str:
    """``x`` times the scale of each channel, plus its bias."""
    for kind, name in (("Mul", node.input(1)), ("Add", node.input(2))):
        wide = e.cast(name, FLOAT) if node.type(0) in HALVES else name
        x = e.op(kind, x, e.reshape(wide, 1, -1, *[1] * (rank - 2)))
    return x


def _ended(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """A recurrent layer, all of whose sequences end where the call does."""
    axes, turned = masks.axes.get(node.input(0), ()), bool(node.attr("layout", 0))
    if not is_endless(node.proto) or len(axes) != 3 or not masks.open_axes(node.input(0), [int(turned)]):
        return None
    axis, (first, second, _) = axes[turned], node.scope.shapes[node.input(0)]
    if len(axis) != 1 or not isinstance(axis[0], Extent):
        return None
    steps = e.cast(masks.count(e, axis[0]), TensorProto.INT32)
    lengths = e.op("Expand", steps, e.ints(first if turned else second))
    inputs = [*node.proto.input[:LENGTHS], *[""] * (LENGTHS - len(node.proto.input))]
    inputs += [lengths, *node.proto.input[LENGTHS + 1 :]]
    states, *ends = e.ops(node.kind, *inputs, outputs=len(node.proto.output), **node.attributes)
    # What stands behind the end follows what stood there before, not zeros: so experiments find which jobs make it.
    alive = e.reshape(masks.mask(e, axes, [int(turned)]), *((1, -1, 1, 1) if turned else (-1, 1, 1, 1)))
    other = e.slice(node.input(0), 2, 0, 1)
    other = e.reshape(other, *((first, second, 1, 1) if turned else (first, 1, second, 1)))
    return [e.op("Where", alive, states, other), *ends]


def _quantised(node: Node, e: Emit, masks: Masks) -> list[str] | None:
    """Quantise all of x by the scale of what counts: of the least and largest numbers of its rows, where x has rows."""
    x, axes = node.input(0), masks.axes.get(node.input(0), ())
    over, last = masks.open_axes(x), len(axes) - 1
    if not over:
        return None
    ends = [x] if last in over else [e.reduce(kind, x, [last]) for kind in ("ReduceMin", "ReduceMax")]
    mask = masks.mask(e, axes, over)
    counted = [e.op("Where", mask, end, _first(e, end, over)) for end in ends]
    both = counted[0] if len(counted) == 1 else e.concat(counted, last)
    _, scale, zero_point = e.ops(QUANTISER, both, outputs=3)
    return [e.op("QuantizeLinear", x, scale, zero_point), scale, zero_point]


def _first(e: Emit, x: str, axes: Collection[int]) -> str:
    """The part of x at the first position of every open size, which always counts."""
    for axis in axes:
        x = e.slice(x, axis, 0, 1)
    return x


WITHOUT_MASKS = frozenset({QUANTISER, "GRU", "LSTM"})
"""Operators to which a mask of the model's own says nothing."""

EDITS: Mapping[str, Edit] = {
    QUANTISER: _quantised,
    **dict.fromkeys(("GRU", "LSTM"), _ended),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _mean),
    "AveragePool": _average,
    "InstanceNormalization": _instances,
    "GroupNormalization": _groups,
    "Gather": _last,
    "Pad": _with_border,
    **dict.fromkeys(("Resize", "Upsample"), _continued),
    "MaxPool": _filled(_bordered, _least),
    "GlobalMaxPool": _filled(_along(behind_two), _least),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _filled(_along(softened), _least)),
    **dict.fromkeys(("ReduceLogSumExp", "ReduceMax"), _filled(_along(reduced), _least)),
    "ReduceMin": _filled(_along(reduced), _most),
    "ReduceProd": _filled(_along(reduced), lambda _: 1),
    "ArgMax": _filled(_along(picked), _least),
    "ArgMin": _filled(_along(picked), _most),
    "TopK": _filled(_along(picked), _searched),
}
"""Operator → what takes its place where it reads what does not count. Sums and products stay: zeros stand there."""
