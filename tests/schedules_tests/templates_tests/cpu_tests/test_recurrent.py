"""All steps of an LSTM or a GRU in one kernel, however its chunks are dealt to threads and whichever way it walks."""

import numpy as np
import pytest
import tvm

from schedules.lower import BASELINE, claim, is_scheduled, lower, normalise
from schedules.target import Target
from schedules.templates.cpu.recurrent import LANES, UNITS, gru_steps, lstm_steps
from tests.schedules_tests.programs import run
from tests.schedules_tests.recurrent_cases import gru, lstm

STEPS, BATCH, CHUNKS = 5, 2, 6
HIDDEN = CHUNKS * UNITS


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
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    configs = sorted(claimed.space.initial, key=lambda config: -config.integer("groups"))
    assert [config.integer("groups") for config in configs] == {1: [1], 2: [2, 1], 4: [6, 3, 2, 1]}[threads]
    assert len(configs) == claimed.space.size
    first = lower(func, configs[0], target).mod["main"]
    tvm.ir.assert_structural_equal(first, lower(func, BASELINE, target).mod["main"])
    for config in configs:
        assert f"in T.parallel({config.integer('groups')})" in lower(func, config, target).mod["main"].script()
        found = run(func, config, target, arrays)
        np.testing.assert_allclose(found, expected(*arrays, backwards), rtol=2e-4, atol=2e-5)


def test_short_steps_are_guessed_to_be_faster_on_one_thread():
    target = Target(kind="llvm", isa="avx512", threads=2)
    first = {
        hidden: claim(normalise(make(5, 1, hidden, False)), target).space.initial[0].integer("groups")
        for make in (lstm_steps, gru_steps)
        for hidden in (64, 512)
    }
    assert first == {64: 1, 512: 2}
