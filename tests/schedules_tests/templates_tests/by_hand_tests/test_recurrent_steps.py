"""All steps of an LSTM or a GRU, however chunks are dealt to threads and whichever way it walks."""

import numpy as np
import pytest
import tvm

from schedules.lower import BASELINE, claim, is_scheduled, lower, normalise
from schedules.target import Target
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS, gru_steps, lstm_steps
from tests.schedules_tests.programs import run
from tests.schedules_tests.recurrent_cases import gru, lstm

STEPS, BATCH, CHUNKS = 5, 2, 6
HIDDEN = CHUNKS * UNITS


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (1, 6), (2, 2), (4, 3)])  # 4 do not divide 6 chunks
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("make", [lstm_steps, gru_steps])
def test_it_is_right_for_any_number_of_threads(make, backwards, threads, batch):
    rng = np.random.default_rng(0)
    gates = 4 if make is lstm_steps else 3
    vectors = gates * UNITS // LANES
    x = rng.standard_normal((STEPS, batch, CHUNKS, vectors, LANES)).astype(np.float32)
    r = (rng.standard_normal((CHUNKS, HIDDEN, vectors, LANES)) / HIDDEN**0.5).astype(np.float32)
    h0, c0 = rng.standard_normal((2, batch, HIDDEN)).astype(np.float32)
    bias = rng.standard_normal((CHUNKS, 2, LANES)).astype(np.float32)
    arrays, expected = ([x, r, h0, c0], lstm) if gates == 4 else ([x, r, bias, h0], gru)
    func = normalise(make(STEPS, batch, HIDDEN, backwards))
    target = Target(kind="llvm", isa="avx512", threads=threads)
    assert is_scheduled(func)
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    configs = sorted(map(claimed.space.config, claimed.space.rows), key=lambda config: -config.integer("groups"))
    groups, tiles = ({config.integer(name) for config in configs} for name in ("groups", "tile"))
    assert groups == {1: {1}, 2: {2, 1}, 4: {6, 3, 2, 1}}[threads]
    assert tiles == {1: {1}, 2: {1, 2}, 3: {1, 3}, 6: {1, 2, 3}}[batch]
    assert claimed.space.initial[0].integer("tile") == max(tiles)
    first = lower(func, next(config for config in configs if config.integer("tile") == 1), target).mod["main"]
    tvm.ir.assert_structural_equal(first, lower(func, BASELINE, target).mod["main"])
    for config in configs:
        assert f"in T.parallel({config.integer('groups')})" in lower(func, config, target).mod["main"].script()
        result = run(func, config, target, arrays)
        np.testing.assert_allclose(result, expected(*arrays, backwards), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [lstm_steps, gru_steps])
def test_a_limited_kernel_computes_the_steps_that_it_is_told(make, threads):
    rng = np.random.default_rng(0)
    gates = 4 if make is lstm_steps else 3
    vectors = gates * UNITS // LANES
    x = rng.standard_normal((STEPS, BATCH, CHUNKS, vectors, LANES)).astype(np.float32)
    r = (rng.standard_normal((CHUNKS, HIDDEN, vectors, LANES)) / HIDDEN**0.5).astype(np.float32)
    h0, c0 = rng.standard_normal((2, BATCH, HIDDEN)).astype(np.float32)
    bias = rng.standard_normal((CHUNKS, 2, LANES)).astype(np.float32)
    arrays, expected = ([x, r, h0, c0], lstm) if gates == 4 else ([x, r, bias, h0], gru)
    func, target = normalise(make(STEPS, BATCH, HIDDEN, False, limited=True)), Target("llvm", "avx512", threads=threads)
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    for steps in (1, 3, STEPS):
        for config in (claimed.space.initial[0], BASELINE):
            result = run(func, config, target, [*arrays, np.array([steps], np.int32)])
            wanted = expected(x[:steps], *arrays[1:])
            np.testing.assert_allclose(result[:, : steps + 1], wanted, rtol=2e-4, atol=2e-5)
