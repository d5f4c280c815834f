"""LSTMs that one kernel runs through, by weights of 8 bits: X and h are quantised as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from autotune.importer.onnx_model.shapes import BYTE_LSTM
from autotune.importer.operators.contractions.integer_products import ByteWeight, matmul_integer, wanted_type
from autotune.importer.operators.sequences import by_chunk, filled, fixed, recurrent, results_of, state_of
from autotune.importer.rewriting.registry import BY_HAND, Inputs, converts
from schedules.templates.cpu.recurrent import LANES, UNITS, byte_lstm_steps

Array = NDArray[Any]

CLOSED = 1e9
"""A gate is 0 at minus this, whatever h·R adds: states behind a sequence's end are 0."""


@converts(BYTE_LSTM)
def byte_recurrent(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Per direction: one integer product for the inputs of all steps, then the kernel of all steps.

    Targets that have no such kernel, or none for unsigned activations, get an LSTM with the numbers that bytes stand
    for.
    """
    q, scale, zero, bias, *states, alive = (inputs[place] for place in (0, 1, 2, 9, 10, 11, 12))
    weights = [[fixed(value) for value in inputs[first : first + 3]] for first in (3, 6)]
    if not attrs["tvm_custom"][BY_HAND] or wanted_type(attrs) != "uint8":
        attrs["tvm_custom"]["kind"] = "LSTM"
        x = relax.op.subtract(relax.op.astype(q, "float32"), relax.op.astype(zero, "float32"))
        numbers = [relax.const(_numbers(*weight)) for weight in weights]
        return recurrent(bb, [bb.emit(relax.op.multiply(x, scale)), *numbers, bias, None, *states], attrs, opset)
    steps, batch, width = (int(extent) for extent in q.ty.shape)  # type: ignore[union-attr]
    count, units, rows = weights[1][0].shape
    biases = filled(fixed(bias), 8, 1) if bias else np.zeros((count, 2 * (rows + 4 * (-units % UNITS))), np.float32)
    flat = bb.normalize(relax.op.reshape(q, (steps * batch, width)))
    direction = attrs.get("direction", b"forward").decode()
    outs = []
    for index in range(count):
        backwards = direction == "reverse" or index == 1
        own, scales, zeros = (_by_column(array, index, rows) for array in weights[0])
        product = matmul_integer(bb, [flat, relax.const(own), zero, relax.const(zeros[0]), None], attrs, opset)
        hidden = own.shape[1] // 4
        factor = bb.emit(relax.op.multiply(scale, relax.const(scales[0])))
        gates = bb.emit(relax.op.multiply(relax.op.astype(product, "float32"), factor))
        shift = by_chunk((biases[index, : 4 * hidden] + biases[index, 4 * hidden :])[:, None], 4).reshape(-1)
        shape = (steps, batch, hidden // UNITS, 4 * UNITS // LANES, LANES)
        gates = bb.emit(relax.op.add(gates, relax.const(shift)))
        if alive is not None:
            closed = relax.const(np.float32(-CLOSED))
            gates = bb.emit(relax.op.where(relax.op.reshape(alive, (steps * batch, 1)), gates, closed))
        operands = [bb.emit(relax.op.reshape(gates, shape))]
        recurrence, scales, zeros = (_by_column(array, index, rows) for array in weights[1])
        form = ByteWeight.of(np.pad(recurrence, ((0, hidden - units), (0, 0))), zeros[0], 1)
        sums = np.stack([form.values.sum(0, dtype=np.int64), form.zero][: 1 + form.zero.any()]).astype(np.int32)
        panels = form.values.reshape(hidden // 4, 4, *shape[2:]).transpose(2, 0, 3, 4, 1)
        arrays = (np.ascontiguousarray(panels), scales.reshape(shape[2:]), sums.reshape(-1, *shape[2:]))
        operands += [relax.const(array) for array in arrays]
        operands += [state_of(bb, state, index, (batch, units), hidden) for state in states]
        func = byte_lstm_steps(steps, batch, hidden, backwards, shifted=len(sums) > 1)
        kernel = bb.add_func(func.without_attr("global_symbol"), "byte_lstm_steps")
        shape_of_states = relax.TensorType((2, steps + 1, batch, hidden), "float32")
        outs.append((bb.emit(relax.op.call_tir(kernel, relax.Tuple(operands), shape_of_states)), backwards))
    return results_of(bb, outs, (steps, batch, units), 2)


def _numbers(weight: Array, scale: Array, zero: Array) -> Array:
    """(directions, gates · hidden, k): what 8-bit weights (directions, k, gates · hidden) stand for, in fp32."""
    spread = (len(weight), 1, -1)
    numbers = (weight.astype(np.float32) - zero.reshape(spread).astype(np.float32)) * scale.reshape(spread)
    return np.ascontiguousarray(numbers.transpose(0, 2, 1))


def _by_column(values: Array, index: int, columns: int) -> Array:
    """(k, gates · hidden) of one direction, as ``by_chunk`` orders it, of weights.

    Scales and zero points, (directions,) or (directions, gates · hidden), have k = 1.
    """
    one = values[index] if values.ndim == 3 else np.broadcast_to(values[index], (1, columns))
    return by_chunk(filled(np.ascontiguousarray(one.T), 4, 0), 4)
