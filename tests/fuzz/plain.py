"""Operators without weights: elementwise, broadcasting, reductions, and those that move elements."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tests.fuzz.grower import Grower, NoFitError

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

SMOOTH = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Abs", "Neg", "HardSigmoid", "HardSwish", "Elu", "Selu")
MORE = ("Softplus", "Softsign", "Sin", "Cos", "Identity", "Celu", "Atan")


def unary(g: Grower) -> None:
    kinds = (*SMOOTH, *SMOOTH, *MORE)
    kind = kinds[g.between(0, len(kinds) - 1)]
    x = g.pick()
    if kind == "HardSwish" and g.opset < 14:
        kind = "Relu"
    g.op(kind, x)


def swish(g: Grower) -> None:
    g.swish(g.pick())


def gelu(g: Grower) -> None:
    g.gelu(g.pick())


def clip(g: Grower) -> None:
    low, high = g.constant(np.float32(-0.5)), g.constant(np.float32(0.8))
    bounds = ((low, high), (low,), ("", high))[g.between(0, 2)]
    g.op("Clip", g.pick(), *bounds)


def careful(g: Grower) -> None:
    """Operators that are steep somewhere, away from there."""
    x = g.op("Add", g.op("Abs", g.pick()), g.constant(np.float32(0.5)))
    kinds = ("Sqrt", "Log", "Reciprocal", "Pow", "Exp")
    kind = kinds[g.between(0, 4)]
    if kind == "Pow":
        g.op("Pow", x, g.constant(np.float32((2.0, 0.5, 3.0, -1.0, 1.7)[g.between(0, 4)])))
    elif kind == "Exp":
        g.op("Exp", g.op("Neg", x))
    else:
        g.op(kind, x)


def prelu(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 2)
    channels = g.shape(x)[1]
    g.op("PRelu", x, g.normal(channels, *(1 for _ in g.shape(x)[2:])))


def _broadcastable(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def binary(g: Grower) -> None:
    x = g.pick()
    shape = g.shape(x)
    others = [n for n in g.values if g.dtype(n) == FLOAT and _broadcastable(shape, g.shape(n))]
    if others and g.chance(0.6):
        y = others[g.between(0, len(others) - 1)]
    else:
        thin = [size if g.chance(0.6) else 1 for size in shape]
        y = g.normal(*thin[g.between(0, len(thin)) :])
    kind = ("Add", "Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div")[g.between(0, 8)]
    if kind == "Div":
        y = g.op("Add", g.op("Abs", y), g.constant(np.float32(0.5)))
    g.op(kind, *((x, y) if kind == "Div" or g.chance(0.5) else (y, x)))


def residual(g: Grower) -> None:
    x = g.pick()
    same = [n for n in g.values if g.dtype(n) == FLOAT and g.shape(n) == g.shape(x) and n != x]
    if not same:
        raise NoFitError
    made = g.op("Add", x, same[g.between(0, len(same) - 1)])
    if g.chance(0.5):
        g.op("Relu", made)


def variadic(g: Grower) -> None:
    x = g.pick()
    same = [n for n in g.values if g.dtype(n) == FLOAT and _broadcastable(g.shape(x), g.shape(n))]
    count = g.between(1, 3)
    kind = ("Sum", "Mean", "Max", "Min")[g.between(0, 3)]
    g.op(kind, x, *(same[g.between(0, len(same) - 1)] for _ in range(count)))


def reduction(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    kinds = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare")
    kind = kinds[g.between(0, len(kinds) - 1)]
    if kind == "ReduceL2":  # steep at zero
        x = g.op("Add", g.op("Abs", x), g.constant(np.float32(0.1)))
    axes = [axis for axis in range(g.rank(x)) if g.chance(0.5)] or [g.rank(x) - 1]
    axes = [axis - g.rank(x) if g.chance(0.3) else axis for axis in axes]
    keep = int(g.chance(0.5))
    extra, attributes = g.axes(axes, g.opset >= (13 if kind == "ReduceSum" else 18))
    if g.chance(0.1):
        extra, attributes = [], {}
    g.op(kind, x, *extra, keepdims=keep, **attributes)


def softmax(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    axis = g.between(-g.rank(x), g.rank(x) - 1)
    g.op("Softmax" if g.chance(0.8) else "LogSoftmax", x, axis=axis)


def cumulative(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    axis = g.constant(np.int64(g.between(0, g.rank(x) - 1)))
    g.op("CumSum", x, axis, exclusive=int(g.chance(0.3)), reverse=int(g.chance(0.3)))


def where(g: Grower) -> None:
    x = g.pick()
    mask = g.constant(g.rng.random(g.shape(x)) < 0.5)
    y = g.normal(*g.shape(x)[g.between(0, g.rank(x)) :])
    g.op("Where", mask, *((x, y) if g.chance(0.5) else (y, x)))


def compare(g: Grower) -> None:
    """Comparisons of inputs: of a computed value a rounding error could turn the answer."""
    x = g.pick(lambda name: name.startswith("in"))
    kind = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")[g.between(0, 3)]
    mask = g.op(kind, x, g.normal(*g.shape(x)[g.between(0, g.rank(x)) :]))
    if g.chance(0.3):
        mask = g.op("Not", mask)
    if g.chance(0.5):
        g.op("Where", mask, x, g.constant(np.float32(0.25)))
    else:
        g.op("Cast", mask, to=FLOAT)


def rounding(g: Grower) -> None:
    x = g.pick(lambda name: name.startswith("in"))
    g.op(("Floor", "Ceil", "Round", "Sign")[g.between(0, 3)], x)


def arg_max(g: Grower) -> None:
    x = g.pick(lambda name: name.startswith("in") and g.rank(name) >= 1)
    axis = g.between(-g.rank(x), g.rank(x) - 1)
    g.op("ArgMax" if g.chance(0.5) else "ArgMin", x, axis=axis, keepdims=int(g.chance(0.5)))


def cast(g: Grower) -> None:
    if g.chance(0.5):
        g.op("Cast", g.op("Cast", g.pick(), to=TensorProto.DOUBLE), to=FLOAT)
    else:
        g.op("Cast", g.pick(kinds=(INT,)), to=FLOAT)


def reshape(g: Grower) -> None:
    x = g.pick()
    left, dims = math.prod(g.shape(x)), []
    for _ in range(g.between(0, 3)):
        dims.append(g.one_of([d for d in range(1, min(left, 64) + 1) if left % d == 0]))
        left //= dims[-1]
    dims.insert(g.between(0, len(dims)), left)
    if g.chance(0.4):
        dims[g.between(0, len(dims) - 1)] = -1
    g.op("Reshape", x, g.ints(*dims))


def transpose(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 2)
    g.op("Transpose", x, perm=[int(axis) for axis in g.rng.permutation(g.rank(x))])


def flatten(g: Grower) -> None:
    x = g.pick()
    g.op("Flatten", x, axis=g.between(-g.rank(x), g.rank(x)))


def squeeze(g: Grower) -> None:
    if g.chance(0.5):
        x = g.pick(lambda name: 1 in g.shape(name))
        ones = [axis for axis, size in enumerate(g.shape(x)) if size == 1]
        g.op("Squeeze", x, g.ints(g.one_of(ones)))
    else:
        x = g.pick(lambda name: g.rank(name) <= 4)
        g.op("Unsqueeze", x, g.ints(g.between(-g.rank(x) - 1, g.rank(x))))


def expand(g: Grower) -> None:
    x = g.pick(lambda name: 1 in g.shape(name) or g.rank(name) < 3)
    shape = [g.between(1, 4) if size == 1 else size for size in g.shape(x)]
    g.op("Expand", x, g.ints(*([g.between(1, 3)] if g.chance(0.4) else []), *shape))


def tile(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    g.op("Tile", x, g.ints(*(g.one_of((1, 1, 2, 3)) for _ in g.shape(x))))


def concat(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    axis = g.between(0, g.rank(x) - 1)

    def fits(name: str) -> bool:
        other = g.shape(name)
        return (
            g.dtype(name) == FLOAT
            and len(other) == g.rank(x)
            and all(a == b for i, (a, b) in enumerate(zip(g.shape(x), other, strict=True)) if i != axis)
        )

    same = [name for name in g.values if fits(name)]
    parts = [x, *(same[g.between(0, len(same) - 1)] for _ in range(g.between(1, 3)))]
    if g.chance(0.2):
        parts.append(g.normal(*(2 if i == axis else size for i, size in enumerate(g.shape(x)))))
    g.op("Concat", *parts, axis=axis - (g.rank(x) if g.chance(0.3) else 0))


def split(g: Grower) -> None:
    x = g.pick(lambda name: any(size > 1 for size in g.shape(name)))
    axis = g.one_of([i for i, size in enumerate(g.shape(x)) if size > 1])
    size = g.shape(x)[axis]
    cut = g.between(1, size - 1)
    parts = [cut, size - cut]
    if size - cut > 1 and g.chance(0.4):
        more = g.between(1, size - cut - 1)
        parts = [cut, more, size - cut - more]
    g.op("Split", x, g.ints(*parts), outputs=len(parts), axis=axis)


def slice_(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    starts, ends, axes, steps = [], [], [], []
    for axis, size in enumerate(g.shape(x)):
        if g.chance(0.5):
            continue
        step = g.one_of((1, 1, 1, 2, 3, -1, -2))
        start, end = sorted((g.between(0, size - 1), g.between(0, size - 1)))
        last = (end + 1 if g.chance(0.7) else 2**31) if step > 0 else (start - 1 if start else -(2**31))
        pair = (start if step > 0 else end, last)
        starts.append(pair[0] - size if g.chance(0.2) else pair[0])
        ends.append(pair[1])
        axes.append(axis)
        steps.append(step)
    if not axes:
        raise NoFitError
    g.op("Slice", x, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps))


def pad(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    mode = ("constant", "constant", "edge", "reflect")[g.between(0, 3)]
    reach = [min(2, size - 1) if mode == "reflect" else 2 for size in g.shape(x)] * 2
    pads = [g.between(0, most) if g.chance(0.5) else 0 for most in reach]
    value = [g.constant(np.float32(0.5))] if mode == "constant" and g.chance(0.7) else []
    g.op("Pad", x, g.ints(*pads), *value, mode=mode)


def gather(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) >= 1)
    axis = g.between(0, g.rank(x) - 1)
    size = g.shape(x)[axis]
    shape = ((), (1,), (3,), (2, 2))[g.between(0, 3)]
    g.op("Gather", x, g.constant(g.rng.integers(-size, size, shape).astype(np.int64)), axis=axis)


def blocks(g: Grower) -> None:
    if g.chance(0.5):
        x = g.pick(lambda n: g.rank(n) == 4 and g.shape(n)[2] % 2 == 0 and g.shape(n)[3] % 2 == 0)
        g.op("SpaceToDepth", x, blocksize=2)
    else:
        x = g.pick(lambda n: g.rank(n) == 4 and g.shape(n)[1] % 4 == 0)
        g.op("DepthToSpace", x, blocksize=2, mode="DCR" if g.chance(0.5) else "CRD")


def triangle(g: Grower) -> None:
    if g.opset < 14:
        raise NoFitError
    x = g.pick(lambda name: g.rank(name) >= 2)
    g.op("Trilu", x, upper=int(g.chance(0.5)))


PLAIN = {
    unary: 6,
    swish: 1,
    gelu: 0.7,
    clip: 1,
    careful: 2,
    prelu: 0.7,
    binary: 7,
    residual: 3,
    variadic: 1,
    reduction: 3,
    softmax: 1.5,
    cumulative: 0.4,
    where: 1,
    compare: 0.5,
    rounding: 0.4,
    arg_max: 0.4,
    cast: 0.5,
    reshape: 3,
    transpose: 3,
    flatten: 0.7,
    squeeze: 1.5,
    expand: 0.7,
    tile: 0.7,
    concat: 3,
    split: 1.5,
    slice_: 2,
    pad: 1.5,
    gather: 1,
    blocks: 0.7,
    triangle: 0.4,
}
"""Operator → how often it is tried."""
