"""LSTMs and GRUs that one kernel runs through: usual activations, no peepholes, lengths or clipping, fixed weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.operators.recurrent_ops import GATES
from autotune.importer.rewriting.registry import Inputs, converts
from schedules.errors import ModelError
from schedules.templates.cpu.recurrent import LANES, UNITS, gru_steps, lstm_steps

Array = NDArray[Any]


@converts("LSTM", "GRU")
def recurrent(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Per direction: one matrix product for the inputs of all steps, then the kernel of all steps."""
    kind = str(attrs["tvm_custom"]["kind"])
    x, weight, recurrence = inputs[0], _array(inputs[1]), _array(inputs[2])
    gates, (count, rows, width) = GATES[kind], weight.shape
    hidden = rows // gates
    steps, batch, _ = (int(extent) for extent in x.ty.shape)  # type: ignore[union-attr]
    biases = _array(inputs[3]) if inputs[3] is not None else np.zeros((count, 2 * rows), np.float32)
    direction = attrs.get("direction", b"forward").decode()
    flat = bb.normalize(relax.op.reshape(x, (steps * batch, width)))
    outs = []
    for index in range(count):
        backwards = direction == "reverse" or index == 1
        ours, theirs = biases[index, :rows], biases[index, rows:].copy()
        kept = np.zeros(0, np.float32)
        if kind == "GRU":  # the last gate's bias comes after the reset
            kept, theirs[2 * hidden :] = theirs[2 * hidden :].copy(), 0
        shift = _packed((ours + theirs)[:, None], gates).reshape(-1)
        # The type that is said keeps it out of the products that may be in bf16 (layouts/precision.py).
        product = bb.emit(relax.op.matmul(flat, relax.const(_packed(weight[index], gates)), out_dtype="float32"))
        shape = (steps, batch, hidden // UNITS, gates * UNITS // LANES, LANES)
        given = [bb.emit(relax.op.reshape(bb.emit(relax.op.add(product, relax.const(shift))), shape))]
        packed = _packed(recurrence[index], gates).reshape(hidden, *shape[2:])
        given.append(relax.const(np.ascontiguousarray(packed.transpose(1, 0, 2, 3))))
        if kind == "GRU":
            given.append(relax.const(kept.reshape(-1, UNITS // LANES, LANES)))
        states = 2 if kind == "LSTM" else 1
        given += [_state(bb, inputs[5 + place], index, batch, hidden) for place in range(states)]
        make = lstm_steps if kind == "LSTM" else gru_steps
        kernel = bb.add_func(
            make(steps, batch, hidden, backwards).without_attr("global_symbol"), f"{kind.lower()}_steps"
        )
        made = relax.TensorType((states, steps + 1, batch, hidden), "float32")
        outs.append((bb.emit(relax.op.call_tir(kernel, relax.Tuple(given), made)), backwards))
    return _results(bb, outs, (steps, batch, hidden), 2 if kind == "LSTM" else 1)


def _results(
    bb: relax.BlockBuilder, outs: list[tuple[relax.Expr, bool]], shape: tuple[int, int, int], states: int
) -> relax.Expr:
    """All states (steps, directions, batch, hidden), then the last of each kind (directions, batch, hidden)."""
    steps, batch, hidden = shape

    def joined(which: int, last: bool, axis: int, each: tuple[int, ...]) -> relax.Expr:
        parts = []
        for out, backwards in outs:
            start = (0 if backwards else steps) if last else (0 if backwards else 1)
            rows = _rows(bb, out, which, start, start + (1 if last else steps))
            parts.append(bb.emit(relax.op.reshape(rows, each)))
        return parts[0] if len(parts) == 1 else bb.emit(relax.op.concat(parts, axis=axis))

    whole = joined(0, False, 1, (steps, 1, batch, hidden))
    return relax.Tuple([whole, *(joined(which, True, 0, (1, batch, hidden)) for which in range(states))])


def _array(value: relax.Expr | None) -> Array:
    if not isinstance(value, GenericConst):
        raise ModelError("its weights are computed from the inputs; they must be constant")
    return np.asarray(value.value.numpy())


def _packed(weight: Array, gates: int) -> Array:
    """(gates · hidden, k) in ONNX's order of gates → (k, gates · hidden), the gates of every chunk side by side."""
    parts = weight.reshape(gates, -1, UNITS, weight.shape[-1]).transpose(3, 1, 0, 2)
    return np.ascontiguousarray(parts.reshape(weight.shape[-1], -1))


def _state(bb: relax.BlockBuilder, value: relax.Expr | None, index: int, batch: int, hidden: int) -> relax.Expr:
    """(batch, hidden) of one direction."""
    if value is None:
        return relax.const(np.zeros((batch, hidden), np.float32))
    one = bb.emit(relax.op.strided_slice(value, [0], [index], [index + 1]))
    return bb.emit(relax.op.reshape(one, (batch, hidden)))


def _rows(bb: relax.BlockBuilder, out: relax.Expr, which: int, start: int, stop: int) -> relax.Expr:
    """Rows of h (0) or c (1)."""
    return bb.emit(relax.op.strided_slice(out, [0, 1], [which, start], [which + 1, stop]))
