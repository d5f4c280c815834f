from __future__ import annotations

import numpy as np

from schedules.space import Space
from search.searchers.autotvm import EPSILON, PLAN, Annealer, AutoTvmSearch, Cooling
from search.searchers.pool import Pool
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def context(space: Space | None = None, seed: int = 0) -> SearchContext:
    return SearchContext(space or spaces.enumerated(), np.random.default_rng(seed))


def test_annealing_finds_the_top_of_a_smooth_hill() -> None:
    pool = Pool(spaces.product(), np.random.default_rng(0))
    goal = np.full(8, 5)

    def hill(rows):  # type: ignore[no-untyped-def]
        return -np.abs(rows - goal).sum(axis=1).astype(np.float64)

    best = Annealer(pool, np.random.default_rng(1), Cooling(walkers=64)).best(hill, 10)
    assert hill(best[:1])[0] >= -1.0
    assert len(np.unique(best, axis=0)) == 10
    assert (np.diff(hill(best)) <= 0).all()


def test_after_a_plan_of_random_configs_the_model_plans_most_of_the_next() -> None:
    searcher = AutoTvmSearch(context())
    first = flat(drive(searcher, spaces.timed, batches=PLAN // 8))
    second = flat(drive(searcher, spaces.timed, batches=PLAN // 8))
    assert searcher.share() == EPSILON
    assert np.median([spaces.latency_s(c) for c in second]) < np.median([spaces.latency_s(c) for c in first])
