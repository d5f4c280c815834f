"""LSTM and GRU by NumPy, on weights as the kernels of ``recurrent.py`` have them, and cases of those kernels."""

from functools import partial

import numpy as np

from schedules.lower import normalise
from schedules.templates.by_hand.byte_recurrent import byte_lstm_steps
from schedules.templates.by_hand.recurrent_steps import UNITS, gru_steps, lstm_steps
from tests.schedules_tests.programs import Case


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)  # without an overflow of exp


def gates_of(packed, gates):
    """(…, chunks, vectors, lanes) → one (…, hidden) per gate."""
    whole = packed.reshape(*packed.shape[:-2], gates, UNITS)
    return [whole[..., gate, :].reshape(*whole.shape[:-3], -1) for gate in range(gates)]


def matrices_of(r, gates):
    """(chunks, hidden, vectors, lanes) → one (hidden, hidden) per gate."""
    return gates_of(np.moveaxis(r, 1, 0), gates)


def order(steps, backwards):
    """(row of the initial state, [(step, row that it reads, row that it writes)])."""
    if backwards:
        return steps, [(t, t + 1, t) for t in reversed(range(steps))]
    return 0, [(t, t, t + 1) for t in range(steps)]


def lstm(x, r, h0, c0, backwards=False):
    out = np.zeros((2, len(x) + 1, *h0.shape), np.float32)
    start, walk = order(len(x), backwards)
    out[0, start], out[1, start] = h0, c0
    xs, rs = gates_of(x, 4), matrices_of(r, 4)
    for t, before, after in walk:
        i, o, f, g = (xs[k][t] + out[0, before] @ rs[k] for k in range(4))
        out[1, after] = sigmoid(f) * out[1, before] + sigmoid(i) * np.tanh(g)
        out[0, after] = sigmoid(o) * np.tanh(out[1, after])
    return out


def quantised(h):
    """(uint8 h, its scale, its zero point), as DynamicQuantizeLinear makes them."""
    low, high = min(h.min(), np.float32(0)), max(h.max(), np.float32(0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.rint(-low / scale)
    return np.clip(np.rint(h / scale) + zero, 0, 255).astype(np.int64), scale, int(zero)


def byte_lstm(x, r, scale, sums, h0, c0, backwards=False):
    out = np.zeros((2, len(x) + 1, *h0.shape), np.float32)
    start, walk = order(len(x), backwards)
    out[0, start], out[1, start] = h0, c0
    chunks, quarter, vectors, lanes, _ = r.shape
    rows = r.transpose(0, 1, 4, 2, 3).reshape(chunks, 4 * quarter, vectors, lanes)
    xs, rs, scales = gates_of(x, 4), matrices_of(rows.astype(np.int64), 4), gates_of(scale, 4)
    corrections = [gates_of(own_sums.astype(np.int64), 4) for own_sums in sums]
    for t, before, after in walk:
        q, step, zero = quantised(out[0, before])
        gates = []
        for k in range(4):
            total = q @ rs[k] - zero * corrections[0][k]
            if len(sums) > 1:
                total -= (q - zero).sum(1, keepdims=True) * corrections[1][k]
            gates.append(xs[k][t] + total.astype(np.float32) * (step * scales[k]))
        i, o, f, g = gates
        out[1, after] = sigmoid(f) * out[1, before] + sigmoid(i) * np.tanh(g)
        out[0, after] = sigmoid(o) * np.tanh(out[1, after])
    return out


def gru(x, r, bias, h0, backwards=False):
    out = np.zeros((1, len(x) + 1, *h0.shape), np.float32)
    start, walk = order(len(x), backwards)
    out[0, start] = h0
    xs, rs = gates_of(x, 3), matrices_of(r, 3)
    for t, before, after in walk:
        h = out[0, before]
        z, reset = (sigmoid(xs[k][t] + h @ rs[k]) for k in (0, 1))
        n = np.tanh(xs[2][t] + reset * (h @ rs[2] + bias.reshape(-1)))
        out[0, after] = n + z * (h - n)
    return out


RECURRENT = (
    Case("recurrent_lstm", "recurrent", lambda: normalise(lstm_steps(3, 2, 64, False)), lstm),
    Case(
        "recurrent_lstm_backwards",
        "recurrent",
        lambda: normalise(lstm_steps(3, 1, 96, True)),
        partial(lstm, backwards=True),
    ),
    Case("recurrent_bytes", "recurrent", lambda: normalise(byte_lstm_steps(3, 2, 64, False)), byte_lstm),
    Case(
        "recurrent_bytes_backwards",
        "recurrent",
        lambda: normalise(byte_lstm_steps(3, 4, 32, True, shifted=True)),
        partial(byte_lstm, backwards=True),
    ),
    Case("recurrent_gru", "recurrent", lambda: normalise(gru_steps(3, 2, 64, False)), gru),
)
