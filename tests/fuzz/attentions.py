"""Attention as exporters write it, and almost: one kernel takes what says the same, and must leave the rest alone."""

from __future__ import annotations

import numpy as np
import onnx

from tests.fuzz.grower import Grower, NoFitError

LOWEST = float(np.finfo(np.float32).min)
HIDING = (LOWEST, LOWEST, -np.inf, -10000.0, -5.0)
"""Numbers that masks add to hidden scores."""


def attention_model(seed: int) -> onnx.ModelProto:
    """The model of ``seed``, always the same one: one or two attentions of random sizes."""
    rng = np.random.default_rng([7, seed, 3])
    while True:
        g = Grower(rng, 17)
        try:
            results = [_attention(g, number) for number in range(g.one_of((1, 1, 2)))]
            return g.finish([*results, *(name for name in g.sinks() if name not in results)][:4])
        except NoFitError:
            continue


def _attention(g: Grower, number: int) -> str:
    batch, heads = g.one_of((1, 1, 2, 3)), g.one_of((1, 2, 3, 4))
    size, width = g.one_of((16, 16, 32, 48, 64, 12)), g.one_of((16, 16, 32, 24))
    length = g.one_of((32, 33, 63, 64, 100, 130, 257, 20))
    positions = length if g.chance(0.6) else g.one_of((16, 41, 64, 77, 256, 300, 7))
    rank = g.one_of((4, 4, 4, 3))
    query = _heads(g, f"q{number}", (batch, heads, length, size), rank)
    keys = _heads(g, f"k{number}", (batch, heads, positions, size), rank, turned=True)
    values = _heads(g, f"v{number}", (batch, heads, positions, width), rank)
    if g.chance(0.3):
        query = g.op("Mul", query, g.constant(np.float32(size**-0.5)))
    scores = g.op("MatMul", query, keys)
    for _ in range(g.between(0, 3)):
        scores = _changed(g, scores)
    weights = g.op("Softmax", scores, axis=g.one_of((-1, -1, -1, rank - 1, rank - 2)))
    if g.chance(0.3):
        zero = g.constant(np.float32(0 if g.chance(0.8) else 0.25))
        weights = g.op("Where", g.op("IsNaN", weights), zero, weights)
    out = g.op("MatMul", weights, values)
    if g.chance(0.7):
        out = g.op("Transpose", out, perm=[0, 2, 1, 3] if rank == 4 else [1, 0, 2])
    if g.chance(0.3):
        out = g.op("Add", out, g.constant(np.float32(1)))
    if g.chance(0.15):  # something else reads what is inside
        g.op("Relu", (scores, weights)[g.between(0, 1)])
    return out


def _heads(g: Grower, name: str, shape: tuple[int, int, int, int], rank: int, turned: bool = False) -> str:
    """An input as (batch, heads, rows, size) or (batch · heads, rows, size); ``turned``: the last two exchanged."""
    batch, heads, rows, size = shape
    if rank == 3:
        if g.chance(0.5):
            x = g.input(name, (rows, batch * heads, size))
            return g.op("Transpose", x, perm=[1, 2, 0] if turned else [1, 0, 2])
        x = g.input(name, (batch * heads, rows, size))
        return g.op("Transpose", x, perm=[0, 2, 1]) if turned else x
    kind = g.between(0, 3)
    if kind == 0:
        x = g.input(name, shape)
        return g.op("Transpose", x, perm=[0, 1, 3, 2]) if turned else x
    if kind == 1 and turned:
        return g.input(name, (batch, heads, size, rows))
    x = g.op("Reshape", g.input(name, (batch, rows, heads * size)), g.ints(batch, rows, heads, size))
    if kind == 2 and turned:
        return g.op("Transpose", g.op("Transpose", x, perm=[0, 2, 1, 3]), perm=[0, 1, 3, 2])
    return g.op("Transpose", x, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def _changed(g: Grower, scores: str) -> str:
    """Scores that are scaled, masked, chosen or bent."""
    kind = g.between(0, 6)
    if kind <= 1:
        factor = g.constant(np.float32(g.one_of((1, 2, 4, -3)) / 8))
        return g.op("Mul", *((scores, factor) if g.chance(0.7) else (factor, scores)))
    if kind == 2:
        return g.op("Div", scores, g.constant(np.float32(4)))
    if kind == 6 and g.chance(0.3):
        return g.op("Tanh", scores)
    mask = _mask(g, g.shape(scores))
    if kind == 3:
        shown = g.op("Less", mask, g.constant(np.float32(-1)))
        low = g.constant(np.float32(HIDING[g.between(0, 4)]))
        return g.op("Where", shown, *((low, scores) if g.chance(0.7) else (scores, low)))
    return g.op("Add", *((scores, mask) if g.chance(0.7) else (mask, scores)))


def _mask(g: Grower, shape: tuple[int, ...]) -> str:
    """A constant whose axes are those of the scores, 1, or missing."""
    extents = [size if g.chance(0.5) else 1 for size in shape]
    extents[-1] = shape[-1] if g.chance(0.9) else 1
    extents = extents[g.between(0, len(extents) - 1) if g.chance(0.2) else 0 :]
    hidden = HIDING[g.between(0, len(HIDING) - 1)]
    *_, rows, columns = np.indices((1, *extents))
    kind = g.between(0, 3)
    if kind == 3:
        return g.constant(g.rng.standard_normal(extents).astype(np.float32))
    hides = (columns >= g.between(1, shape[-1]), columns > rows, g.rng.random((1, *extents)) < 0.4)[kind]
    return g.constant(np.where(hides[0], hidden, 0).astype(np.float32))
