"""Operators on values of an open size, which are computed in their largest size with the true length beside it.

What lies beyond the length has any value, so an operator for which elements beyond it matter is given others there that
do not: −∞ for a maximum, zero for a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from autotune.importer.onnx_model.scope import Array
from autotune.importer.operators.dynamic.data_sized import places_of
from autotune.importer.operators.dynamic.lengths import Counts, Length, scalar_of
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.registry import handles

ROWS = "rows"
"""The shared vector that was expanded to a tensor, one of its numbers for every row."""


@dataclass(frozen=True)
class Open:
    """A value in its largest size: its first ``length`` elements along ``axis`` count.

    Attributes:
        length: an int64 scalar.
    """

    axis: int
    length: str


Made = list[tuple[str, Open | None]]
"""Values that take the place of the outputs, and how open each is."""


class OpenNode:
    """A node of which some inputs are open, or are numbers computed from lengths.

    Args:
        opens: value → how open it is.
        counts: value → what is known of such numbers.
        shared: what several nodes may use, by what it was made of; filled here.
    """

    def __init__(
        self,
        node: Node,
        emit: Emit,
        opens: Mapping[str, Open],
        counts: Mapping[str, Counts],
        shared: dict[tuple[Any, ...], Any],
    ) -> None:
        self.node, self.e, self._counts, self.shared = node, emit, counts, shared
        self.opens = [opens.get(str(name)) for name in node.proto.input]

    def open(self, index: int) -> Open | None:
        """Return how open input ``index`` is."""
        return self.opens[index] if index < len(self.opens) else None

    def only(self, index: int) -> bool:
        """Return whether no other input than ``index`` is open."""
        return not any(size for place, size in enumerate(self.opens) if place != index)

    def numbers(self, index: int) -> list[Length] | None:
        """The numbers in input ``index``, constant or computed from lengths; None where they are neither."""
        name = self.node.input(index)
        array = self.node.array(index)
        if array is not None:
            return [Length(int(number), int(number)) for number in array.reshape(-1)]
        counts = self._counts.get(name)
        if counts is None:
            return None
        least, most, names = (column.reshape(-1) for column in (counts.least, counts.most, counts.names))

        def named(place: int) -> str:
            return str(self.share(("scalar", name, place), lambda: scalar_of(self.e, name, place, len(names))))

        return [
            Length(int(a), int(b), "" if a == b else str(known) or named(place))
            for place, (a, b, known) in enumerate(zip(least, most, names, strict=True))
        ]

    def share(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return the value that an earlier node made of ``key``, or ``make``'s."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def scalar(self, length: Length) -> str:
        """The name of a length, which a constant has too."""
        return length.name or self.e.const(np.int64(length.most))

    def within(self, size: int, length: str) -> str:
        """(size,) bool: whether an element is before ``length``."""
        numbers = self.share(("numbers", size), lambda: self.e.const(np.arange(size, dtype=np.int64)))
        return str(self.share(("within", size, length), lambda: self.e.op("Less", numbers, length)))

    def masked(self, index: int, fill: Array) -> str:
        """Input ``index``, which is open, with ``fill`` beyond its length."""
        size, shape = self.opens[index], self.node.shape(index)
        assert size is not None
        mask = self.within(shape[size.axis], size.length)
        behind = len(shape) - 1 - size.axis
        mask = self.e.reshape(mask, -1, *[1] * behind) if behind else mask
        return self.e.op("Where", mask, self.node.input(index), self.e.const(fill.astype(self.node.dtype(index))))

    def least(self, index: int, largest: bool = False) -> Array:
        """The least, or the largest, number of the type of input ``index``."""
        kind = self.node.dtype(index)
        if kind.kind == "f" or kind.kind == "V":
            return np.array(math.inf if largest else -math.inf)
        if kind.kind == "b":
            return np.array(largest)
        return np.array(np.iinfo(kind).max if largest else np.iinfo(kind).min)

    def not_negative(self, index: int, length: str) -> str:
        """Places in input ``index``, of which negative ones count from the end."""
        name, array = self.node.input(index), self.node.array(index)
        if array is not None and (array >= 0).all():
            return name
        name = self.e.cast(name, INT64)
        return self.e.op(
            "Where", self.e.op("Less", name, self.e.const(np.int64(0))), self.e.op("Add", name, length), name
        )


OpenOperator = Callable[[OpenNode], Made | None]
"""Functions that return what takes a node's place; None where its true size is needed."""


