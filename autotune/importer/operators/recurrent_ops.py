"""LSTM, GRU and RNN, step by step: every form that ONNX allows.

Notation of the ONNX documents: X (steps, batch, inputs), W and R input and recurrent weights of one direction, B both
biases, P peepholes, h and c states. The product of all steps with W is one matrix product before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from autotune.importer.onnx_model.graph_walk import reads
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import BYTE_LSTM
from autotune.importer.rewriting.emit import HALVES, Emit, Node
from autotune.importer.rewriting.folding import made_of_constants
from autotune.importer.rewriting.registry import rewrites

MOST_STEPS = 2048
"""Steps laid out flat; more would take minutes to compile. Heuristic, not measured."""


LENGTHS = 4
"""Number of the input that is no float: the steps of every sequence."""

LIMITED = "tune_limited"
"""Attribute of a layer whose ``LENGTHS``, (1,) of int32, is how many steps its kernel computes."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}

NODES_A_STEP = {"LSTM": 20, "GRU": 18, "RNN": 5}
"""Nodes of one step, about."""

Activation = Callable[[str], str]


@dataclass(frozen=True)
class Direction:
    """One direction's weights as values of the graph, and how it walks.

    Attributes:
        x: (steps, batch, gates · hidden), the input's share of all gates, biases of W added.
        r: (hidden, gates · hidden).
        rb: (gates · hidden,) biases of R; "" where they were added to ``x``.
        h, c: (batch, hidden) states to begin with.
        p: peepholes i, o, f, each (hidden,); empty without.
        lengths: (batch, 1) steps of every sequence; "" where all are whole.
    """

    x: str
    r: str
    rb: str
    h: str
    c: str
    p: tuple[str, ...]
    lengths: str
    backwards: bool
    steps: int
    batch: int
    hidden: int
    activations: tuple[Activation, ...]
    clip: float


@rewrites("LSTM", "GRU", "RNN")
def recurrent(node: Node, e: Emit) -> list[str] | None:
    """Steps laid out flat, both directions joined, in the layout that was asked for."""
    if node.type(0) in HALVES:
        return _in_fp32(node, e)
    if in_one_kernel(node):
        if not node.input(LENGTHS) or node.attr(LIMITED):
            return None
        if all_whole(node):
            inputs = [name if place != LENGTHS else "" for place, name in enumerate(node.proto.input)]
            return e.ops(node.kind, *inputs, outputs=len(node.proto.output), **node.attributes)
        if _all_alike(node):
            return _ended(node, e)
        if not reads_cells(node):
            return cut_off(node, e, partial(_limited, node, e))
    sides = directions(node, e)
    batch_first = bool(node.attr("layout", 0))
    runs = [_run(node, e, side) for side in sides]
    states = e.concat([e.unsqueeze(run[0], 1) for run in runs], 1)  # (steps, directions, batch, hidden)
    last = [e.concat([e.unsqueeze(run[k], 0) for run in runs], 0) for k in (1, 2) if runs[0][k]]
    if batch_first:
        states = e.transpose(states, 2, 0, 1, 3)
        last = [e.transpose(state, 1, 0, 2) for state in last]
    return [states, *last]


def _all_alike(node: Node) -> bool:
    """Return whether the sequences of a layer that walks both ways are known to be equally long."""
    if node.attr("direction", "forward") != "bidirectional":
        return False
    maker = next((own for own in node.scope.graph.node if node.input(LENGTHS) in own.output), None)
    expands = maker is not None and maker.op_type == "Expand" and node.scope.shapes.get(maker.input[0]) in ((), (1,))
    return node.shape(0)[1] == 1 or expands


def _ended(node: Node, e: Emit) -> list[str]:
    """A layer all of whose sequences end at one step."""
    steps = node.shape(0)[0]
    last = e.reshape(e.reduce("ReduceMax", node.input(LENGTHS), [0]), 1)
    inputs = [last if place == LENGTHS else str(name) for place, name in enumerate(node.proto.input)]
    states, *ends = e.ops(node.kind, *inputs, outputs=len(node.proto.output), **{**node.attributes, LIMITED: 1})
    numbers = e.const(np.arange(steps, dtype=np.int64).reshape(steps, 1, 1, 1))
    alive = e.op("Less", numbers, e.cast(last, TensorProto.INT64))
    # ONNX Runtime gives zeros for sequences without steps, not the states to begin with.
    walks = e.op("Greater", last, e.const(np.int32(0)))
    return [e.op("Where", alive, states, e.like(0)), *(e.op("Where", walks, end, e.like(0)) for end in ends)]


