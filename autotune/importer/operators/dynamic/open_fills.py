"""Operators that make values of an open size from numbers, and operators on images and regions of an open number."""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from autotune.importer.operators.dynamic.lengths import Length
from autotune.importer.operators.dynamic.open_sizes import ROWS, Made, Open, OpenNode
from autotune.importer.operators.dynamic.regions import regions_of
from autotune.importer.rewriting.registry import handles

FILLED = 4096
"""Elements up to which a tensor of one number is a constant; larger ones are expanded. Heuristic, not measured."""


@handles("Expand")
def expand(at: OpenNode) -> Made | None:
    """Expand to sizes of which one may be open."""
    node, e, size, wanted = at.node, at.e, at.open(0), at.numbers(1)
    if wanted is None:
        return None
    shape = node.shape(0)
    rank = max(len(shape), len(wanted))
    lengths = {i + rank - len(wanted): n.name for i, n in enumerate(wanted) if not n.is_known}
    if size is not None:
        lengths[size.axis + rank - len(shape)] = size.length
    if len(lengths) > 1:
        return None
    expanded = e.op("Expand", node.input(0), e.ints(*(n.most for n in wanted)))
    if math.prod(shape[1:]) == 1 and len(shape) >= len(wanted):
        at.shared[ROWS, str(node.proto.output[0])] = e.reshape(node.input(0), -1)
    return [(expanded, Open(*next(iter(lengths.items()))) if lengths else None)]


@handles("ConstantOfShape")
def constant_of_shape(at: OpenNode) -> Made | None:
    """One number, in a size that may be open."""
    wanted = at.numbers(0)
    lengths = [(i, n.name) for i, n in enumerate(wanted or []) if not n.is_known]
    if wanted is None or len(lengths) > 1:
        return None
    tensor = at.node.attr("value")
    value = np.zeros(1, np.float32) if tensor is None else numpy_helper.to_array(tensor).reshape(-1)
    most = [n.most for n in wanted]
    if math.prod(most) <= FILLED:
        filled = at.share(
            ("filled", *most, value.dtype.str, value.tobytes()), lambda: at.e.const(np.full(most, value[0]))
        )
    else:
        filled = at.e.op("Expand", at.e.const(value.reshape(())), at.e.ints(*most))
    return [(str(filled), Open(*lengths[0]) if lengths else None)]


@handles("Range")
def numbers_up_to(at: OpenNode) -> Made | None:
    """0, 1, 2 … up to a length."""
    node, e = at.node, at.e
    start, end, step = (at.numbers(index) for index in range(3))
    if start is None or end is None or step is None or (start[0].least, start[0].most, step[0].most) != (0, 0, 1):
        return None
    numbers = e.const(np.arange(end[0].most).astype(node.dtype(1)))
    return [(numbers, None if end[0].is_known else Open(0, end[0].name))]


@handles("Pad")
def pad(at: OpenNode) -> Made | None:
    """Pad by known numbers. Along one axis the length, or the number of elements behind it, may be open."""
    node, e, size, rank = at.node, at.e, at.open(0), len(at.node.shape(0))
    pads, axes = at.numbers(1), node.array(3) if node.input(3) else np.arange(rank)
    if not at.only(0) or pads is None or axes is None:
        return None
    sides = [Length(0, 0)] * (2 * rank)
    for place, side in zip((*(axes.reshape(-1) % rank), *(axes.reshape(-1) % rank + rank)), pads, strict=True):
        sides[int(place)] = side
    x, left, mode = node.input(0), size, node.attr("mode", "constant")
    moved = {place % rank for place, side in enumerate(sides) if not side.is_known}
    if size is not None and any(side.most for side in sides[size.axis :: rank]):
        moved.add(size.axis)
    if moved:
        axis = min(moved)
        begin, end = sides[axis], sides[axis + rank]
        fill = node.array(2) if node.input(2) else np.zeros(1)
        if len(moved) > 1 or (size is not None and size.axis != axis) or mode != "constant" or fill is None:
            return None
        if not begin.is_known or min(begin.least, end.least) < 0:
            return None
        if size is not None:
            x = at.masked(0, fill.reshape(()))
        length = size.length if size is not None else e.const(np.int64(node.shape(0)[axis]))
        left = Open(axis, e.op("Add", e.op("Add", length, at.scalar(begin)), at.scalar(end)))
    value = [str(name) for name in node.proto.input[2:3]]
    return [(e.op("Pad", x, e.ints(*(side.most for side in sides)), *value, mode=mode), left)]


@handles("Resize")
def resize(at: OpenNode) -> Made | None:
    """Resize other axes than the open one, whose scale is one, or which is to be as long as it is."""
    node, e, size, shape = at.node, at.e, at.open(0), at.node.shape(0)
    scales, sizes = node.array(2) if node.input(2) else None, at.numbers(3) if node.input(3) else None
    if size is None or not at.only(0) or node.attr("axes") is not None:
        return None
    if sizes is None:
        if scales is None or scales.size != len(shape) or scales.reshape(-1)[size.axis] != 1:
            return None
        wanted = node.input(2), ""
    else:
        if [n.name for n in sizes] != [size.length if axis == size.axis else "" for axis in range(len(shape))]:
            return None
        wanted = "", e.ints(*(shape[axis] if axis == size.axis else n.most for axis, n in enumerate(sizes)))
    return [(e.op("Resize", node.input(0), node.input(1), *wanted, **node.attributes), size)]


@handles("RoiAlign")
def roi_align(at: OpenNode) -> Made | None:
    """Align an open number of regions."""
    node, regions = at.node, at.open(1)
    if at.open(0) is not None or regions is None or {*at.opens[1:]} != {Open(0, regions.length)}:
        return None
    return [(regions_of(node, at.e, at.e.unsqueeze(regions.length, 0)), regions)]
