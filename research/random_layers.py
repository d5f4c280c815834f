"""Networks of random layers: the shipped prior is learned on them, and so on no model of a benchmark."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.builder import Builder

SIZES = (7, 8, 10, 13, 14, 16, 20, 26, 27, 28, 32, 40, 52, 54, 55, 56, 64, 80, 104, 112)
"""Of images, in pixels."""

CHANNELS = (
    16,
    24,
    32,
    40,
    48,
    64,
    80,
    96,
    112,
    128,
    160,
    192,
    224,
    256,
    320,
    384,
    448,
    512,
    640,
    768,
    1024,
    1536,
    2048,
)
ROWS = (1, 1, 2, 4, 8, 16, 32, 49, 64, 77, 100, 128, 196, 197, 256, 384, 512)
"""Of the matrices that linear layers get."""

MOST_FLOP, MOST_WEIGHTS = 600_000_000, 5_000_000
"""Of a layer: a kernel then takes a few milliseconds at most, and a network is tuned within a minute."""

LAYERS, CHAIN = 24, (6, 4)
"""Layers of a network, and of a chain of convolutions and of linear layers in it."""


def random_cnn(seed: int) -> onnx.ModelProto:
    """Chains of convolutions, some with a residual, each chain on an input of its own."""
    rng = np.random.default_rng(seed)
    b = Builder(f"random_cnn_{seed}")
    outputs: dict[str, str] = {}
    x, size, width = "", 0, 0
    for number in range(LAYERS):
        if number % CHAIN[0] == 0:
            size, width = int(rng.choice(SIZES)), _channels(rng, 512)
            x = b.relu(b.input(f"image{number}", (1, width, size, size)))
        kernel = int(rng.choice((1, 1, 1, 3, 3, 3, 5)))
        stride = int(rng.choice((1, 1, 1, 1, 2))) if size >= 14 else 1
        out = -(-size // stride)
        channels = _channels(rng, _most(width * kernel**2, out**2))
        y = b.conv(x, (width, channels), kernel, stride)
        if stride == 1 and channels == width and rng.random() < 0.5:
            y = b.op("Add", x, y)
        x = b.relu(y) if rng.random() < 0.8 else y
        size, width = out, channels
        if number % CHAIN[0] == CHAIN[0] - 1:
            outputs[f"out{number}"] = x
    return b.model(seed, **outputs)


def random_mlp(seed: int) -> onnx.ModelProto:
    """Chains of linear layers with activations over matrices of any number of rows."""
    rng = np.random.default_rng(seed)
    b = Builder(f"random_mlp_{seed}")
    outputs: dict[str, str] = {}
    x, rows, width = "", 0, 0
    for number in range(LAYERS):
        if number % CHAIN[1] == 0:
            rows, width = int(rng.choice(ROWS)), int(rng.choice(CHANNELS[5:]))
            x = b.relu(b.input(f"rows{number}", (rows, width)))
        columns = _channels(rng, _most(width, rows))
        y = b.linear(x, (width, columns))
        x = (b.relu, b.gelu, b.swish, str)[int(rng.integers(4))](y)
        width = columns
        if number % CHAIN[1] == CHAIN[1] - 1:
            outputs[f"out{number}"] = x
    return b.model(seed, **outputs)


def _most(terms: int, numbers: int) -> int:
    """Channels of a layer of ``numbers`` sums of ``terms`` products a channel, for it to stay within the limits."""
    return max(CHANNELS[0], int(min(MOST_WEIGHTS, MOST_FLOP / 2 / numbers) / terms))


def _channels(rng: np.random.Generator, most: int) -> int:
    fit = [count for count in CHANNELS if count <= most]
    return int(fit[min(int(rng.triangular(0, len(fit) / 3, len(fit))), len(fit) - 1)])
