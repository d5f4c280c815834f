"""Operators of com.microsoft, as ONNX Runtime's optimiser and exporters write them, and results whose size depends on
data, and what reads them.
"""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.grower import Grower
from tests.fuzz.layers import windows

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")
WIDTHS = (1, 3, 8, 16, 17, 33)


def gelu(g: Grower) -> None:
    kind = ("Gelu", "FastGelu", "QuickGelu", "BiasGelu")[g.between(0, 3)]
    x = g.pick(lambda name: g.rank(name) >= 1)
    width = g.shape(x)[-1]
    bias = [g.normal(width)] if kind == "BiasGelu" or (kind == "FastGelu" and g.chance(0.5)) else []
    more = {"alpha": 1.5} if kind == "QuickGelu" else {}
    g.foreign(kind, x, *bias, shape=g.shape(x), **more)


def skip_norm(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 3 and g.shape(name)[-1] > 3)
    width = g.shape(x)[-1]
    skip = g.normal(*g.shape(x)) if g.chance(0.5) else x
    if g.chance(0.5):
        g.foreign("SkipLayerNormalization", x, skip, g.positive(width), g.normal(width), shape=g.shape(x), epsilon=1e-3)
    else:
        g.foreign("SkipSimplifiedLayerNormalization", x, skip, g.positive(width), shape=g.shape(x), epsilon=1e-3)


def fused_matmul(g: Grower) -> None:
    x = g.pick(lambda name: 2 <= g.rank(name) <= 4)
    *batch, rows, depth = g.shape(x)
    turn, flip = int(g.chance(0.3)), int(g.chance(0.5))
    rows, depth = (depth, rows) if turn else (rows, depth)
    wide = g.one_of(WIDTHS)
    weight = g.normal(*((wide, depth) if flip else (depth, wide)), scale=depth**-0.5)
    g.foreign("FusedMatMul", x, weight, shape=(*batch, rows, wide), transA=turn, transB=flip, alpha=0.5)


def fused_gemm(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 2)
    rows, depth = g.shape(x)
    wide = g.one_of(WIDTHS)
    weights = g.normal(wide, depth, scale=depth**-0.5), g.normal(wide)
    kind = ACTIVATIONS[g.between(0, 2)]
    g.foreign("FusedGemm", x, *weights, shape=(rows, wide), transB=1, activation=kind)


