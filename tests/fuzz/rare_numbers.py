"""Arithmetic of integers, bits, bytes and booleans, casts between them, and operators that jump, all of inputs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.grower import Grower, NoFitError
from tests.fuzz.rare_moves import BOOL, BYTE, FLOAT, INT, axis_of, indices, is_input, since

INT32, SIGNED = TensorProto.INT32, TensorProto.INT8
WHOLE = (INT, INT32, INT, INT32, BYTE, SIGNED)
WIDE = (INT, INT32)


def _like(g: Grower, x: str, low: int, high: int) -> str:
    """A constant of the same element type that broadcasts to ``x``, or another value of its shape."""
    same = [name for name in g.values if name != x and g.dtype(name) == g.dtype(x) and g.shape(name) == g.shape(x)]
    if same and low < 0 and g.chance(0.4):
        return same[g.between(0, len(same) - 1)]
    kind = helper.tensor_dtype_to_np_dtype(g.dtype(x))
    shape = tuple(size if g.chance(0.7) else 1 for size in g.shape(x)[g.between(0, g.rank(x)) :])
    return g.constant(g.rng.integers(max(low, int(np.iinfo(kind).min)), high + 1, shape).astype(kind))


def arithmetic(g: Grower) -> None:
    """Results wrap around in the type."""
    x = g.pick(kinds=WHOLE)
    kind = ("Add", "Sub", "Mul", "Max", "Min")[g.between(0, 4)]
    if kind in ("Max", "Min") and g.dtype(x) in (BYTE, SIGNED):
        kind = "Add"
    y = _like(g, x, -9, 9)
    g.op(kind, *((x, y) if g.chance(0.5) else (y, x)))


def division(g: Grower) -> None:
    """By positive and negative constants; the rest has either sign's rule."""
    x = g.pick(kinds=WIDE)
    kind = helper.tensor_dtype_to_np_dtype(g.dtype(x))
    shape = g.shape(x)[g.between(0, g.rank(x)) :]
    by = g.constant((g.rng.integers(1, 8, shape) * g.rng.choice((-1, 1), shape)).astype(kind))
    if g.chance(0.5):
        g.op("Div", x, by)
    else:
        g.op("Mod", x, by, fmod=g.between(0, 1))


def rest(g: Grower) -> None:
    """Mod of floats is C's."""
    x = g.pick(is_input)
    g.op("Mod", x, g.constant(np.float32(g.one_of((2, 3, -2)))), fmod=1)


def bits(g: Grower) -> None:
    since(g, 18)
    x = g.pick(kinds=WHOLE)
    kind = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")[g.between(0, 3)]
    g.op(kind, x, *([] if kind == "BitwiseNot" else [_like(g, x, -9, 99)]))


def shift(g: Grower) -> None:
    x = g.pick(kinds=(BYTE,))
    g.op("BitShift", x, _like(g, x, 0, 7), direction=("LEFT", "RIGHT")[g.between(0, 1)])


def sign(g: Grower) -> None:
    x = g.pick(kinds=(INT, INT32, SIGNED))
    g.op(("Abs", "Neg", "Sign")[g.between(0, 2)], x)


def clipped(g: Grower) -> None:
    x = g.pick(kinds=(INT, INT32, BYTE, SIGNED))
    kind = helper.tensor_dtype_to_np_dtype(g.dtype(x))
    low, high = g.constant(np.array(2, kind)), g.constant(np.array(11, kind))
    g.op("Clip", x, *((low, high), (low,), ("", high))[g.between(0, 2)])


def power(g: Grower) -> None:
    x = g.op("Mod", g.pick(kinds=WIDE), g.constant(np.array(7), np.int64)) if g.chance(0.3) else g.pick(kinds=WIDE)
    exponent = g.constant(np.int64(g.between(0, 3))) if g.chance(0.5) else g.constant(np.float32(g.between(1, 3)))
    g.op("Pow", x, exponent)


def compared(g: Grower) -> None:
    """Two comparisons of inputs, joined, and what is chosen by them."""
    x = g.pick(is_input, (FLOAT, INT, INT32))
    other = g.normal(*g.shape(x)) if g.dtype(x) == FLOAT else _like(g, x, -9, 9)
    first = g.op(("Greater", "LessOrEqual", "Equal", "Less")[g.between(0, 3)], x, other)
    zero = g.constant(np.array(0, helper.tensor_dtype_to_np_dtype(g.dtype(x))))
    second = g.op("Less", x, zero)
    mask = g.op(("And", "Or", "Xor")[g.between(0, 2)], first, second)
    if g.chance(0.5):
        mask = g.op("Not", mask)
    if g.chance(0.6):
        g.op("Where", mask, *((x, zero) if g.chance(0.5) else (zero, x)))


