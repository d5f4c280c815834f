"""Results whose size depends on data, in their largest size: what is beyond the true length is of no meaning.

Each function gives the node's outputs in their largest size, and of each the axis along which it is cut to the length
that is computed beside it; -1 for one of a fixed size. It is told how many of the first elements of the first output
are read, None for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto

from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.operators.control import loop_until
from autotune.importer.operators.dynamic.ordering import PLACES, RANKS
from autotune.importer.operators.dynamic.suppression import LOWEST
from autotune.importer.rewriting.emit import FLOAT, INT64, Emit, Node

Sized = tuple[list[str], list[int], str]
"""Outputs ("" for those not asked for), the axis along which each is cut, and the length: an int64 scalar."""

MOST_PAIRS = 1 << 26
"""Elements of all pairs of slices that ``Unique`` compares. Heuristic, not measured."""


def non_zero(node: Node, e: Emit, _wanted: int | None = None) -> Sized:
    """(rank, n): the places of what is not zero, in order."""
    shape = node.shape(0)
    mask = e.cast(e.cast(node.input(0), TensorProto.BOOL), TensorProto.INT32)
    places, length = places_of(e, e.reshape(mask, -1), math.prod(shape))
    return [_coordinates(e, places, shape, 0)], [1], length


def compress(node: Node, e: Emit, _wanted: int | None = None) -> Sized:
    """The slices along an axis, or elements, whose condition is true."""
    axis = node.attr("axis")
    x = node.input(0) if axis is not None else e.reshape(node.input(0), -1)
    places, length = places_of(e, e.cast(node.input(1), TensorProto.INT32), node.shape(1)[0])
    along = 0 if axis is None else int(axis) % len(node.shape(0))
    return [e.op("Gather", x, places, axis=along)], [along], length


def unique(node: Node, e: Emit, _wanted: int | None = None) -> Sized:
    """Distinct elements, or slices along an axis: sorted, and each group's first place, places and size.

    Elements that are equal stand side by side once they are sorted; a group begins where one differs from the one
    before.
    """
    shape, axis = node.shape(0), node.attr("axis")
    along = 0 if axis is None else int(axis) % len(shape)
    x = node.input(0) if axis is not None else e.reshape(node.input(0), -1)
    shape = shape if axis is not None else (math.prod(shape),)
    count = shape[along]
    short = node.type(0) in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    rows = e.reshape(e.transpose(x, along, *(i for i in range(len(shape)) if i != along)), count, -1)
    rows = e.cast(rows, FLOAT) if short else rows
    order = (
        _ascending(e, e.reshape(rows, -1), count) if len(shape) == 1 else _lexicographic(node, e, rows, shape, along)
    )
    ordered = e.op("Gather", rows, order, axis=0)
    begins = e.const(np.ones(1, np.int64))
    if count > 1:
        differs = e.op("Equal", e.slice(ordered, 0, 1, count), e.slice(ordered, 0, 0, count - 1))
        differs = e.cast(e.op("Not", differs), INT64)
        begins = e.concat([begins, e.reduce("ReduceMax", differs, [1], keepdims=False)], 0)
    starts, length = places_of(e, e.cast(begins, TensorProto.INT32), count)
    group = e.op("Sub", e.op("CumSum", begins, e.const(np.int64(0))), e.const(np.int64(1)))
    first = e.op("Gather", order, starts, axis=0)
    ends = e.concat([*([e.slice(starts, 0, 1, count)] if count > 1 else []), e.ints(count)], 0)
    last = e.op("Equal", e.const(np.arange(1, count + 1)), length)
    counts = e.op("Sub", e.op("Where", last, e.const(np.int64(count)), ends), starts)
    zeros = e.const(np.zeros(count, np.int64))
    inverse = e.op("ScatterElements", zeros, order, group, axis=0)
    if not node.attr("sorted", 1):
        beyond = e.op("GreaterOrEqual", e.const(np.arange(count, dtype=np.int64)), length)
        seen = _ascending(e, e.op("Where", beyond, e.const(np.int64(count)), first), count)
        first, counts = (e.op("Gather", values, seen, axis=0) for values in (first, counts))
        places = e.op("ScatterElements", zeros, seen, e.const(np.arange(count, dtype=np.int64)), axis=0)
        inverse = e.op("Gather", places, inverse, axis=0)
    return [e.op("Gather", x, first, axis=along), first, inverse, counts], [along, 0, -1, 0], length


def non_max_suppression(node: Node, e: Emit, wanted: int | None = None) -> Sized:
    """(n, 3): batch, class and box of every box that no better box of its class overlaps too much.

    ``Suppress`` is ours: per class (1 + kept,) the number of boxes kept, and them.
    """
    (batch, boxes, _), (_, classes, _) = node.shape(0), node.shape(1)
    bound = node.array(2) if node.input(2) else np.zeros(1)
    most = boxes if bound is None else int(np.clip(bound.reshape(-1)[0], 0, boxes))
    if most == 0:
        return [e.const(np.zeros((0, 3), np.int64))], [-1], ""
    kept = min(most, boxes if wanted is None else max(wanted, 1))

    def limit(index: int, fallback: float) -> str:
        return e.reshape(node.input(index), 1) if node.input(index) else e.const(np.array([fallback], np.float32))

    count = e.op("Clip", e.reshape(node.input(2), 1), e.const(np.int64(0)), e.const(np.int64(kept)))
    least = e.op("Max", limit(4, LOWEST), e.const(np.float32(LOWEST)))
    limits = e.concat([limit(3, 0.0), least, e.cast(count, FLOAT)], 0)
    corners = _corners(e, node.input(0), bool(node.attr("center_point_box", 0)))
    suppressed = e.op("Suppress", corners, node.input(1), limits, domain=OWN_DOMAIN, kept=kept)
    e.declare(suppressed, (batch, classes, 1 + kept), INT64)
    inside = e.op("Less", e.const(np.arange(kept, dtype=np.int64)), e.slice(suppressed, 2, 0, 1))
    inside = e.reshape(e.cast(inside, TensorProto.INT32), -1)
    places, length = places_of(e, inside, batch * classes * kept)
    box = e.op("Gather", e.reshape(e.slice(suppressed, 2, 1, 1 + kept), -1), places, axis=0)
    where = _coordinates(e, places, (batch, classes, kept), 1)
    return [e.concat([e.slice(where, 1, 0, 2), e.unsqueeze(box, 1)], 1)], [0], length


def top_k(node: Node, e: Emit, _wanted: int | None = None) -> Sized:
    """All elements in order, of which the first k count; k is computed."""
    shape = node.shape(0)
    axis = int(node.attr("axis", -1)) % len(shape)
    length = e.op("Min", e.cast(e.reshape(node.input(1)), INT64), e.const(np.int64(shape[axis])))
    largest = int(node.attr("largest", 1))
    results = e.ops("TopK", node.input(0), e.ints(shape[axis]), outputs=2, axis=axis, largest=largest)
    return results, [axis, axis], length


def cut_out(node: Node, e: Emit, _wanted: int | None = None) -> Sized:
    """A slice between places that are computed: all that can follow its start, cut to its end.

    Negative places count from the end, and all are held within the axis, as ONNX has it.
    """
    x, shape, open_axis = node.input(0), node.shape(0), -1
    bounds = [_scalars(node, e, index) for index in (1, 2)]
    axes = node.array(3) if node.input(3) else np.arange(len(bounds[0]))
    steps = node.array(4) if node.input(4) else np.ones(len(bounds[0]), np.int64)
    if axes is None or steps is None:
        raise node.refused("its axes or steps are computed from the inputs; they must be constant")
    length = ""
    for start, stop, axis, step in zip(*bounds, axes.reshape(-1), steps.reshape(-1), strict=True):
        along = int(axis) % len(shape)
        if not isinstance(start, str) and not isinstance(stop, str):
            x = e.slice(x, along, start, stop, int(step))
            continue
        if length or step != 1:
            raise node.refused("it cuts several axes, or not every element, between places that are computed")
        size = shape[along]
        first, last = (_within(e, place, size) for place in (start, stop))
        places = e.op("Add", e.const(np.arange(size, dtype=np.int64)), first)
        x = e.op("Gather", x, e.op("Min", places, e.const(np.int64(size - 1))), axis=along)
        length = e.op("Max", e.op("Sub", last, first), e.const(np.int64(0)))
        open_axis = along
    return [x], [open_axis], length


def _scalars(node: Node, e: Emit, index: int) -> list[int | str]:
    """The numbers in an input: known, or the names of scalars."""
    array = node.array(index)
    if array is not None:
        return [int(number) for number in array.reshape(-1)]
    wide = e.cast(node.input(index), INT64)
    return [e.op("Gather", wide, e.const(np.int64(place)), axis=0) for place in range(node.shape(index)[0])]


def _within(e: Emit, place: int | str, size: int) -> str:
    """A place, which may count from the end, within an axis: 0 to ``size``."""
    if isinstance(place, int):
        return e.const(np.int64(np.clip(place + size if place < 0 else place, 0, size)))
    zero, most = e.const(np.int64(0)), e.const(np.int64(size))
    counted = e.op("Where", e.op("Less", place, zero), e.op("Add", place, most), place)
    return e.op("Clip", counted, zero, most)


DATA_SIZED: Mapping[str, Callable[[Node, Emit, int | None], Sized]] = {
    "NonZero": non_zero,
    "Compress": compress,
    "Unique": unique,
    "NonMaxSuppression": non_max_suppression,
    "Loop": loop_until,
    "Slice": cut_out,
    "TopK": top_k,
}

LIMITS = {"Slice": slice(1, 3), "TopK": slice(1, 2)}
"""Operator → the inputs that must be computed for its results to have such a size."""


def places_of(e: Emit, mask: str, count: int) -> tuple[str, str]:
    """The places of the ones in ``mask``, (count,) int32, in order, and how many there are.

    ``Places`` is ours: (1 + count,) their number and them; what stands behind the last is a place too.
    """
    packed = e.op(PLACES, mask, domain=OWN_DOMAIN)
    e.declare(packed, (1 + count,), INT64)
    return e.slice(packed, 0, 1, 1 + count), e.squeeze(e.slice(packed, 0, 0, 1), 0)


def _coordinates(e: Emit, places: str, shape: tuple[int, ...], axis: int) -> str:
    """Places in a flat tensor of ``shape`` → its coordinates, along a new ``axis``."""
    if len(shape) == 1:
        return e.unsqueeze(places, axis)
    stride, parts = math.prod(shape), []
    for size in shape:
        stride //= max(size, 1)
        whole = e.op("Div", places, e.const(np.int64(max(stride, 1))))
        parts.append(e.unsqueeze(e.op("Mod", whole, e.const(np.int64(max(size, 1)))), axis))
    return e.concat(parts, axis)


def _ascending(e: Emit, x: str, count: int) -> str:
    """The order that sorts a vector."""
    order = e.op(RANKS, x, domain=OWN_DOMAIN, count=count, largest=0)
    e.declare(order, (count,), INT64)
    return order


def _lexicographic(node: Node, e: Emit, rows: str, shape: tuple[int, ...], along: int) -> str:
    """The order that sorts ``rows`` by their first elements that differ; equal rows stay in order."""
    count, width = shape[along], math.prod(shape) // max(shape[along], 1)
    if count * count * width > MOST_PAIRS:
        raise node.refused(f"{count} slices of {width} elements; all pairs are compared, at most {MOST_PAIRS} elements")
    one, other = e.unsqueeze(rows, 1), e.unsqueeze(rows, 0)
    differs = e.cast(e.op("Not", e.op("Equal", one, other)), TensorProto.INT32)
    at = e.op("ArgMax", differs, axis=2, keepdims=1)
    less = e.op("GatherElements", e.cast(e.op("Less", one, other), INT64), at, axis=2)
    before = e.reduce("ReduceSum", e.squeeze(less, 2), [0], keepdims=False)
    same = e.op("Sub", e.const(np.int64(1)), e.cast(e.reduce("ReduceMax", differs, [2], keepdims=False), INT64))
    earlier = e.op("Mul", same, e.const(np.tril(np.ones((count, count), np.int64), -1)))
    rank = e.op("Add", before, e.reduce("ReduceSum", earlier, [1], keepdims=False))
    numbers = e.const(np.arange(count, dtype=np.int64))
    return e.op("ScatterElements", e.const(np.zeros(count, np.int64)), rank, numbers, axis=0)


def _corners(e: Emit, boxes: str, centred: bool) -> str:
    """(y1, x1, y2, x2) with the smaller first; two opposite corners come in any order, or centre, width and height."""
    if centred:
        half = e.op("Mul", e.slice(boxes, 2, 2, 4), e.const(np.float32(0.5)))
        centre = e.slice(boxes, 2, 0, 2)
        return e.concat([e.op("Sub", centre, half), e.op("Add", centre, half)], 2)
    one, other = e.slice(boxes, 2, 0, 2), e.slice(boxes, 2, 2, 4)
    return e.concat([e.op("Min", one, other), e.op("Max", one, other)], 2)