@handles("TopK")
def top_k(at: OpenNode) -> Made | None:
    """As many as the most that are asked for; the length is what is asked for."""
    node, e, size, wanted = at.node, at.e, at.open(0), at.numbers(1)
    if wanted is None or not at.only(0):
        return None
    shape = node.shape(0)
    axis = int(node.attr("axis", -1)) % len(shape)
    largest = int(node.attr("largest", 1))
    x = node.input(0)
    if size is not None and size.axis == axis:
        x, size = at.masked(0, at.least(0, largest=not largest)), None
    if not wanted[0].is_known:
        if size is not None:
            return None
        size = Open(axis, wanted[0].name)
    count = e.ints(min(wanted[0].most, shape[axis]))
    results = e.ops("TopK", x, count, outputs=2, axis=axis, largest=largest, sorted=int(node.attr("sorted", 1)))
    return [(name, size) for name in results]


@handles("Concat")
def concat(at: OpenNode) -> Made | None:
    """Along the open axis: what counts of every part, one after the other."""
    node, e = at.node, at.e
    shapes = [node.shape(index) for index in range(len(node.proto.input))]
    axis = int(node.attr("axis")) % len(shapes[0])
    if any(opened is not None and opened.axis != axis for opened in at.opens):
        same = len(set(at.opens)) == 1 and at.opens[0] is not None
        return [(e.op("Concat", *node.proto.input, axis=axis), at.opens[0])] if same else None
    sizes = [shape[axis] for shape in shapes]
    joined = e.concat([str(name) for name in node.proto.input], axis)
    if len(sizes) == 1:
        return [(e.op("Identity", joined), at.opens[0])]

    def packed() -> tuple[str, str]:
        known = e.const(np.array(sizes, np.int64))
        if any(opened is not None for opened in at.opens):
            parts = [
                e.unsqueeze(opened.length, 0) if opened else e.ints(n)
                for opened, n in zip(at.opens, sizes, strict=True)
            ]
            known = e.concat(parts, 0)
        part = e.const(np.repeat(np.arange(len(sizes)), sizes))
        within = e.const(np.concatenate([np.arange(n) for n in sizes]))
        inside = e.op("Less", within, e.op("Gather", known, part, axis=0))
        return places_of(e, e.cast(inside, TensorProto.INT32), sum(sizes))

    lengths = tuple(opened.length if opened else n for opened, n in zip(at.opens, sizes, strict=True))
    places, total = at.share(("packed", tuple(sizes), lengths), packed)
    return [(e.op("Gather", joined, places, axis=axis), Open(axis, total))]


REDUCED_TO = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceLogSumExp")),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"), 0),
    "ReduceProd": 1,
}
"""Reduction → what changes nothing in it; None for the least or largest number."""


@handles(*REDUCED_TO)
def reduction(at: OpenNode) -> Made | None:
    """Over the open axis: with elements beyond the length that change nothing."""
    node, e, size = at.node, at.e, at.open(0)
    axes = node.axes(len(node.shape(0)))
    if size is None or not axes:
        return None
    keep = bool(node.attr("keepdims", 1))
    if size.axis not in axes:
        before = 0 if keep else sum(axis < size.axis for axis in axes)
        return [(e.reduce(node.kind, node.input(0), axes, keep), Open(size.axis - before, size.length))]
    neutral = REDUCED_TO[node.kind]
    fill = at.least(0, largest=node.kind == "ReduceMin") if neutral is None else np.array(neutral)
    x = at.masked(0, fill)
    if node.kind != "ReduceMean":
        return [(e.reduce(node.kind, x, axes, keep), None)]
    others = math.prod(n for axis, n in enumerate(node.shape(0)) if axis in axes and axis != size.axis)
    least = e.op("Max", size.length, e.const(np.int64(1)))  # ONNX Runtime's mean of nothing is 0
    count = e.cast(e.op("Mul", least, e.const(np.int64(others))), node.type(0))
    return [(e.op("Div", e.reduce("ReduceSum", x, axes, keep), count), None)]