def reduced(g: Grower) -> None:
    """Along some axes, all or none."""
    x = g.pick(lambda name: g.rank(name) >= 1, WIDE)
    kinds = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare")
    kind = kinds[g.between(0, len(kinds) - 1)]
    if kind in ("ReduceL1", "ReduceSumSquare", "ReduceProd"):  # ONNX Runtime does not wrap around
        most = 2 if kind == "ReduceProd" else 9
        x = g.op("Mod", x, g.constant(np.array(most, helper.tensor_dtype_to_np_dtype(g.dtype(x)))))
    axes = [axis for axis in range(g.rank(x)) if g.chance(0.5)] or [axis_of(g, x)]
    extra, attributes = g.axes(axes, g.opset >= (13 if kind == "ReduceSum" else 18))
    if g.chance(0.2):
        extra, attributes = [], ({"noop_with_empty_axes": 1} if kind == "ReduceSum" or g.opset >= 18 else {})
    g.op(kind, x, *extra, keepdims=g.between(0, 1), **attributes)


def any_of(g: Grower) -> None:
    """Reductions of booleans, and of bytes."""
    since(g, 20)
    x = g.pick(lambda name: g.rank(name) >= 1, (BOOL, BYTE))
    g.op(("ReduceMax", "ReduceMin")[g.between(0, 1)], x, g.ints(axis_of(g, x)), keepdims=g.between(0, 1))


