"""All steps of an LSTM or a GRU in one kernel, however its chunks are dealt to threads and whichever way it walks."""

import numpy as np
import pytest

from schedules.lower import BASELINE, claim, is_scheduled, lower, normalise
from schedules.target import Target
from schedules.templates.cpu.recurrent import LANES, UNITS, gru_steps, lstm_steps
from tests.schedules_tests.programs import run

STEPS, BATCH, CHUNKS = 5, 2, 6
HIDDEN = CHUNKS * UNITS


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gates_of(packed, gates):
    """(…, chunks, vectors, lanes) → one (…, hidden) per gate."""
    whole = packed.reshape(*packed.shape[:-3], CHUNKS, gates, UNITS)
    return [whole[..., gate, :].reshape(*whole.shape[:-3], HIDDEN) for gate in range(gates)]


def matrices_of(r, gates):
    """(chunks, hidden, vectors, lanes) → one (hidden, hidden) per gate."""
    return gates_of(np.moveaxis(r, 1, 0), gates)


def order(backwards):
    """(row of the initial state, [(step, row that it reads, row that it writes)])."""
    if backwards:
        return STEPS, [(t, t + 1, t) for t in reversed(range(STEPS))]
    return 0, [(t, t, t + 1) for t in range(STEPS)]


def lstm(x, r, h0, c0, backwards):
    out = np.zeros((2, STEPS + 1, BATCH, HIDDEN), np.float32)
    start, walk = order(backwards)
    out[0, start], out[1, start] = h0, c0
    xs, rs = gates_of(x, 4), matrices_of(r, 4)
    for t, before, after in walk:
        i, o, f, g = (xs[k][t] + out[0, before] @ rs[k] for k in range(4))
        out[1, after] = sigmoid(f) * out[1, before] + sigmoid(i) * np.tanh(g)
        out[0, after] = sigmoid(o) * np.tanh(out[1, after])
    return out


def gru(x, r, bias, h0, backwards):
    out = np.zeros((1, STEPS + 1, BATCH, HIDDEN), np.float32)
    start, walk = order(backwards)
    out[0, start] = h0
    xs, rs = gates_of(x, 3), matrices_of(r, 3)
    for t, before, after in walk:
        h = out[0, before]
        z, reset = (sigmoid(xs[k][t] + h @ rs[k]) for k in (0, 1))
        n = np.tanh(xs[2][t] + reset * (h @ rs[2] + bias.reshape(HIDDEN)))
        out[0, after] = n + z * (h - n)
    return out


@pytest.mark.parametrize("threads", [1, 2, 4])  # 4 do not divide 6 chunks
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("make", [lstm_steps, gru_steps])
def test_it_is_right_for_any_number_of_threads(make, backwards, threads):
    rng = np.random.default_rng(0)
    gates = 4 if make is lstm_steps else 3
    vectors = gates * UNITS // LANES
    x = rng.standard_normal((STEPS, BATCH, CHUNKS, vectors, LANES)).astype(np.float32)
    r = (rng.standard_normal((CHUNKS, HIDDEN, vectors, LANES)) / HIDDEN**0.5).astype(np.float32)
    h0, c0 = rng.standard_normal((2, BATCH, HIDDEN)).astype(np.float32)
    bias = rng.standard_normal((CHUNKS, 2, LANES)).astype(np.float32)
    arrays, expected = ([x, r, h0, c0], lstm) if gates == 4 else ([x, r, bias, h0], gru)
    func = normalise(make(STEPS, BATCH, HIDDEN, backwards))
    target = Target(kind="llvm", isa="avx512", threads=threads)
    assert is_scheduled(func)
    assert not claim(func, target).space.knobs
    groups = threads if CHUNKS % threads == 0 else CHUNKS
    assert f"in T.parallel({groups})" in lower(func, BASELINE, target).mod["main"].script()
    found = run(func, BASELINE, target, arrays)
    np.testing.assert_allclose(found, expected(*arrays, backwards), rtol=2e-4, atol=2e-5)