@handles("CumSum")
def cumulative(at: OpenNode) -> Made | None:
    """Along the open axis: from the end, of zeros beyond the length."""
    node, size, axis = at.node, at.open(0), at.node.array(1)
    if size is None or axis is None or not at.only(0):
        return None
    from_end = node.attr("reverse", 0) and int(axis.reshape(-1)[0]) % len(node.shape(0)) == size.axis
    x = at.masked(0, np.zeros(())) if from_end else node.input(0)
    return [(at.e.op("CumSum", x, node.input(1), **node.attributes), size)]


@handles("Softmax", "LogSoftmax")
def softmax(at: OpenNode) -> Made | None:
    """Along the open axis: of −∞ beyond the length."""
    node, e, size = at.node, at.e, at.open(0)
    axis = int(node.attr("axis", -1)) % len(node.shape(0))
    if size is None or e.opset < 13:
        return None
    x = at.masked(0, at.least(0)) if size.axis == axis else node.input(0)
    return [(e.op(node.kind, x, axis=axis), size)]


@handles("ArgMax", "ArgMin")
def extreme_place(at: OpenNode) -> Made | None:
    """Along the open axis: with the worst numbers beyond the length."""
    node, e, size = at.node, at.e, at.open(0)
    axis, keep = int(node.attr("axis", 0)) % len(node.shape(0)), int(node.attr("keepdims", 1))
    if size is None or node.attr("select_last_index", 0):
        return None
    if size.axis == axis:
        x, left = at.masked(0, at.least(0, largest=node.kind == "ArgMin")), None
    else:
        x, left = node.input(0), Open(size.axis - (not keep and axis < size.axis), size.length)
    return [(e.op(node.kind, x, axis=axis, keepdims=keep), left)]


@handles("Gather", "GatherND")
def gather(at: OpenNode) -> Made | None:
    """By places in the open axis, which then is as long as they are many, or along another."""
    node, e, data, places = at.node, at.e, at.open(0), at.open(1)
    is_nd, rank = node.kind == "GatherND", len(node.shape(1))
    along, deep = (0, node.shape(1)[-1]) if is_nd else (int(node.attr("axis", 0)) % len(node.shape(0)), 1)
    index, size, batched = node.input(1), None, int(node.attr("batch_dims", 0))
    if batched and data is not None and data == places and data.axis < batched:
        return [(e.op("GatherND", node.input(0), index, batch_dims=batched), data)]
    if batched or (is_nd and places is not None and places.axis == rank - 1):
        return None
    if data is not None and along <= data.axis < along + deep:
        if deep > 1:
            return None
        index = at.not_negative(1, data.length)
    elif data is not None:
        if places is not None:
            return None
        size = Open(data.axis if data.axis < along else data.axis - deep + rank - is_nd, data.length)
    if places is not None:
        size = Open(along + places.axis, places.length)
    return [(e.op(node.kind, node.input(0), index, **({} if is_nd else {"axis": along})), size)]