def _limited(node: Node, e: Emit, x: str, own: Sequence[str], _: str) -> str:
    """A layer without lengths that ends with the longest sequence; its states behind that are not computed."""
    longest = e.op("ReduceMax", node.input(LENGTHS), keepdims=1)
    own = [longest if place + 1 == LENGTHS else name for place, name in enumerate(own)]
    return e.op(node.kind, x, *own, **{**one_way(node), LIMITED: 1})


def all_whole(node: Node) -> bool:
    """Return whether every sequence is known to have all steps."""
    lengths = node.array(LENGTHS)
    return lengths is not None and bool((lengths == node.shape(0)[1 if node.attr("layout", 0) else 0]).all())


def reads_cells(node: Node) -> bool:
    """Return whether anything reads the last cell state."""
    return node.wants(2) and bool(reads(node.scope.graph)[node.proto.output[2]])


def one_way(node: Node) -> dict[str, Any]:
    """The attributes of a layer that walks forwards only."""
    return {**node.attributes, "direction": "forward"}


Layer = Callable[[str, list[str], str], str]
"""(sequences, the other operands of one direction without lengths, whether each has a step (steps, batch, 1)) → states
of a layer that walks forwards."""


def cut_off(node: Node, e: Emit, layer: Layer) -> list[str]:
    """Sequences of several lengths as layers without lengths, which are one kernel each.

    A step does not depend on later ones, so walking on past the end of a sequence changes nothing before it. Backwards,
    every sequence is reversed, walked forwards and reversed again. The last state of either is the first of a reversal.
    """
    steps, batch, _ = node.shape(0)
    hidden = int(node.attr("hidden_size", node.shape(2)[-1]))
    lengths, ends = e.cast(node.input(LENGTHS), TensorProto.INT64), [e.const(np.int64(end)) for end in (0, steps)]
    lengths = e.op("Min", e.op("Max", lengths, ends[0]), ends[1])  # a caller may claim any
    numbers = e.const(np.arange(steps, dtype=np.int64).reshape(steps, 1, 1))
    alive = e.op("Less", numbers, e.reshape(lengths, 1, batch, 1))
    direction = str(node.attr("direction", "forward"))
    walks, last = [], []
    for index in range(2 if direction == "bidirectional" else 1):
        backwards = direction == "reverse" or index == 1
        x = e.op("ReverseSequence", node.input(0), lengths, time_axis=0) if backwards else node.input(0)
        own = [e.slice(name, 0, index, index + 1) if name else "" for name in map(str, node.proto.input[1:])]
        own[LENGTHS - 1] = ""
        all_states = e.reshape(layer(x, own, alive), steps, batch, hidden)
        states = e.op("Where", alive, all_states, e.like(0))
        turned = e.op("ReverseSequence", states, lengths, time_axis=0)
        walks.append(e.unsqueeze(turned if backwards else states, 1))
        last.append(e.slice(turned, 0, 0, 1))
    return [e.concat(walks, 1), e.concat(last, 0), *(last[:1] if node.wants(2) else [])][: len(node.proto.output)]


def _in_fp32(node: Node, e: Emit) -> list[str]:
    """The operator in fp32: what it makes is rounded once, and not the states of every step."""
    inputs = [str(name) for name in node.proto.input]
    wide = [e.cast(name, TensorProto.FLOAT) if name and place != LENGTHS else name for place, name in enumerate(inputs)]
    outputs = e.ops(node.kind, *wide, outputs=len(node.proto.output), **node.attributes)
    return [e.cast(name, node.type(0)) for name in outputs]


MOST_ROWS = 8
"""Batch up to which a step is bound by reading R and not by arithmetic, so that all steps are one kernel. Heuristic,
not measured."""

NARROW, MOST_NARROW_ROWS = 256, 64
"""Hidden units up to which R of an LSTM takes 1 MiB, which a core's L2 holds, and the batch up to which all steps are
one kernel then: rows read R from there, and a step laid out is a dozen kernels. Several rows share what is read of an
R of bytes, however wide. Heuristic, not measured."""


def in_one_kernel(node: Node) -> bool:
    """Return whether ``sequences`` takes it, without lengths. Large weights are folded once the model has them."""
    if node.kind == "RNN" or (node.kind == "GRU" and not node.attr("linear_before_reset", 0)):
        return False
    usual = not any(node.attr(name) for name in ("activations", "clip", "input_forget", "layout"))
    shape, hidden = node.known_shape(0), int(node.attr("hidden_size", node.shape(2)[-1]))
    weights = {str(name) for name in node.proto.input[1:4] if name}
    return (
        usual
        and shape is not None
        and shape[1] <= (MOST_NARROW_ROWS if hidden <= NARROW or node.kind == BYTE_LSTM else MOST_ROWS)
        and node.type(0) == TensorProto.FLOAT
        and not node.input(7)
        and weights <= made_of_constants(node.scope.graph, node.scope.given)
    )