def largest(g: Grower) -> None:
    """Among integers there are equal ones."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) >= 1, (INT32, BYTE, INT))
    kind = ("ArgMax", "ArgMin")[g.between(0, 1)]
    g.op(kind, x, axis=axis_of(g, x), keepdims=g.between(0, 1), select_last_index=g.between(0, 1))


def jump(g: Grower) -> None:
    x = g.pick(lambda name: is_input(name) and g.rank(name) >= 1)
    kind = ("Hardmax", "Shrink", "ThresholdedRelu", "IsNaN", "IsInf", "Sign")[g.between(0, 5)]
    more: dict[str, object] = {}
    if kind == "Hardmax":
        more["axis"] = axis_of(g, x)
    elif kind == "Shrink":
        more = {"lambd": 0.7, "bias": g.between(0, 1) * 0.4}
    elif kind == "ThresholdedRelu":
        more["alpha"] = 0.3
    g.op(kind, x, **more)


def cast(g: Grower) -> None:
    """Floats only where they are exact."""
    x = g.pick(lambda name: is_input(name) or g.dtype(name) != FLOAT, (FLOAT, *WHOLE, BOOL))
    kinds = (FLOAT, INT, INT32, BOOL) if g.dtype(x) == FLOAT else (FLOAT, FLOAT, INT, INT32, BYTE, SIGNED, BOOL)
    to = g.one_of(kinds)
    if g.chance(0.2) and g.opset >= 15:
        others = [name for name in g.values if g.dtype(name) == to]
        if others:
            g.op("CastLike", x, others[0])
            return
    g.op("Cast", x, to=to)


def whole_product(g: Grower) -> None:
    x = g.pick(lambda name: 1 <= g.rank(name) <= 4, WIDE)
    kind = helper.tensor_dtype_to_np_dtype(g.dtype(x))
    depth = g.shape(x)[-1]
    g.op("MatMul", x, g.constant(g.rng.integers(-9, 10, (depth, g.one_of((1, 3, 8, 17)))).astype(kind)))


def byte_product(g: Grower) -> None:
    """MatMulInteger with zero points of either shape."""
    x = g.pick(lambda name: 2 <= g.rank(name) <= 3, (BYTE, SIGNED))
    depth, wide = g.shape(x)[-1], g.one_of((1, 3, 8, 16, 17))
    kind, own = (np.int8 if g.chance(0.6) else np.uint8), helper.tensor_dtype_to_np_dtype(g.dtype(x))
    low = int(np.iinfo(kind).min)
    weights = g.constant(g.rng.integers(low, low + 256, (depth, wide)).astype(kind))
    zeros: list[str] = []
    if g.chance(0.6):
        zeros = [g.constant(np.array(g.between(0, 99), own))]
        points = g.rng.integers(0, 99, wide) if g.chance(0.4) else np.array(g.between(0, 99))
        zeros += [g.constant(points.astype(kind))] if g.chance(0.6) else []
    g.op("MatMulInteger", x, weights, *zeros)


def byte_conv(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 4 and g.shape(name)[1] <= 64 and min(g.shape(name)[2:]) >= 3, (BYTE,))
    out, window = g.one_of((1, 3, 8, 16)), g.one_of((1, 3))
    kind = np.int8 if g.chance(0.5) else np.uint8
    low = int(np.iinfo(kind).min)
    weights = g.constant(g.rng.integers(low, low + 256, (out, g.shape(x)[1], window, window)).astype(kind))
    zeros = [g.constant(np.array(g.between(0, 200), np.uint8))] if g.chance(0.6) else []
    zeros += [g.constant(np.array(g.between(0, 90), kind))] if zeros and g.chance(0.6) else []
    g.op("ConvInteger", x, weights, *zeros, pads=[g.between(0, window // 2) for _ in range(4)])


def decoded(g: Grower) -> None:
    """Bytes become floats, by one scale, by one an index of an axis, or by one a block."""
    x = g.pick(lambda name: g.rank(name) >= 1, (BYTE, SIGNED))
    own, axis = helper.tensor_dtype_to_np_dtype(g.dtype(x)), axis_of(g, x)
    dims: tuple[int, ...] = ()
    more: dict[str, object] = {"axis": axis} if g.opset >= 13 else {}
    kind = g.between(0, 2)
    if kind == 1:
        dims = (g.shape(x)[axis],)
    elif kind == 2 and g.opset >= 21:
        block = g.one_of((2, 3, 4))
        blocks = list(g.shape(x))
        blocks[axis] = -(-blocks[axis] // block)
        dims, more["block_size"] = tuple(blocks), block
    scale = g.constant((0.02 + 0.1 * g.rng.random(dims)).astype(np.float32))
    zero = [g.constant(g.rng.integers(0, 100, dims).astype(own))] if g.chance(0.6) else []
    g.op("DequantizeLinear", x, scale, *zero, **more)


def looked_up(g: Grower) -> None:
    """Rows of a table, some of them the same."""
    x = g.pick(lambda name: is_input(name) and g.rank(name) <= 2, (INT, INT32))
    rows = g.between(3, 30)
    table = g.normal(rows, g.one_of((1, 8, 17)))
    kind = helper.tensor_dtype_to_np_dtype(g.dtype(x))
    places = g.op("Mod", x, g.constant(np.array(rows, kind)))
    g.op("Gather", table, places)


def counted(g: Grower) -> None:
    """Numbers that appear more than once, places that are not zero, and running sums of integers."""
    x = g.pick(lambda name: is_input(name) and 1 <= g.rank(name) <= 3, (INT, INT32))
    kind = g.between(0, 2)
    if kind == 0 and g.dtype(x) == INT:
        g.ends_in("Unique", x, rank=1, integer=True, sorted=1)
    elif kind == 1:
        g.ends_in("NonZero", x, rank=2, integer=True)
    else:
        axis = g.constant(np.int64(axis_of(g, x)))
        g.op("CumSum", x, axis, exclusive=g.between(0, 1), reverse=g.between(0, 1))


def diagonal(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 2, (FLOAT, INT))
    g.op("EyeLike", x, k=g.between(-2, 2), **({"dtype": INT} if g.chance(0.4) else {}))


def spread(g: Grower) -> None:
    """A few integers picked from a larger constant, by either integer type."""
    table = g.constant(g.rng.integers(-50, 50, (g.between(2, 6), g.between(1, 5))).astype(np.int64))
    x = g.pick(lambda name: g.rank(name) >= 1, (INT,))
    picked = g.op("Gather", table, indices(g, g.shape(table)[0], ()))
    if g.shape(table)[1] not in (1, g.shape(x)[-1]):
        raise NoFitError
    g.op("Add", x, picked)


NUMBERS = {
    arithmetic: 4,
    division: 2,
    rest: 0.7,
    bits: 1.5,
    shift: 1,
    sign: 1,
    clipped: 1,
    power: 1,
    compared: 2,
    reduced: 3,
    any_of: 0.7,
    largest: 1.5,
    jump: 2,
    cast: 3,
    whole_product: 1.5,
    byte_product: 2,
    byte_conv: 1.5,
    decoded: 2,
    looked_up: 1,
    counted: 1.5,
    diagonal: 0.5,
    spread: 0.5,
}
"""Operator → how often it is tried."""
