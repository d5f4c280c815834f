"""Operators that move, pick, order and scatter elements, with attributes that exporters seldom write."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tests.fuzz.grower import Grower, NoFitError

FLOAT, INT, BOOL, BYTE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8
ANY = (FLOAT, INT, TensorProto.INT32, BYTE, BOOL)


def since(g: Grower, opset: int) -> None:
    """Refuse an older graph.

    Raises:
        NoFitError: if the operator does not exist in it.
    """
    if g.opset < opset:
        raise NoFitError


def before(g: Grower, opset: int) -> None:
    """Refuse a newer graph.

    Raises:
        NoFitError: if ONNX Runtime does not run the operator in it.
    """
    if g.opset >= opset:
        raise NoFitError


def is_input(name: str) -> bool:
    """Whether a value is exact: an operator that jumps may read it."""
    return name.startswith("in")


def axis_of(g: Grower, x: str) -> int:
    """Any axis, at times counted from the end."""
    axis = g.between(0, g.rank(x) - 1)
    return axis - g.rank(x) if g.chance(0.4) else axis


def indices(g: Grower, size: int, shape: tuple[int, ...]) -> str:
    """Valid indices of an axis of ``size``, of either integer type, at times negative."""
    low = -size if g.chance(0.5) else 0
    kind = np.int32 if g.chance(0.3) else np.int64
    return g.constant(g.rng.integers(low, size, shape).astype(kind))


def gather_elements(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1, ANY)
    axis = axis_of(g, x)
    shape = [g.between(1, size) for size in g.shape(x)]
    shape[axis] = g.between(1, 6)
    g.op("GatherElements", x, indices(g, g.shape(x)[axis], tuple(shape)), axis=axis)


def gather_nd(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1, ANY)
    shape = g.shape(x)
    batch = g.between(0, len(shape) - 1) if g.chance(0.4) else 0
    depth = g.between(1, len(shape) - batch)
    front = (*shape[:batch], *(g.between(1, 3) for _ in range(g.between(0, 2))))
    low = 0 if g.chance(0.5) else -1
    columns = [g.rng.integers(low * size, size, front) for size in shape[batch : batch + depth]]
    g.op("GatherND", x, g.constant(np.stack(columns, -1).astype(np.int64)), batch_dims=batch)


def _reduction(g: Grower) -> dict[str, str]:
    """The attribute that combines elements scattered to one place; nothing where they replace it."""
    kinds = ["none", "add", "mul", *(["max", "min"] if g.opset >= 18 else [])]
    kind = kinds[g.between(0, len(kinds) - 1)]
    return {} if kind == "none" or g.opset < 16 else {"reduction": kind}


def _updates(g: Grower, x: str, shape: tuple[int, ...]) -> str:
    if g.dtype(x) == FLOAT:
        return g.normal(*shape)
    return g.constant(g.rng.integers(-3, 4, shape).astype(np.int64))


def scatter_elements(g: Grower) -> None:
    """Places are distinct unless they are reduced, or the result would depend on an order."""
    x = g.pick(lambda name: g.rank(name) >= 1, (FLOAT, INT))
    axis, more = axis_of(g, x), _reduction(g)
    shape = [g.between(1, size) for size in g.shape(x)]
    size = g.shape(x)[axis]
    if more:
        places = g.rng.integers(-size, size, shape)
    else:
        places = np.argsort(g.rng.random([*shape[: axis % len(shape)], size, *shape[axis % len(shape) + 1 :]]), axis)
        places = np.take(places, range(shape[axis]), axis)
    g.op("ScatterElements", x, g.constant(places.astype(np.int64)), _updates(g, x, tuple(shape)), axis=axis, **more)


def scatter_nd(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1, (FLOAT, INT))
    shape, more = g.shape(x), _reduction(g)
    depth = g.between(1, len(shape))
    total = math.prod(shape[:depth])
    count = g.between(1, min(total, 5))
    flat = g.rng.integers(0, total, count) if more else g.rng.permutation(total)[:count]
    places = np.stack(np.unravel_index(flat, shape[:depth]), -1)
    if g.chance(0.3):
        places = places - np.array(shape[:depth])
    updates = _updates(g, x, (count, *shape[depth:]))
    g.op("ScatterND", x, g.constant(places.astype(np.int64)), updates, **more)


def top_k(g: Grower) -> None:
    x = g.pick(lambda name: is_input(name) and g.rank(name) >= 1)
    axis = axis_of(g, x)
    count = g.between(1, g.shape(x)[axis])
    g.op("TopK", x, g.ints(count), outputs=2, axis=axis, largest=g.between(0, 1))


def one_hot(g: Grower) -> None:
    """One-hot vectors of an input's integers, some of which lie outside."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) <= 3, (INT,))
    values = g.constant(np.array([-0.5, 2.0], np.float32) if g.chance(0.6) else np.array([0, 1], np.int64))
    g.op("OneHot", x, g.constant(np.int64(g.one_of((3, 5, 9)))), values, axis=g.between(-g.rank(x) - 1, g.rank(x)))


