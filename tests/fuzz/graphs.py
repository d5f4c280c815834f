"""Seed → a random valid model of some five to twenty nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto

from tests.fuzz.chains import CHAINS, wide_shape
from tests.fuzz.contrib import CONTRIB
from tests.fuzz.engine import Sample
from tests.fuzz.grower import Grower, NoFitError
from tests.fuzz.layers import CHANNELS, LAYERS
from tests.fuzz.plain import PLAIN, binary, reshape, residual, transpose, unary
from tests.fuzz.rare_layers import RARE_LAYERS
from tests.fuzz.rare_moves import MOVES
from tests.fuzz.rare_numbers import NUMBERS
from tests.fuzz.rare_parts import PARTS

Operator = Callable[[Grower], None]

OPSETS = (13, 14, 17, 17, 17, 18, 21)
RARE_OPSETS = (13, 16, 18, 19, 20, 21, 21, 23, 23, 23)
RARE: dict[Operator, float] = {
    **MOVES,
    **NUMBERS,
    **RARE_LAYERS,
    **PARTS,
    unary: 2,
    binary: 3,
    reshape: 2,
    transpose: 2,
}
"""Operator → how often it is tried in graphs of the family ``rare``."""

DRAWS: dict[int, tuple[type[np.generic], int, int]] = {
    TensorProto.INT64: (np.int64, -20, 20),
    TensorProto.INT32: (np.int32, -20, 20),
    TensorProto.UINT8: (np.uint8, 0, 255),
    TensorProto.INT8: (np.int8, -128, 127),
}
"""Element type of an input → its numbers' type, least and largest one."""

MOST_OUTPUTS = 5
TRIES = 80


def random_model(seed: int, contrib: bool = False) -> onnx.ModelProto:
    """The model of ``seed``, always the same one; with ``contrib``, of ONNX Runtime's own operators too."""
    rng = np.random.default_rng([7, seed, 1] if contrib else [7, seed])
    g = Grower(rng, OPSETS[int(rng.integers(len(OPSETS)))])
    for number in range(g.one_of((1, 1, 1, 2, 2, 3))):
        g.input(f"in{number}", _input_shape(g))
    _grow(g, g.one_of((2, 4, 6, 8, 12, 16)), {**PLAIN, **LAYERS, **(CONTRIB if contrib else {})})
    outputs = g.sinks()
    rng.shuffle(outputs)
    outputs = outputs[:MOST_OUTPUTS]
    inner = [name for node in g.nodes for name in node.output if name not in outputs and name in g.types]
    if inner and g.chance(0.2):
        outputs.append(inner[g.between(0, len(inner) - 1)])
    return g.finish(outputs)


def kernel_model(seed: int) -> onnx.ModelProto:
    """The model of ``seed`` of layers that are mostly written as assembly, always the same one."""
    g = Grower(np.random.default_rng([7, seed, 2]), 17)
    for number in range(g.one_of((1, 1, 2))):
        g.input(f"in{number}", wide_shape(g))
    _grow(g, g.one_of((2, 3, 4, 6)), {**CHAINS, residual: 3, unary: 1, binary: 1})
    return g.finish(g.sinks()[:MOST_OUTPUTS])


def rare_sample(seed: int) -> Sample:
    """The sample of ``seed``: seldom written operators and attributes, integers, bytes; always the same."""
    g = Grower(np.random.default_rng([7, seed, 3]), 0)
    g.opset = g.one_of(RARE_OPSETS)
    feed: dict[str, np.ndarray] = {}
    for number in range(g.one_of((1, 2, 3, 4))):
        name, shape = f"in{number}", _input_shape(g)
        dtype = TensorProto.FLOAT if g.chance(0.5) else g.one_of(list(DRAWS))
        g.input(name, shape, dtype)
        if dtype == TensorProto.FLOAT:
            feed[name] = np.asarray(g.rng.standard_normal(shape), np.float32)
        else:
            kind, low, high = DRAWS[dtype]
            feed[name] = np.asarray(g.rng.integers(low, high + 1, shape), kind)
    _grow(g, g.one_of((1, 2, 4, 6, 8)), RARE)
    return Sample(g.finish(g.sinks()[-MOST_OUTPUTS:]), feed)


def _grow(g: Grower, steps: int, table: Mapping[Operator, float]) -> None:
    """Apply ``steps`` random operators, those that do not fit left out."""
    # A graph leans to some kinds: all kinds alike would seldom put a convolution behind a convolution.
    lean = {operator: weight * float(g.rng.choice((0.2, 1.0, 3.0))) for operator, weight in table.items()}
    operators = list(lean)
    shares = np.array(list(lean.values())) / sum(lean.values())
    done = 0
    for _ in range(TRIES):
        operator = operators[int(g.rng.choice(len(operators), p=shares))]
        with contextlib.suppress(NoFitError):
            operator(g)
            done += 1
        if done >= steps:
            break
    if not g.nodes:
        g.op("Relu", g.values[0])


def _input_shape(g: Grower) -> tuple[int, ...]:
    kind = g.between(0, 9)
    if kind <= 4:
        return (g.one_of((1, 1, 1, 2, 3)), g.one_of(CHANNELS), g.between(1, 16), g.between(1, 16))
    if kind <= 6:
        return (g.one_of((1, 1, 2, 3)), g.between(1, 16), g.one_of((1, 4, 8, 16, 24, 33, 64)))
    if kind == 7:
        return (g.between(1, 17), g.one_of((1, 8, 16, 31, 64, 100)))
    return tuple(g.between(1, 7) for _ in range(g.between(0, 5)))
