from __future__ import annotations

from dataclasses import replace

import numpy as np

from research.luck import line, searched
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


def test_confirmations_keep_luck_from_adding_up() -> None:
    recorded = trace()
    noise = np.random.default_rng(1).lognormal(sigma=0.2, size=recorded.runs_s.shape[:2])
    noisy = replace(recorded, runs_s=recorded.runs_s * noise[:, :, None])
    seeds = range(6)
    believed, confirmed = ([[searched(noisy, seed, count, 24) for seed in seeds]] for count in (0, 2))
    assert np.mean([one.taken for one in believed[0]]) < np.mean([one.taken for one in confirmed[0]])
    assert sum(one.run_s for one in believed[0]) < sum(one.run_s for one in confirmed[0])
    assert all(one.shipped >= 1.0 for one in confirmed[0])
    assert line(2, confirmed).startswith("2 confirmations: near after ")