def laid_out(model: ModelProto) -> int:
    """About the nodes that the steps of the model's recurrent layers become at most."""
    scope, count = Scope(model), 0
    for proto in model.graph.node:
        shape = scope.shapes.get(proto.input[0], ()) if proto.op_type in GATES else ()
        if len(shape) == 3:
            node = Node(proto, scope)
            both = 2 if node.attr("direction", "forward") == "bidirectional" else 1
            count += both * NODES_A_STEP[node.kind] * min(shape[1 if node.attr("layout", 0) else 0], MOST_STEPS)
    return count


def directions(node: Node, e: Emit) -> list[Direction]:
    """Return the operands of every direction, the product with W included."""
    hidden = int(node.attr("hidden_size", node.shape(2)[-1]))
    data = node.input(0)
    shape = node.shape(0)
    if len(shape) != 3:
        raise node.refused(f"its input {data!r} has shape {list(shape)}, not that of a sequence of batches")
    if node.attr("layout", 0):
        data, shape = e.transpose(data, 1, 0, 2), (shape[1], shape[0], shape[2])
    steps, batch, inputs = shape
    if steps > MOST_STEPS:
        raise node.refused(f"{steps} steps; at most {MOST_STEPS} are supported")
    kind = str(node.attr("direction", "forward"))
    count = 2 if kind == "bidirectional" else 1
    names = _activations(node, count)
    gates = GATES[node.kind]
    lengths = "" if not node.input(4) else e.reshape(e.cast(node.input(4), TensorProto.INT64), batch, 1)
    if all_whole(node):
        lengths = ""
    sides = []
    for index in range(count):

        def part(position: int, axis: int = 0, index: int = index) -> str:
            return e.op("Gather", node.input(position), e.const(np.int64(index)), axis=axis)

        def state(position: int) -> str:
            if not node.input(position):
                return e.const(np.zeros((batch, hidden), node.dtype(0)))
            return part(position, 1 if node.attr("layout", 0) else 0)

        flat = e.reshape(data, steps * batch, inputs)
        x = e.op("MatMul", flat, e.transpose(part(1), 1, 0))
        rb = ""
        if node.input(3):
            wb, rb = e.split(part(3), [gates * hidden, gates * hidden], 0)
            x = e.op("Add", x, wb)
            if node.kind != "GRU" or not node.attr("linear_before_reset", 0):
                x, rb = e.op("Add", x, rb), ""
        peepholes = tuple(e.split(part(7), [hidden] * 3, 0)) if node.kind == "LSTM" and node.input(7) else ()
        sides.append(
            Direction(
                e.reshape(x, steps, batch, gates * hidden),
                e.transpose(part(2), 1, 0),
                rb,
                state(5),
                state(6) if node.kind == "LSTM" else "",
                peepholes,
                lengths,
                kind == "reverse" or index == 1,
                steps,
                batch,
                hidden,
                tuple(_activation(node, e, *spec) for spec in names[index]),
                float(node.attr("clip", 0.0)),
            )
        )
    return sides


def _activations(node: Node, count: int) -> list[list[tuple[str, float | None, float | None]]]:
    """Per direction: name, alpha and beta of every activation."""
    defaults = DEFAULTS[node.kind]
    names = [str(name) for name in node.attr("activations", None) or [*defaults] * count]
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    specs: list[tuple[str, float | None, float | None]] = []
    for name in names:
        title = name[:1].upper() + name[1:]
        alpha = alphas.pop(0) if alphas and title in TAKES_ALPHA else None
        beta = betas.pop(0) if betas and title in TAKES_BETA else None
        specs.append((title, alpha, beta))
    size = len(defaults)
    return [specs[index * size : (index + 1) * size] for index in range(count)]


TAKES_ALPHA = {"LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Affine"}
TAKES_BETA = {"ScaledTanh", "HardSigmoid", "Affine"}
OPERATORS = ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu")
"""Activations that are ONNX's operators of the same name."""


def _activation(node: Node, e: Emit, name: str, alpha: float | None, beta: float | None) -> Activation:
    lowered = name.lower()
    if (kind := next((operator for operator in OPERATORS if operator.lower() == lowered), None)) is not None:
        more = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if value is not None}
        return lambda x: e.op(kind, x, **more)
    if lowered == "affine":
        return lambda x: e.op("Add", e.op("Mul", x, e.like(alpha or 1.0)), e.like(beta or 0.0))
    if lowered == "scaledtanh":
        return lambda x: e.op("Mul", e.op("Tanh", e.op("Mul", x, e.like(beta or 1.0))), e.like(alpha or 1.0))
    raise node.refused(f"activation {name!r}")