@handles("Slice")
def cut(at: OpenNode) -> Made | None:
    """Cut the open axis: a part from its start on, whose length follows."""
    node, e, size, shape = at.node, at.e, at.open(0), at.node.shape(0)
    starts, ends = at.numbers(1), at.numbers(2)
    axes = node.array(3) if node.input(3) else np.arange(len(starts or []))
    steps = node.array(4) if node.input(4) else np.ones(len(starts or []), np.int64)
    if starts is None or ends is None or axes is None or steps is None or any(at.opens[1:]):
        return None
    x, left = node.input(0), size
    for start, end, number, step in zip(starts, ends, axes.reshape(-1), steps.reshape(-1), strict=True):
        axis = int(number) % len(shape)
        if start.is_known and end.is_known and (size is None or axis != size.axis):
            x = e.slice(x, axis, start.most, end.most, int(step))
            continue
        if size is not None and (axis, start.most, int(step)) == (size.axis, -1, -1) and end.most < -shape[axis]:
            back = e.op("Sub", e.op("Sub", size.length, e.const(np.int64(1))), e.const(np.arange(shape[axis])))
            x = e.op("Gather", x, e.op("Max", back, e.const(np.int64(0))), axis=axis)
            continue
        if not start.is_known or start.most < 0 or step != 1 or (left is not None and left.axis != axis):
            return None
        if not end.is_known and end.least < 0:
            return None  # it may count from the end
        whole = Length(0, shape[axis], size.length) if size is not None else Length(shape[axis], shape[axis])
        if end.is_known and end.most >= shape[axis] and not start.most:
            continue
        last = min(end.most, shape[axis]) if end.most >= 0 else shape[axis] + end.most
        x = e.slice(x, axis, start.most, max(last, start.most))
        stop = at.scalar(end) if end.most >= 0 else e.op("Add", at.scalar(whole), at.scalar(end))
        stop = e.op("Min", stop, at.scalar(whole))
        length = e.op("Max", e.op("Sub", stop, e.const(np.int64(start.most))), e.const(np.int64(0)))
        left = Open(axis, length)
    return [(e.op("Identity", x) if x == node.input(0) else x, left)]


