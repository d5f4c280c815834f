"""Layers whose kernels are written as assembly: wide channels, 3×3 windows, products, and chains behind them."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.grower import Grower, NoFitError

WIDE = (16, 16, 32, 32, 48, 64, 20, 24, 40)
"""Channels: mostly whole vectors, sometimes with a tail."""

MOST_FLOP = 4e7
"""Of one layer."""


def _image(g: Grower) -> str:
    return g.pick(lambda name: g.rank(name) == 4 and 16 <= g.shape(name)[1] <= 96)


def _convolved(g: Grower, x: str, out: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    batch, channels, *sizes = g.shape(x)
    if 2 * math.prod(sizes) * batch * out * channels // groups * kernel**2 > MOST_FLOP:
        raise NoFitError
    weight = g.normal(out, channels // groups, kernel, kernel, scale=1 / math.sqrt(channels // groups * kernel**2))
    pads = [g.one_of(((kernel - 1) // 2, (kernel - 1) // 2, 0, kernel // 2)) for _ in range(4)]
    if g.chance(0.6):
        pads = [(kernel - 1) // 2] * 4
    dilation = 2 if kernel > 1 and g.chance(0.08) else 1
    return g.op(
        "Conv",
        x,
        weight,
        *([g.normal(out)] if g.chance(0.7) else []),
        kernel_shape=[kernel] * 2,
        pads=pads,
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        group=groups,
    )


def wide_conv(g: Grower) -> None:
    """A convolution, often of 3×3 and stride 1, and what follows it."""
    kernel, stride = g.one_of((1, 1, 3, 3, 3, 3, 5, 7)), g.one_of((1, 1, 1, 2))
    followed(g, _convolved(g, _image(g), g.one_of(WIDE), kernel, stride))


def grouped(g: Grower) -> None:
    x = _image(g)
    channels = g.shape(x)[1]
    groups = g.one_of([d for d in (2, 4, channels // 16, channels // 8) if d > 1 and channels % d == 0] or [1])
    followed(g, _convolved(g, x, channels, g.one_of((1, 3)), 1, groups))


def depthwise(g: Grower) -> None:
    x = _image(g)
    channels = g.shape(x)[1]
    followed(g, _convolved(g, x, channels, g.one_of((3, 3, 5, 7)), g.one_of((1, 1, 2)), channels))


def followed(g: Grower, made: str) -> str:
    """Scales, shifts, activations and residuals behind a result."""
    for _ in range(g.between(0, 4)):
        shape = g.shape(made)
        kind = g.between(0, 7)
        per_channel = (shape[1], *(1 for _ in shape[2:])) if len(shape) == 4 else shape[-1:]
        if kind == 0:
            made = g.op("Add", made, g.normal(*per_channel))
        elif kind == 1:
            made = g.op("Mul", made, g.positive(*per_channel))
        elif kind == 2:
            same = [name for name in g.values if name != made and g.dtype(name) == 1 and g.shape(name) == shape]
            made = g.op("Add", *((made, same[g.between(0, len(same) - 1)]) if same else (made, made)))
        elif kind == 3:
            made = g.swish(made)
        elif kind == 4:
            made = g.op("Clip", made, g.constant(np.float32(0)), g.constant(np.float32(6)))
        elif kind == 5 and len(shape) == 4:
            numbers = [g.positive(shape[1]), g.normal(shape[1]), g.normal(shape[1]), g.positive(shape[1])]
            made = g.op("BatchNormalization", made, *numbers)
        else:
            made = g.op(("Relu", "LeakyRelu", "Sigmoid", "HardSwish", "Tanh", "Abs")[g.between(0, 5)], made)
    return made


def wide_product(g: Grower) -> None:
    """A product with a weight of whole vectors or a tail, and what follows it."""
    x = g.pick(lambda name: 2 <= g.rank(name) <= 4 and g.shape(name)[-1] >= 8)
    depth = g.shape(x)[-1]
    wide = g.one_of((*WIDE, 96, 128))
    weight = g.normal(depth, wide, scale=depth**-0.5)
    if g.rank(x) == 2 and g.chance(0.4):
        followed(g, g.op("Gemm", x, weight, *([g.normal(wide)] if g.chance(0.7) else [])))
    else:
        made = g.op("MatMul", x, weight)
        followed(g, g.op("Add", made, g.normal(wide)) if g.chance(0.6) else made)


def joined(g: Grower) -> None:
    """Images of one size behind one another, along the channels."""
    x = _image(g)
    same = [n for n in g.values if g.rank(n) == 4 and n != x and g.dtype(n) == 1 and g.shape(n)[2:] == g.shape(x)[2:]]
    same = [n for n in same if g.shape(n)[0] == g.shape(x)[0]]
    if not same:
        raise NoFitError
    g.op("Concat", x, same[g.between(0, len(same) - 1)], axis=1)


def shuffled(g: Grower) -> None:
    """Channels dealt out over groups, as ShuffleNet's are."""
    x = _image(g)
    batch, channels, height, width = g.shape(x)
    groups = g.one_of([d for d in (2, 4, 8) if channels % d == 0])
    split = g.op("Reshape", x, g.ints(batch, groups, channels // groups, height, width))
    turned = g.op("Transpose", split, perm=[0, 2, 1, 3, 4])
    g.op("Reshape", turned, g.ints(batch, channels, height, width))


def pooled(g: Grower) -> None:
    x = _image(g)
    if min(g.shape(x)[2:]) < 3:
        raise NoFitError
    g.op(
        ("MaxPool", "AveragePool")[g.between(0, 1)],
        x,
        kernel_shape=[3, 3],
        strides=[g.one_of((1, 2))] * 2,
        pads=[1] * 4,
    )


CHAINS = {
    wide_conv: 10,
    depthwise: 4,
    grouped: 2,
    wide_product: 8,
    joined: 2,
    shuffled: 1,
    pooled: 1,
}
"""Operator → how often it is tried."""


def wide_shape(g: Grower) -> tuple[int, ...]:
    """Of an input: an image of wide channels, or rows of vectors."""
    if g.chance(0.65):
        return (g.one_of((1, 1, 1, 2)), g.one_of(WIDE), g.between(5, 20), g.between(5, 20))
    return (*((g.one_of((1, 1, 2)),) if g.chance(0.7) else ()), g.between(1, 40), g.one_of(WIDE))
