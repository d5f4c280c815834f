"""Layers that the importer takes apart or whose layout it keeps: dilated windows, joint products, cropped images."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from onnx import TensorProto

from tests.fuzz.grower import Grower, NoFitError
from tests.fuzz.rare_moves import axis_of, is_input

MOST_FLOP = 2e7
"""Floating-point operations of one layer, at most. Heuristic, not measured."""


def atrous(g: Grower) -> None:
    """A convolution whose dilation and padding are about as large as its image, so that most taps read padding."""
    x = g.pick(lambda name: 3 <= g.rank(name) <= 5 and g.shape(name)[1] <= 64)
    batch, channels, *sizes = g.shape(x)
    out, groups = g.one_of((1, 8, 16, 24)), 1
    if channels % 2 == 0 and out % 2 == 0 and g.chance(0.2):
        groups = 2
    kernel = [g.one_of((1, 3, 3, 3, 2, 5)) for _ in sizes]
    dilations = [g.between(1, max(1, size)) for size in sizes]
    reach = [step * (taps - 1) for step, taps in zip(dilations, kernel, strict=True)]
    before = [reached // 2 for reached in reach]
    behind = [reached - first for reached, first in zip(reach, before, strict=True)]
    if g.chance(0.3):
        before = [max(0, first + g.between(-2, 2)) for first in before]
    strides = [g.one_of((1, 1, 1, 2)) for _ in sizes]
    padded = [size + a + b for size, a, b in zip(sizes, before, behind, strict=True)]
    if any(size <= reached for size, reached in zip(padded, reach, strict=True)):
        raise NoFitError
    if 2 * batch * math.prod(padded) * channels * out * math.prod(kernel) > MOST_FLOP:
        raise NoFitError
    weights = [g.normal(out, channels // groups, *kernel, scale=1 / math.sqrt(channels * math.prod(kernel)))]
    weights += [g.normal(out)] if g.chance(0.6) else []
    more = {"dilations": dilations, "pads": [*before, *behind], "strides": strides, "group": groups}
    convolved = g.op("Conv", x, *weights, kernel_shape=kernel, **more)
    if g.chance(0.5):
        g.op(("Relu", "Sigmoid")[g.between(0, 1)], convolved)


def taken_apart(g: Grower) -> None:
    """One product for queries, keys and values, whose columns are then taken apart in one of the ways of exporters."""
    x = g.pick(lambda name: 2 <= g.rank(name) <= 3)
    *front, depth = g.shape(x)
    heads, width, parts = g.one_of((1, 2, 4)), g.one_of((4, 8, 16)), g.one_of((2, 3, 3))
    columns = parts * heads * width
    if depth * columns > 30_000:
        raise NoFitError
    product = g.op("MatMul", x, g.normal(depth, columns, scale=depth**-0.5))
    if g.chance(0.6):
        product = g.op("Add", product, g.normal(columns))
    kind, rank = g.between(0, 2), len(front)
    if kind == 0:
        order = (parts, heads, width) if g.chance(0.6) else (heads, parts, width)
        first = order.index(parts) if parts != heads else 0
        shaped = g.op("Reshape", product, g.ints(*front, *order))
        rest = [axis for axis in range(rank + 3) if axis != rank + first]
        turned = [rest[place] for place in g.rng.permutation(len(rest))] if g.chance(0.3) else rest
        stacked = g.op("Transpose", shaped, perm=[rank + first, *turned])
        taken = [g.op("Gather", stacked, g.constant(np.int64(number)), axis=0) for number in range(parts)]
    elif kind == 1:
        g.op("Split", product, g.ints(*[heads * width] * parts), outputs=parts, axis=axis_end(g, rank))
        taken = list(g.nodes[-1].output)
    else:
        ends = [number * heads * width for number in range(parts + 1)]
        taken = [
            g.op("Slice", product, g.ints(start), g.ints(stop), g.ints(axis_end(g, rank)))
            for start, stop in pairwise(ends)
        ]
    if kind and g.chance(0.7):
        taken = [g.op("Reshape", part, g.ints(*front, heads, width)) for part in taken]
    if g.chance(0.5):
        taken[0] = g.op("Mul", taken[0], g.constant(np.float32(width**-0.5)))
    if g.chance(0.6):
        g.op(("Add", "Mul")[g.between(0, 1)], taken[0], taken[1])


def axis_end(g: Grower, rank: int) -> int:
    """The axis ``rank``, which is the last one, by either number."""
    return -1 if g.chance(0.5) else rank


def bordered(g: Grower) -> None:
    """An image of wide channels is cropped, joined or gets a border, and convolved again."""
    x = g.pick(lambda name: g.rank(name) == 4 and min(g.shape(name)[2:]) >= 4)
    channels = g.one_of((16, 16, 32, 24))
    image = _convolved(g, x, channels)
    for _ in range(g.between(1, 3)):
        kind, axis = g.between(0, 3), g.between(2, 3)
        size = g.shape(image)[axis]
        if kind == 0 and size >= 4:
            start, stop = g.between(0, 1), size - g.between(0, 2)
            image = g.op("Slice", image, g.ints(start), g.ints(stop), g.ints(axis), g.ints(g.one_of((1, 1, 2))))
        elif kind == 1:
            pads = [0, 0, *(g.between(0, 2) for _ in range(2)), 0, 0, *(g.between(0, 2) for _ in range(2))]
            mode = ("constant", "edge", "reflect")[g.between(0, 2)]
            image = g.op("Pad", image, g.ints(*pads), mode=mode)
        elif kind == 2:
            image = g.op("Concat", image, _convolved(g, x, channels) if g.chance(0.5) else image, axis=axis)
        else:
            image = g.op(("Relu", "Sigmoid", "Neg")[g.between(0, 2)], image)
    _convolved(g, image, g.one_of((16, 8, 32)))


def _convolved(g: Grower, x: str, out: int) -> str:
    batch, channels, *sizes = g.shape(x)
    window = g.one_of((1, 3))
    if 2 * batch * math.prod(sizes) * channels * out * window**2 > MOST_FLOP:
        raise NoFitError
    weight = g.normal(out, channels, window, window, scale=1 / math.sqrt(channels * window**2))
    return g.op("Conv", x, weight, kernel_shape=[window] * 2, pads=[window // 2] * 4)


def side_by_side(g: Grower) -> None:
    """Branches of one image, added: filters of several sizes, and the image itself, scaled or not."""
    x = g.pick(lambda name: g.rank(name) == 4 and 8 <= g.shape(name)[1] <= 64)
    channels = g.shape(x)[1]
    groups = g.one_of((1, 1, 2, channels)) if channels % 2 == 0 else 1
    branches = []
    for window in (3, g.one_of((1, 1, 3, 5)), 0)[: g.between(2, 3)]:
        if not window:
            scale = g.normal(channels, 1, 1)
            branches.append(g.op("Mul", x, scale) if g.chance(0.6) else x)
            continue
        weight = g.normal(
            channels, channels // groups, window, window, scale=1 / (window * math.sqrt(channels / groups))
        )
        if 2 * math.prod(g.shape(x)) * channels // groups * window**2 > MOST_FLOP:
            raise NoFitError
        bias = [g.normal(channels)] if g.chance(0.5) else []
        branches.append(g.op("Conv", x, weight, *bias, kernel_shape=[window] * 2, pads=[window // 2] * 4, group=groups))
    total = branches[0]
    for branch in branches[1:]:
        total = g.op("Sub" if g.chance(0.2) else "Add", total, branch)
    g.op("Relu", total)


def enlarged(g: Grower) -> None:
    """Images of several sizes, enlarged to the largest, joined, and convolved pixel by pixel."""
    x = g.pick(lambda name: g.rank(name) == 4 and min(g.shape(name)[2:]) >= 1 and max(g.shape(name)[2:]) <= 16)
    small = _convolved(g, x, g.one_of((32, 40)))
    mode = ("nearest", "linear")[g.between(0, 1)]
    scales = g.constant(np.array([1, 1, *(g.one_of((1, 2, 2, 3)) for _ in range(2))], np.float32))
    large = g.op("Resize", small, "", scales, mode=mode)
    other = _convolved(g, x, g.one_of((8, 16, 32)))
    parts = [large]
    if g.chance(0.6):
        parts.append(g.op("Resize", other, "", scales, mode="nearest"))
    for _ in range(g.between(0, 2)):
        parts.insert(g.between(0, len(parts)), g.op("Relu", g.op("Resize", other, "", scales, mode=mode)))
    image = g.op("Concat", *parts, axis=1) if len(parts) > 1 else large
    channels = g.shape(image)[1]
    weight = g.normal(g.one_of((8, 16, 33)), channels, 1, 1, scale=1 / math.sqrt(channels))
    bias = [g.normal(g.shape(weight)[0])] if g.chance(0.5) else []
    result = g.op("Conv", image, weight, *bias)
    if g.chance(0.5):
        g.op("Sigmoid", result)


def suppressed(g: Grower) -> None:
    """Boxes of a constant, scored by an input."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) == 3 and 2 <= g.shape(name)[2] <= 40)
    batch, _, count = g.shape(x)
    corners = g.rng.uniform(0, 4, (batch, count, 2))
    sizes = g.rng.uniform(0.5, 3, (batch, count, 2))
    centred = int(g.chance(0.3))
    boxes = np.concatenate([corners, sizes if centred else corners + sizes], -1)
    limits = [g.constant(np.int64(g.between(1, 6))), g.constant(np.float32(g.one_of((30, 50)) / 100))]
    limits += [g.constant(np.float32(0.1))] if g.chance(0.5) else []
    g.ends_in(
        "NonMaxSuppression",
        g.constant(boxes.astype(np.float32)),
        x,
        *limits,
        rank=2,
        integer=True,
        center_point_box=centred,
    )


def reduced_to_ranks(g: Grower) -> None:
    """The order of an input's elements along an axis, and the elements in that order."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) >= 1, (TensorProto.FLOAT,))
    axis = axis_of(g, x)
    size = g.shape(x)[axis]
    g.op("TopK", x, g.ints(size), outputs=2, axis=axis, largest=g.between(0, 1))
    g.op("GatherElements", x, g.nodes[-1].output[1], axis=axis)


PARTS = {
    atrous: 4,
    side_by_side: 3,
    enlarged: 3,
    taken_apart: 4,
    bordered: 4,
    suppressed: 1,
    reduced_to_ranks: 1,
}
"""Operator → how often it is tried."""