@handles("Split")
def split(at: OpenNode) -> Made | None:
    """Along another axis than the open one."""
    node, e, size = at.node, at.e, at.open(0)
    shape = node.shape(0)
    axis, count = int(node.attr("axis", 0)) % len(shape), len(node.proto.output)
    sizes = node.array(1) if node.input(1) else node.attr("split")
    if size is None or size.axis == axis or (node.input(1) and sizes is None):
        return None
    equal = -(-shape[axis] // count)
    parts = [equal] * (count - 1) + [shape[axis] - equal * (count - 1)] if sizes is None else [int(n) for n in sizes]
    return [(name, size) for name in e.split(node.input(0), parts, axis)]


@handles("Reshape", "Flatten")
def reshape(at: OpenNode) -> Made | None:
    """Keep what is before the open axis: then what counts stays in front."""
    node, e, size, shape = at.node, at.e, at.open(0), at.node.shape(0)
    if size is None:
        return None
    if node.kind == "Flatten":
        behind = math.prod(shape[int(node.attr("axis", 1)) % (len(shape) + 1) :])
        wanted: Sequence[Length] | None = [Length(-1, -1), Length(behind, behind)]
    else:
        wanted = at.numbers(1)
    if wanted is None:
        return None
    sizes = [shape[i] if n.most == 0 and not node.attr("allowzero", 0) else n.most for i, n in enumerate(wanted)]
    rest = math.prod(n for n in sizes if n >= 0)
    sizes = [math.prod(shape) // max(rest, 1) if n < 0 else n for n in sizes]
    before = math.prod(shape[: size.axis])
    copied = [i for i, n in enumerate(wanted) if n.most == 0 and i == size.axis and not node.attr("allowzero", 0)]
    places = (
        [i for i, n in enumerate(wanted) if not n.is_known] or copied or [i for i, n in enumerate(wanted) if n.most < 0]
    )
    axis = places[0] if len(places) == 1 else None
    if axis is None or math.prod(sizes[:axis]) != before or math.prod(sizes) != math.prod(shape):
        return None
    if before > 1 and sizes[axis] != shape[size.axis]:
        return None
    length = size.length
    if sizes[axis] != shape[size.axis]:
        length = e.op("Mul", length, e.const(np.int64(math.prod(shape[size.axis + 1 :]))))
        length = e.op("Div", length, e.const(np.int64(math.prod(sizes[axis + 1 :]))))
    return [(e.reshape(node.input(0), *sizes), Open(axis, length))]


@handles("Choose")
def choose(at: OpenNode) -> Made | None:
    """The results of both branches of an If, the shorter filled up; and the length of the one chosen."""
    node, e = at.node, at.e
    shapes = [node.known_shape(index) for index in (1, 2)]
    if shapes[0] is None or shapes[1] is None or len(shapes[0]) != len(shapes[1]):
        return None
    axes = {opened.axis for opened in at.opens[1:] if opened} | {
        axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b
    }
    condition = e.reshape(node.input(0))
    if len(axes) != 1:
        return None if axes else [(e.op("Where", condition, node.input(1), node.input(2)), None)]
    (axis,) = axes
    sizes = [shape[axis] for shape in shapes if shape is not None]
    lengths = [opened.length if opened else e.const(np.int64(n)) for opened, n in zip(at.opens[1:], sizes, strict=True)]
    length = e.op("Where", condition, *lengths)
    names = [node.input(1), node.input(2)]
    if min(sizes) == 0:
        return [(e.op("Identity", names[sizes.index(max(sizes))]), Open(axis, length))]
    for place, n in enumerate(sizes):
        if n < max(sizes):
            shape = list(shapes[place] or ())
            shape[axis] = max(sizes) - n
            more = e.op("Expand", e.const(np.zeros((), node.dtype(place + 1))), e.ints(*shape))
            names[place] = e.op("Concat", names[place], more, axis=axis)
    return [(e.op("Where", condition, *names), Open(axis, length))]


@handles("ScatterElements", "ScatterND")
def scatter(at: OpenNode) -> Made | None:
    """Write what counts; the rest goes to one place more, which is cut off."""
    node, e, places, shape = at.node, at.e, at.open(1), at.node.shape(0)
    rows = _by_rows(at)
    if rows is not None or places is None or places != at.open(2) or at.open(0) is not None:
        return rows
    index = e.cast(node.input(1), INT64)
    is_nd, at_shape, zero = node.kind == "ScatterND", node.shape(1), e.const(np.int64(0))
    last, axis = len(at_shape) - 1, 0 if is_nd else int(node.attr("axis", 0)) % len(shape)
    if (is_nd and places.axis == last) or not shape[axis]:
        return None
    inside = e.reshape(at.within(at_shape[places.axis], places.length), -1, *[1] * (last - places.axis))
    first = e.slice(index, last, 0, 1) if is_nd else index
    first = e.op("Where", e.op("Less", first, zero), e.op("Add", first, e.const(np.int64(shape[axis]))), first)
    first = e.op("Where", inside, first, e.const(np.int64(shape[axis])))
    if is_nd and at_shape[last] > 1:
        others = e.op("Where", inside, e.slice(index, last, 1, at_shape[last]), zero)
        first = e.concat([first, others], last)
    wider = e.concat([node.input(0), e.slice(node.input(0), axis, 0, 1)], axis)
    written = e.op(node.kind, wider, first, node.input(2), **node.attributes)
    return [(e.slice(written, axis, 0, shape[axis]), None)]


def _by_rows(at: OpenNode) -> Made | None:
    """Write whole rows in parallel: of every row of the result, the number of the one that takes its place."""
    node, e, data, places, rows = at.node, at.e, at.open(0), at.open(1), at.open(2)
    shape, index = node.shape(0), node.input(1)
    if node.kind == "ScatterND":
        index = e.reshape(index, -1) if node.shape(1)[1:] == (1,) else ""
    elif len(shape) > 1:
        index = str(at.shared.get((ROWS, index), ""))
    count = node.shape(1)[0]
    length = at.opens[0].length if at.opens[0] is not None else e.const(np.int64(shape[0]))
    if not index or places is None or places != rows or places.axis or (data is not None and data.axis):
        return None
    if node.attr("axis", 0) % len(shape) or node.attr("reduction", "none") != "none" or node.shape(2)[1:] != shape[1:]:
        return None
    index = e.cast(index, INT64)
    index = e.op("Where", e.op("Less", index, e.const(np.int64(0))), e.op("Add", index, length), index)
    slots = e.op("Where", at.within(count, places.length), index, e.const(np.int64(shape[0])))
    nobody = e.const(np.full(shape[0] + 1, -1, np.int64))
    by = e.op("ScatterElements", nobody, slots, e.const(np.arange(count, dtype=np.int64)), axis=0)
    by = e.slice(by, 0, 0, shape[0])
    taken = e.op("Gather", node.input(2), e.op("Max", by, e.const(np.int64(0))), axis=0)
    hit = e.reshape(e.op("GreaterOrEqual", by, e.const(np.int64(0))), -1, *[1] * (len(shape) - 1))
    return [(e.op("Where", hit, taken, node.input(0)), data)]
