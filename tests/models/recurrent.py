"""Recurrent networks, and models with branches that can run side by side."""

from __future__ import annotations

from itertools import pairwise

import onnx

from tests.models.builder import Builder
from tests.models.cnn import resnet18_body

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


Weights = tuple[str, str, str]


def recurrence(b: Builder, kind: str, x: str, sizes: tuple[int, int], weights: Weights | None = None) -> str:
    """The last hidden state (1, batch, hidden) of ``kind`` over x (steps, batch, inputs); sizes = (inputs, hidden)."""
    w, r, bias = weights or recurrent_weights(b, kind, sizes)
    more = {"linear_before_reset": 1} if kind == "GRU" else {}  # as PyTorch's GRU computes
    states = b.op(kind, x, w, r, bias, outputs=2, hidden_size=sizes[1], **more)
    return f"{states}_1"


def recurrent_weights(b: Builder, kind: str, sizes: tuple[int, int]) -> Weights:
    """Input weights, recurrent weights and biases of one direction."""
    inputs, hidden = sizes
    rows = GATES[kind] * hidden
    return b.weight(1, rows, inputs), b.weight(1, rows, hidden), b.weight(1, 2 * rows)


def single(kind: str, seed: int = 0, steps: int = 100, batch: int = 1, hidden: int = 512) -> onnx.ModelProto:
    """One layer of ``kind`` as wide as its input; all states and the last one."""
    b = Builder(kind.lower())
    x = b.input("sequence", (steps, batch, hidden))
    last = recurrence(b, kind, x, (hidden, hidden))
    return b.model(seed, states=last.removesuffix("_1"), last=last)


def wide_deep(
    seed: int = 0, batch: int = 1, size: int = 112, steps: int = 100, hidden: int = 512, ffn: int = 1024, cnn: int = 64
) -> onnx.ModelProto:
    """Wide, feed-forward, convolutional (ResNet-18) and recurrent (LSTM) branches that meet in one score.

    ``cnn`` is the width of its first layer. The multi-modal Wide&Deep of the DUET paper; the idea is from Cheng et al.,
    "Wide & Deep Learning for Recommender Systems", DLRS 2016.
    """
    b = Builder("wide_deep")
    wide = b.input("wide", (batch, 1024))
    deep = b.input("deep", (batch, 256))
    image = b.input("image", (batch, 3, size, size))
    text = b.input("text", (steps, batch, 256))
    x = b.relu(b.dense(deep, (256, ffn)))
    for _ in range(2):
        x = b.relu(b.dense(x, (ffn, ffn)))
    features = resnet18_body(b, image, cnn)
    rnn = b.op("Squeeze", recurrence(b, "LSTM", text, (256, hidden)), b.ints(0))
    joined = b.op("Concat", wide, x, features, rnn, axis=1)
    return b.model(seed, score=b.dense(joined, (1024 + ffn + 8 * cnn + hidden, 16)))


def siamese_lstm(seed: int = 0, batch: int = 1, steps: int = 100, hidden: int = 256) -> onnx.ModelProto:
    """Two sentences through one LSTM (shared weights); how alike they are."""
    b = Builder("siamese_lstm")
    weights = recurrent_weights(b, "LSTM", (hidden, hidden))
    towers = []
    for side in ("left", "right"):
        x = b.input(side, (steps, batch, hidden))
        towers.append(b.op("Squeeze", recurrence(b, "LSTM", x, (hidden, hidden), weights), b.ints(0)))
    return b.model(seed, score=_alike(b, towers, hidden))


def siamese_cnn(seed: int = 0, batch: int = 1, size: int = 64) -> onnx.ModelProto:
    """Two images through one convolutional tower (shared weights); how alike they are."""
    b = Builder("siamese_cnn")
    channels = (3, 32, 64, 128, 256)
    shared = [(b.weight(out, inner, 3, 3), b.weight(out)) for inner, out in pairwise(channels)]
    towers = []
    for side in ("left", "right"):
        x = b.input(side, (batch, 3, size, size))
        for weight, bias in shared:
            x = b.max_pool(b.relu(b.op("Conv", x, weight, bias, pads=[1, 1, 1, 1])))
        towers.append(b.pooled(x))
    return b.model(seed, score=_alike(b, towers, channels[-1]))


def _alike(b: Builder, towers: list[str], width: int) -> str:
    """A dense layer over |left − right| (G. Koch et al., "Siamese Neural Networks", 2015)."""
    distance = b.op("Abs", b.op("Sub", *towers))
    return b.op("Sigmoid", b.dense(distance, (width, 1)))