def _run(node: Node, e: Emit, side: Direction) -> tuple[str, str, str]:
    """All states (steps, batch, hidden), the last one, and the last cell state ("" if there is none)."""
    h, c = side.h, side.c
    states: list[str] = [""] * side.steps
    step = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[node.kind]
    for index in range(side.steps):
        time = side.steps - 1 - index if side.backwards else index
        x = e.op("Gather", side.x, e.const(np.int64(time)), axis=0)
        new_h, new_c = step(node, e, side, x, h, c)
        states[time] = new_h
        if side.lengths:
            alive = e.op("Less", e.const(np.int64(time)), side.lengths)
            states[time] = e.op("Where", alive, new_h, e.like(0))
            new_h = e.op("Where", alive, new_h, h)
            new_c = e.op("Where", alive, new_c, c) if new_c else ""
        h, c = new_h, new_c
    if side.lengths:  # ONNX Runtime's last states of an empty sequence are zeros, not the first states
        some = e.op("Greater", side.lengths, e.const(np.int64(0)))
        h, c = (e.op("Where", some, state, e.like(0)) if state else "" for state in (h, c))
    return e.concat([e.unsqueeze(value, 0) for value in states], 0), h, c


def _clipped(e: Emit, side: Direction, x: str) -> str:
    return e.op("Clip", x, e.like(-side.clip), e.like(side.clip)) if side.clip else x


def _lstm(node: Node, e: Emit, side: Direction, x: str, h: str, c: str) -> tuple[str, str]:
    """i, o, f = σ(x + h·R + p∘c), g = tanh(…), c' = f∘c + i∘g, h' = o∘tanh(c'); o peeps at c'."""
    gates = e.op("Add", x, e.op("MatMul", h, side.r))
    i, o, f, g = e.split(gates, [side.hidden] * 4, 1)
    first, second, third = side.activations
    if side.p:
        i = e.op("Add", i, e.op("Mul", side.p[0], c))
        f = e.op("Add", f, e.op("Mul", side.p[2], c))
    i = first(_clipped(e, side, i))
    f = e.op("Sub", e.like(1), i) if node.attr("input_forget", 0) else first(_clipped(e, side, f))
    g = second(_clipped(e, side, g))
    new = e.op("Add", e.op("Mul", f, c), e.op("Mul", i, g))
    if side.p:
        o = e.op("Add", o, e.op("Mul", side.p[1], new))
    o = first(_clipped(e, side, o))
    return e.op("Mul", o, third(new)), new


def _gru(node: Node, e: Emit, side: Direction, x: str, h: str, c: str) -> tuple[str, str]:
    """z, r = σ(x + h·R), n = tanh(x + (r∘h)·R) or tanh(x + r∘(h·R + b)), h' = (1 − z)∘n + z∘h."""
    size = side.hidden
    first, second = side.activations
    xz, xr, xn = e.split(x, [size] * 3, 1)
    if node.attr("linear_before_reset", 0):
        hidden = e.op("MatMul", h, side.r)
        hidden = e.op("Add", hidden, side.rb) if side.rb else hidden
        hz, hr, hn = e.split(hidden, [size] * 3, 1)
        z = first(_clipped(e, side, e.op("Add", xz, hz)))
        r = first(_clipped(e, side, e.op("Add", xr, hr)))
        n = second(_clipped(e, side, e.op("Add", xn, e.op("Mul", r, hn))))
    else:
        both, last = e.split(side.r, [2 * size, size], 1)
        hz, hr = e.split(e.op("MatMul", h, both), [size] * 2, 1)
        z = first(_clipped(e, side, e.op("Add", xz, hz)))
        r = first(_clipped(e, side, e.op("Add", xr, hr)))
        n = second(_clipped(e, side, e.op("Add", xn, e.op("MatMul", e.op("Mul", r, h), last))))
    keep = e.op("Mul", z, h)
    return e.op("Add", e.op("Mul", e.op("Sub", e.like(1), z), n), keep), ""


def _rnn(node: Node, e: Emit, side: Direction, x: str, h: str, c: str) -> tuple[str, str]:
    """h' = tanh(x + h·R)."""
    return side.activations[0](_clipped(e, side, e.op("Add", x, e.op("MatMul", h, side.r)))), ""
