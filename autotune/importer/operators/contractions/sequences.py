"""LSTMs and GRUs that one kernel runs through: usual activations, no peepholes, lengths or clipping, fixed weights.

Where weights are of 8 bits, X and h are quantised as ONNX Runtime does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from autotune.importer.onnx_model.scope import Array
from autotune.importer.onnx_model.shapes import BYTE_LSTM
from autotune.importer.operators.contractions.integer_products import ByteWeight, matmul_integer, wanted_type
from autotune.importer.operators.recurrent_ops import GATES, LENGTHS
from autotune.importer.rewriting.registry import BY_HAND, Inputs, converts
from autotune.importer.rewriting.relax_values import constant_of, kernel_call, sizes_of, text_of
from schedules.templates.by_hand.byte_recurrent import byte_lstm_steps
from schedules.templates.by_hand.recurrent_both_ways import MAKERS_BOTH
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS, gru_steps, lstm_steps
from schedules.vocabulary.errors import ModelError


@converts("LSTM", "GRU")
def recurrent(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Per direction: one matrix product for the inputs of all steps, then the kernel of all steps.

    A layer with ``LENGTHS`` is ``recurrent_ops.LIMITED``: its kernel computes so many steps, on a CPU.

    Hidden units are filled up to whole chunks: those of zero weights and states stay zero. Kernels of the CPU do not
    read their states.
    """
    kind = str(attrs["tvm_custom"]["kind"])
    gates, x = GATES[kind], inputs[0]
    weight, recurrence = filled(fixed(inputs[1]), gates, 1), filled(fixed(inputs[2]), gates, 1)
    units, (count, rows, width) = fixed(inputs[1]).shape[1] // gates, weight.shape
    hidden = rows // gates
    if not attrs["tvm_custom"][BY_HAND]:
        recurrence = filled(recurrence, 1, 2)
    terms = recurrence.shape[2]
    steps, batch, _ = sizes_of(x)
    biases = filled(fixed(inputs[3]), 2 * gates, 1) if inputs[3] else np.zeros((count, 2 * rows), np.float32)
    direction = text_of(attrs, "direction")
    flat = bb.normalize(relax.op.reshape(x, (steps * batch, width)))
    if count == 2 and attrs["tvm_custom"][BY_HAND]:
        return _both_ways(bb, inputs, kind, (weight, recurrence, biases))
    outs = []
    for index in range(count):
        backwards = direction == "reverse" or index == 1
        ours, theirs = biases[index, :rows], biases[index, rows:].copy()
        kept = np.zeros(0, np.float32)
        if kind == "GRU":  # the last gate's bias comes after the reset
            kept, theirs[2 * hidden :] = theirs[2 * hidden :].copy(), 0
        shift = by_chunk((ours + theirs)[:, None], gates).reshape(-1)
        # The type that is said keeps it out of the products that may be in bf16 (layouts/precision.py).
        product = bb.emit(relax.op.matmul(flat, relax.const(by_chunk(weight[index], gates)), out_dtype="float32"))
        shape = (steps, batch, hidden // UNITS, gates * UNITS // LANES, LANES)
        operands = [bb.emit(relax.op.reshape(bb.emit(relax.op.add(product, relax.const(shift))), shape))]
        packed = by_chunk(recurrence[index], gates).reshape(terms, *shape[2:])
        operands.append(relax.const(np.ascontiguousarray(packed.transpose(1, 0, 2, 3))))
        if kind == "GRU":
            operands.append(relax.const(kept.reshape(-1, UNITS // LANES, LANES)))
        states = 2 if kind == "LSTM" else 1
        operands += [state_of(bb, inputs[5 + place], index, (batch, units), hidden) for place in range(states)]
        limited = inputs[LENGTHS] is not None and attrs["tvm_custom"][BY_HAND]
        operands += [_within(bb, inputs[LENGTHS], steps)] if limited else []
        make = lstm_steps if kind == "LSTM" else gru_steps
        kernel = make(steps, batch, terms, backwards, limited=limited)
        out_shape = (states, steps + 1, batch, hidden)
        outs.append((kernel_call(bb, kernel, f"{kind.lower()}_steps", operands, out_shape, "float32"), backwards))
    return results_of(bb, outs, (steps, batch, units), 2 if kind == "LSTM" else 1)


def _both_ways(bb: relax.BlockBuilder, inputs: Inputs, kind: str, weights: tuple[Array, Array, Array]) -> relax.Expr:
    """One matrix product for the inputs of all steps of both directions, then one kernel of all steps.

    Args:
        weights: W, R and biases, their hidden units filled up.
    """
    x, gates, (weight, recurrence, biases) = inputs[0], GATES[kind], weights
    steps, batch, width = sizes_of(x)
    rows, units = weight.shape[1], fixed(inputs[1]).shape[1] // gates
    hidden, chunks = rows // gates, rows // gates // UNITS
    ours, theirs = biases[:, :rows], biases[:, rows:].copy()
    kept = theirs[:, 2 * hidden :].copy()
    if kind == "GRU":  # the last gate's bias comes after the reset
        theirs[:, 2 * hidden :] = 0
    columns = [by_chunk(own, gates) for own in weight]
    shift = np.concatenate([by_chunk(own[:, None], gates).reshape(-1) for own in ours + theirs])
    flat = bb.emit(relax.op.reshape(x, (steps * batch, width)))
    product = bb.emit(relax.op.matmul(flat, relax.const(np.concatenate(columns, 1)), out_dtype="float32"))
    vectors = gates * UNITS // LANES
    shape = (steps, batch, 2 * chunks, vectors, LANES)
    operands = [bb.emit(relax.op.reshape(bb.emit(relax.op.add(product, relax.const(shift))), shape))]
    packed = [by_chunk(own, gates).reshape(units, chunks, vectors, LANES).transpose(1, 0, 2, 3) for own in recurrence]
    operands.append(relax.const(np.ascontiguousarray(np.concatenate(packed))))
    if kind == "GRU":
        operands.append(relax.const(kept.reshape(2 * chunks, UNITS // LANES, LANES)))
    states = 2 if kind == "LSTM" else 1
    operands += [_states_of(bb, inputs[5 + place], (2, batch, units), hidden) for place in range(states)]
    told = inputs[LENGTHS]
    last = relax.const(np.array([steps], np.int32)) if told is None else _within(bb, told, steps)
    kernel = MAKERS_BOTH[kind.lower()](steps, batch, units)
    out = kernel_call(
        bb, kernel, f"{kind.lower()}_both", [*operands, last], (states, steps + 2, 2 * batch, hidden), "float32"
    )
    whole = bb.emit(relax.op.strided_slice(out, [0, 1, 3], [0, 1, 0], [1, steps + 1, units]))
    results = [bb.emit(relax.op.reshape(whole, (steps, 2, batch, units)))]
    for which in range(states):
        row = bb.emit(relax.op.strided_slice(out, [0, 3], [which, 0], [which + 1, units]))
        row = bb.emit(relax.op.reshape(row, (steps + 2, 2, batch, units)))
        first = bb.emit(relax.op.strided_slice(row, [0, 1], [1, 1], [2, 2]))
        ahead = bb.emit(relax.op.strided_slice(row, [1], [0], [1]))
        final = bb.emit(relax.op.take(ahead, last, axis=0))
        results.append(bb.emit(relax.op.reshape(bb.emit(relax.op.concat([final, first], axis=1)), (2, batch, units))))
    return relax.Tuple(results)


def _within(bb: relax.BlockBuilder, count: relax.Expr, steps: int) -> relax.Expr:
    """A number of steps from 0 to ``steps``, whatever a caller says: kernels write a row for each."""
    least, most = (relax.const(np.int32(number)) for number in (0, steps))
    return bb.emit(relax.op.minimum(bb.emit(relax.op.maximum(count, least)), most))


def _states_of(
    bb: relax.BlockBuilder, value: relax.Expr | None, shape: tuple[int, int, int], hidden: int
) -> relax.Expr:
    """(2 · batch, hidden) of both directions, of a state of ``shape`` (2, batch, units)."""
    count, batch, units = shape
    if value is None:
        return relax.const(np.zeros((count * batch, hidden), np.float32))
    flat = bb.emit(relax.op.reshape(value, (count * batch, units)))
    return flat if units == hidden else bb.emit(relax.op.nn.pad(flat, [0, 0, 0, hidden - units]))


def results_of(
    bb: relax.BlockBuilder, outs: list[tuple[relax.Expr, bool]], shape: tuple[int, int, int], states: int
) -> relax.Expr:
    """All states (steps, directions, batch, hidden), then the last of each kind (directions, batch, hidden)."""
    steps, batch, hidden = shape

    def joined(which: int, last: bool, axis: int, part_shape: tuple[int, ...]) -> relax.Expr:
        parts = []
        for out, backwards in outs:
            start = (0 if backwards else steps) if last else (0 if backwards else 1)
            stop = start + (1 if last else steps)  # of h (0) or c (1), rows and hidden units
            rows = bb.emit(relax.op.strided_slice(out, [0, 1, 3], [which, start, 0], [which + 1, stop, hidden]))
            parts.append(bb.emit(relax.op.reshape(rows, part_shape)))
        return parts[0] if len(parts) == 1 else bb.emit(relax.op.concat(parts, axis=axis))

    whole = joined(0, False, 1, (steps, 1, batch, hidden))
    return relax.Tuple([whole, *(joined(which, True, 0, (1, batch, hidden)) for which in range(states))])


def fixed(value: relax.Expr | None) -> Array:
    """The value of a weight.

    Raises:
        ModelError: if it is computed from the inputs.
    """
    if (array := constant_of(value)) is None:
        raise ModelError("its weights are computed from the inputs; they must be constant")
    return array


def by_chunk(weight: Array, gates: int) -> Array:
    """(gates · hidden, k) in ONNX's order of gates → (k, gates · hidden), the gates of every chunk side by side."""
    parts = weight.reshape(gates, -1, UNITS, weight.shape[-1]).transpose(3, 1, 0, 2)
    return np.ascontiguousarray(parts.reshape(weight.shape[-1], -1))


def filled(weight: Array, gates: int, axis: int) -> Array:
    """``weight`` with zeros behind the hidden units of each of ``gates`` along ``axis``, up to whole chunks."""
    units = weight.shape[axis] // gates
    if not (more := -units % UNITS):
        return weight
    parts = weight.reshape(*weight.shape[:axis], gates, units, *weight.shape[axis + 1 :])
    pads = [(0, more if at == axis + 1 else 0) for at in range(parts.ndim)]
    shape = (*weight.shape[:axis], gates * (units + more), *weight.shape[axis + 1 :])
    return np.ascontiguousarray(np.pad(parts, pads).reshape(shape))


def state_of(
    bb: relax.BlockBuilder, value: relax.Expr | None, index: int, shape: tuple[int, int], hidden: int
) -> relax.Expr:
    """(batch, hidden) of one direction, of a state whose ``shape`` is (batch, units)."""
    batch, units = shape
    if value is None:
        return relax.const(np.zeros((batch, hidden), np.float32))
    one = bb.emit(relax.op.reshape(bb.emit(relax.op.strided_slice(value, [0], [index], [index + 1])), shape))
    return one if units == hidden else bb.emit(relax.op.nn.pad(one, [0, 0, 0, hidden - units]))


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
        kernel = byte_lstm_steps(steps, batch, hidden, backwards, shifted=len(sums) > 1)
        out_shape = (2, steps + 1, batch, hidden)
        outs.append((kernel_call(bb, kernel, "byte_lstm_steps", operands, out_shape, "float32"), backwards))
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
