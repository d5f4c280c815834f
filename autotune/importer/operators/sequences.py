"""LSTMs that one kernel runs through: no peepholes, lengths, clipping or unusual activations, and constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.operators.frontend import Inputs, converts
from schedules.templates.recurrent import LANES, UNITS, VECTORS, lstm_steps


@converts("LSTM")
def lstm(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Per direction: one matrix product for the inputs of all steps, then the kernel of all steps."""
    x, weights, bias = inputs[0], [_array(value) for value in inputs[1:3]], inputs[3]
    count, rows, width = weights[0].shape
    hidden = rows // 4
    steps, batch, _ = (int(extent) for extent in x.ty.shape)  # type: ignore[union-attr]
    biases = _array(bias) if bias is not None else np.zeros((count, 2 * rows), np.float32)
    kind = attrs.get("direction", b"forward").decode()
    flat = bb.normalize(relax.op.reshape(x, (steps * batch, width)))
    states, last_h, last_c = [], [], []
    for index in range(count):
        backwards = kind == "reverse" or index == 1
        w, r = (_packed(weight[index], hidden) for weight in weights)
        shift = _packed((biases[index, :rows] + biases[index, rows:])[:, None], hidden).reshape(-1)
        product = bb.emit(relax.op.matmul(flat, relax.const(w)))
        gates = bb.emit(relax.op.add(product, relax.const(shift)))
        chunks = hidden // UNITS
        shaped = bb.emit(relax.op.reshape(gates, (steps, batch, chunks, VECTORS, LANES)))
        recurrent = np.ascontiguousarray(r.reshape(hidden, chunks, VECTORS, LANES).transpose(1, 0, 2, 3))
        h, c = (_state(bb, inputs[place], index, batch, hidden) for place in (5, 6))
        kernel = bb.add_func(lstm_steps(steps, batch, hidden, backwards), "lstm_steps")
        made = relax.TensorType((2, steps + 1, batch, hidden), "float32")
        out = bb.emit(relax.op.call_tir(kernel, relax.Tuple([shaped, relax.const(recurrent), h, c]), made))
        first = 0 if backwards else 1
        states.append(_rows(bb, out, 0, first, first + steps))
        end = 0 if backwards else steps
        last_h.append(_rows(bb, out, 0, end, end + 1))
        last_c.append(_rows(bb, out, 1, end, end + 1))
    shape = (count, batch, hidden)
    whole = [bb.emit(relax.op.reshape(value, (steps, 1, batch, hidden))) for value in states]
    results = [whole[0] if count == 1 else bb.emit(relax.op.concat(whole, axis=1))]
    for parts in (last_h, last_c):
        joined = parts[0] if count == 1 else bb.emit(relax.op.concat(parts, axis=1))
        results.append(bb.emit(relax.op.reshape(joined, shape)))
    return relax.Tuple(results)


def _array(value: relax.Expr | None) -> NDArray[Any]:
    if not isinstance(value, GenericConst):
        raise NotImplementedError("its weights are computed from the inputs; they must be constant")
    return np.asarray(value.value.numpy())


def _packed(weight: NDArray[Any], hidden: int) -> NDArray[Any]:
    """(4 · hidden, k) in ONNX's order of gates → (k, 4 · hidden), the gates of every chunk of units side by side."""
    parts = weight.reshape(4, hidden // UNITS, UNITS, -1).transpose(3, 1, 0, 2)
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
