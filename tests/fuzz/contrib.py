"""Operators of com.microsoft, as ONNX Runtime's optimiser and exporters write them, and results whose size depends on
data, which only outputs of the graph can be.
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


CONTRIB = {
    gelu: 3,
    skip_norm: 3,
    fused_matmul: 3,
    fused_gemm: 2,
    fused_conv: 4,
    few_bits: 3,
    attention: 2,
    of_unknown_size: 2,
}
"""Operator → how often it is tried."""