def reverse_sequence(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 2, (FLOAT, INT))
    time = g.between(0, 1)
    length, batch = g.shape(x)[time], g.shape(x)[1 - time]
    lengths = g.constant(g.rng.integers(1, length + 1, batch).astype(np.int64))
    g.op("ReverseSequence", x, lengths, time_axis=time, batch_axis=1 - time)


def compress(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1, ANY)
    axis = axis_of(g, x)
    kept = g.rng.random(g.between(1, g.shape(x)[axis])) < 0.7
    kept[0] = True
    g.op("Compress", x, g.constant(kept), axis=axis)


def crop_or_pad(g: Grower) -> None:
    since(g, 18)
    x = g.pick(lambda name: g.rank(name) >= 1, (FLOAT, INT))
    axes = sorted(int(axis) for axis in g.rng.permutation(g.rank(x))[: g.between(1, g.rank(x))])
    g.op("CenterCropPad", x, g.ints(*(g.between(1, g.shape(x)[axis] + 3) for axis in axes)), axes=axes)


def columns_to_image(g: Grower) -> None:
    since(g, 18)
    block, image = (g.between(1, 3), g.between(1, 3)), (g.between(3, 7), g.between(3, 7))
    pads, strides = [g.between(0, 1) for _ in range(4)], [g.between(1, 2), g.between(1, 2)]
    steps = [(size + pads[axis] + pads[axis + 2] - block[axis]) // strides[axis] + 1 for axis, size in enumerate(image)]
    x = g.pick()
    batch, channels, columns = g.between(1, 2), g.between(1, 3), math.prod(steps)
    wanted = batch * channels * math.prod(block) * columns
    repeated = -(-wanted // max(1, math.prod(g.shape(x))))
    if repeated > 50:
        raise NoFitError
    flat = g.op("Tile", g.op("Reshape", x, g.ints(-1)), g.ints(repeated))
    cut = g.op("Slice", flat, g.ints(0), g.ints(wanted), g.ints(0))
    shaped = g.op("Reshape", cut, g.ints(batch, channels * math.prod(block), columns))
    g.op("Col2Im", shaped, g.ints(*image), g.ints(*block), pads=pads, strides=strides)


def padded_axes(g: Grower) -> None:
    """Some axes, named from either end, in any mode; one end may be cropped."""
    since(g, 18)
    x = g.pick(lambda name: g.rank(name) >= 1, (FLOAT, INT))
    modes = ("constant", "edge", "reflect", *(("wrap",) if g.opset >= 19 else ()))
    mode = modes[g.between(0, len(modes) - 1)]
    axes = [int(axis) for axis in g.rng.permutation(g.rank(x))[: g.between(1, g.rank(x))]]
    reach = [min(3, g.shape(x)[axis] - 1) for axis in axes]
    pads = [g.between(-1 if most > 1 else 0, most) for most in (*reach, *reach)]
    named = g.ints(*(axis - g.rank(x) if g.chance(0.3) else axis for axis in axes))
    g.op("Pad", x, g.ints(*pads), "", named, mode=mode)


def equal_parts(g: Grower) -> None:
    since(g, 18)
    x = g.pick(lambda name: g.rank(name) >= 1 and max(g.shape(name)) > 1, (FLOAT, INT))
    axis = g.one_of([axis for axis, size in enumerate(g.shape(x)) if size > 1])
    count = g.between(2, min(4, g.shape(x)[axis]))
    width = -(-g.shape(x)[axis] // count)
    if width * (count - 1) >= g.shape(x)[axis]:
        raise NoFitError
    g.op("Split", x, outputs=count, axis=axis, num_outputs=count)


def triangle(g: Grower) -> None:
    """Any diagonal, of integers too."""
    x = g.pick(lambda name: g.rank(name) >= 2, (FLOAT, INT, BOOL))
    g.op("Trilu", x, g.constant(np.int64(g.between(-4, 4))), upper=g.between(0, 1))


def gather_computed(g: Grower) -> None:
    """Indices that depend on an input."""
    x = g.pick(lambda name: g.rank(name) >= 1, ANY)
    axis = axis_of(g, x)
    numbers = g.pick(lambda name: is_input(name) and g.rank(name) <= 2, (INT,))
    places = g.op("Mod", numbers, g.constant(np.int64(g.shape(x)[axis])))
    g.op("Gather", x, places, axis=axis)


def sorted_rows(g: Grower) -> None:
    """Rows in the order of their first number: TopK's indices, and a gather by them."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) == 2)
    heads = g.op("Gather", x, g.constant(np.int64(0)), axis=1)
    g.op("TopK", heads, g.ints(g.shape(x)[0]), outputs=2, largest=g.between(0, 1))
    order = g.nodes[-1].output[1]
    g.op("Gather", g.pick(lambda name: g.rank(name) >= 1 and g.shape(name)[0] == g.shape(x)[0]), order)


def parts_of_a_sequence(g: Grower) -> None:
    """A sequence of slices, one of which is taken, removed or replaced, and what is left."""
    x = g.pick(lambda name: g.rank(name) >= 1 and max(g.shape(name)) > 1, (FLOAT, INT))
    axis = g.one_of([axis for axis, size in enumerate(g.shape(x)) if size > 1])
    keep = g.between(0, 1)
    parts = g.open("SplitToSequence", x, axis=axis, keepdims=keep)
    size, dtype, more = g.shape(x)[axis], g.dtype(x), {} if keep else {"new_axis": 1}
    place = g.constant(np.int64(g.between(-size, size - 1)))
    kind = g.between(0, 2)
    if kind == 0:
        g.ends_in("SequenceAt", parts, place, rank=g.rank(x) - 1 + keep, integer=dtype == INT)
        return
    if kind == 1:
        parts = g.open("SequenceErase", parts, place)
    else:
        parts = g.open("SequenceInsert", parts, g.open("SequenceAt", parts, place), place)
    g.ends_in("ConcatFromSequence", parts, rank=g.rank(x), integer=dtype == INT, axis=axis, **more)


MOVES = {
    gather_elements: 2,
    gather_nd: 2,
    scatter_elements: 2,
    scatter_nd: 2,
    top_k: 2,
    one_hot: 1,
    reverse_sequence: 1,
    compress: 1,
    crop_or_pad: 1,
    columns_to_image: 1,
    padded_axes: 2,
    equal_parts: 1,
    triangle: 1,
    gather_computed: 2,
    sorted_rows: 1,
    parts_of_a_sequence: 1,
}
"""Operator → how often it is tried."""