def fused_conv(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 4 and g.shape(name)[1] <= 64)
    batch, channels, *sizes = g.shape(x)
    attributes = windows(g, tuple(sizes))
    kernel, pads, strides = attributes["kernel_shape"], attributes["pads"], attributes["strides"]
    out = g.one_of((1, 3, 8, 16, 17, 32))
    weight = g.normal(out, channels, *kernel, scale=1 / math.sqrt(channels * math.prod(kernel)))
    made = [(s + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, s in enumerate(sizes)]
    activation = ACTIVATIONS[g.between(0, 2)]
    g.foreign("FusedConv", x, weight, g.normal(out), shape=(batch, out, *made), activation=activation, **attributes)


def few_bits(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) in (2, 3))
    depth, wide = g.shape(x)[-1], g.one_of(WIDTHS)
    bits, block = g.one_of((4, 4, 8)), g.one_of((16, 32))
    blocks = -(-depth // block)
    levels = g.constant(g.rng.integers(0, 256, (wide, blocks, block * bits // 8)).astype(np.uint8))
    scales = g.constant((g.rng.random(wide * blocks) / (1 << bits) / math.sqrt(depth)).astype(np.float32))
    zeros = g.constant(g.rng.integers(0, 256, wide * -(-blocks * bits // 8)).astype(np.uint8))
    inputs = (levels, scales, zeros) if g.chance(0.4) else (levels, scales)
    sizes = {"K": depth, "N": wide, "bits": bits, "block_size": block}
    g.foreign("MatMulNBits", x, *inputs, shape=(*g.shape(x)[:-1], wide), **sizes)


def attention(g: Grower) -> None:
    x = g.pick(lambda name: g.rank(name) == 3 and g.shape(name)[-1] % 4 == 0)
    heads = g.one_of((1, 2, 4))
    g.foreign("MultiHeadAttention", x, x, x, shape=g.shape(x), num_heads=heads)


def of_unknown_size(g: Grower) -> None:
    """Places of what is above zero, what of it is above zero, or each number once."""
    kind = ("NonZero", "Compress", "Unique")[g.between(0, 2)]
    x = g.pick(lambda name: 1 <= g.rank(name) <= 3)
    if kind == "NonZero":
        g.ends_in("NonZero", g.op("Relu", x), rank=2, integer=True)
    elif kind == "Unique":
        g.ends_in("Unique", g.op("Floor", g.op("Mul", x, g.constant(np.float32(2.0)))), rank=1, sorted=1)
    else:
        flat = g.op("Reshape", x, g.ints(-1))
        g.ends_in("Compress", flat, g.op("Greater", flat, g.constant(np.float32(0.0))), rank=1, axis=0)


def behind_an_open_size(g: Grower) -> None:
    """Rows of what is above zero, and some operators on them, which need their number or hand it on."""
    x = g.pick(lambda name: g.rank(name) == 2 and 2 <= g.shape(name)[0] <= 500)
    rows, columns = g.shape(x)
    heads = g.op("Gather", x, g.constant(np.int64(0)), axis=1)
    places = g.open("NonZero", g.op("Greater", heads, g.constant(np.float32(0.0))))
    numbers = g.open("Squeeze", places, g.ints(0))
    some, firsts = g.open("Gather", x, numbers), g.open("Gather", heads, numbers)
    for _ in range(g.between(1, 5)):
        some, firsts, columns = STEPS[g.between(0, len(STEPS) - 1)](g, some, firsts, columns)
    end = g.between(0, 3)
    if end == 0:
        g.ends_in("ReduceSum", some, g.ints(0), rank=1, keepdims=0)
    elif end == 1:
        g.ends_in("Shape", firsts, rank=1, integer=True)
    elif end == 2:
        negative = g.open("Neg", g.open("Gather", x, numbers))
        g.ends_in("ScatterND", x, g.open("Unsqueeze", numbers, g.ints(1)), negative, rank=2)
    else:
        g.ends_in("Identity", some, rank=2)
        g.ends_in("Identity", firsts, rank=1)


def _length(g: Grower, firsts: str) -> str:
    return g.open("Shape", firsts)


def _best(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    most = g.open("Concat", _length(g, firsts), g.ints(g.one_of((1, 3, 40))), axis=0)
    values = g.open("TopK", firsts, g.open("ReduceMin", most, keepdims=1), outputs=2, largest=g.between(0, 1))
    return g.open("Gather", some, g.nodes[-1].output[1]), values, columns


def _twice(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    more = g.normal(2, columns)
    return g.open("Concat", some, more, some, axis=0), g.open("Concat", firsts, g.normal(2), firsts, axis=0), columns


def _front(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    begin, end = g.one_of((0, 0, 1)), g.one_of((2, 5, -1, 1 << 40))
    some, firsts = (g.open("Slice", each, g.ints(begin), g.ints(end), g.ints(0)) for each in (some, firsts))
    return some, firsts, columns


def _again(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    hit = g.open("Less", firsts, g.constant(np.float32(g.one_of((0, 1, 2)))))
    numbers = g.open("Squeeze", g.open("NonZero", hit), g.ints(0))
    return g.open("Gather", some, numbers), g.open("Gather", firsts, numbers), columns


def _product(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    wide = g.one_of((1, 4, 17))
    return g.open("MatMul", some, g.normal(columns, wide, scale=columns**-0.5)), firsts, wide


def _flat_and_back(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    flat = g.open("Abs", g.open("Reshape", some, g.ints(-1)))
    return g.open("Reshape", flat, g.ints(-1, columns)), firsts, columns


def _beside_a_constant(g: Grower, some: str, firsts: str, columns: int) -> tuple[str, str, int]:
    ones = g.open("Expand", g.constant(np.float32(1.0)), _length(g, firsts))
    return g.open("Softmax", some, axis=1), g.open("Sub", firsts, ones), columns


STEPS = (_best, _twice, _front, _again, _product, _flat_and_back, _beside_a_constant)
"""(graph, rows, their first numbers, columns) → the same of some rows."""

CONTRIB = {
    gelu: 3,
    skip_norm: 3,
    fused_matmul: 3,
    fused_gemm: 2,
    fused_conv: 4,
    few_bits: 3,
    attention: 2,
    of_unknown_size: 2,
    behind_an_open_size: 8,
}
"""Operator → how often it is tried."""
