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

from autotune.importer.conversion.emit import FLOAT, INT64, Emit, Node
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.operators.dynamic.ordering import PLACES, RANKS

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
        first, counts = (e.op("Gather", each, seen, axis=0) for each in (first, counts))
        places = e.op("ScatterElements", zeros, seen, e.const(np.arange(count, dtype=np.int64)), axis=0)
        inverse = e.op("Gather", places, inverse, axis=0)
    return [e.op("Gather", x, first, axis=along), first, inverse, counts], [along, 0, -1, 0], length


def non_max_suppression(node: Node, e: Emit, wanted: int | None = None) -> Sized:
    """(n, 3): batch, class and box of every box that no better box of its class overlaps too much.

    ``Suppress`` is ours: per class (1 + kept,) the number of boxes kept, and them.
    """
    (batch, boxes, _), (_, classes, _) = node.shape(0), node.shape(1)
    most = int(node.constant(2, "max_output_boxes_per_class").reshape(-1)[0]) if node.input(2) else 0
    if most <= 0:
        raise node.refused("it keeps no box, since its max_output_boxes_per_class is 0 or left out")
    kept = min(most, boxes, boxes if wanted is None else max(wanted, 1))
    overlap = float(node.constant(3, "iou_threshold").reshape(-1)[0]) if node.input(3) else 0.0
    least = float(node.constant(4, "score_threshold").reshape(-1)[0]) if node.input(4) else -math.inf
    corners = _corners(e, node.input(0), bool(node.attr("center_point_box", 0)))
    made = e.op("Suppress", corners, node.input(1), domain=OWN_DOMAIN, kept=kept, overlap=overlap, least=least)
    e.declare(made, (batch, classes, 1 + kept), INT64)
    inside = e.op("Less", e.const(np.arange(kept, dtype=np.int64)), e.slice(made, 2, 0, 1))
    inside = e.reshape(e.cast(inside, TensorProto.INT32), -1)
    places, length = places_of(e, inside, batch * classes * kept)
    box = e.op("Gather", e.reshape(e.slice(made, 2, 1, 1 + kept), -1), places, axis=0)
    where = _coordinates(e, places, (batch, classes, kept), 1)
    return [e.concat([e.slice(where, 1, 0, 2), e.unsqueeze(box, 1)], 1)], [0], length


DATA_SIZED: Mapping[str, Callable[[Node, Emit, int | None], Sized]] = {
    "NonZero": non_zero,
    "Compress": compress,
    "Unique": unique,
    "NonMaxSuppression": non_max_suppression,
}


def places_of(e: Emit, mask: str, count: int) -> tuple[str, str]:
    """The places of the ones in ``mask``, (count,) int32, in order, and how many there are.

    ``Places`` is ours: (1 + count,) their number and them; what stands behind the last is a place too.
    """
    made = e.op(PLACES, mask, domain=OWN_DOMAIN)
    e.declare(made, (1 + count,), INT64)
    return e.slice(made, 0, 1, 1 + count), e.squeeze(e.slice(made, 0, 0, 1), 0)


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
