"""Both directions in one kernel, side by side or one after the other, of all steps or fewer."""

import numpy as np
import pytest

from schedules.lower import BASELINE, claim, lower, normalise
from schedules.target import Target
from schedules.templates.by_hand.recurrent_both_ways import APART, gru_both_ways, lstm_both_ways
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS
from tests.schedules_tests.programs import run
from tests.schedules_tests.recurrent_cases import gru, lstm

STEPS, CHUNKS = 5, 3
HIDDEN = CHUNKS * UNITS


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [lstm_both_ways, gru_both_ways])
def test_every_config_computes_the_steps_that_it_is_told(make, threads, batch):
    rng, is_lstm = np.random.default_rng(0), make is lstm_both_ways
    vectors = (4 if is_lstm else 3) * UNITS // LANES
    x = rng.standard_normal((STEPS, batch, 2 * CHUNKS, vectors, LANES)).astype(np.float32)
    r = (rng.standard_normal((2 * CHUNKS, HIDDEN, vectors, LANES)) / HIDDEN**0.5).astype(np.float32)
    h0, c0 = rng.standard_normal((2, 2 * batch, HIDDEN)).astype(np.float32)
    bias = rng.standard_normal((2 * CHUNKS, 2, LANES)).astype(np.float32)
    arrays = [x, r, h0, c0] if is_lstm else [x, r, bias, h0]
    func, target = normalise(make(STEPS, batch, HIDDEN)), Target("llvm", "avx512", threads=threads)
    claimed = claim(func, target)
    assert claimed.template == "recurrent"
    configs = [*map(claimed.space.config, claimed.space.rows), BASELINE]
    for steps in (1, 3, STEPS):
        for config in configs:
            out = run(func, config, target, [*arrays, np.array([steps], np.int32)])
            for d in (0, 1):
                chunks, rows = slice(d * CHUNKS, (d + 1) * CHUNKS), slice(d * batch, (d + 1) * batch)
                own = [x[:steps, :, chunks], r[chunks], *([] if is_lstm else [bias[chunks]]), h0[rows]]
                wanted = (lstm if is_lstm else gru)(*own, *([c0[rows]] if is_lstm else []), bool(d))
                states = wanted[:, :-1] if d else wanted[:, 1:]
                np.testing.assert_allclose(out[:, 1 : steps + 1, rows], states, rtol=2e-4, atol=2e-5)


def test_directions_have_a_thread_each_at_first_if_there_are_two():
    func = normalise(lstm_both_ways(STEPS, 1, HIDDEN))
    first = {
        threads: claim(func, Target("llvm", "avx512", threads=threads)).space.initial[0].integer("groups")
        for threads in (1, 2)
    }
    assert first == {1: 1, 2: APART}
    config = claim(func, Target("llvm", "avx512", threads=2)).space.initial[0]
    assert "T.parallel(2)" in lower(func, config, Target("llvm", "avx512", threads=2)).mod["main"].script()
