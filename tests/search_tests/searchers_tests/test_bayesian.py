from __future__ import annotations

import numpy as np

from search.searchers.bayesian import LEAST_DATA, BayesianSearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def test_random_until_enough_is_known_then_faster_configs() -> None:
    searcher = BayesianSearch(SearchContext(spaces.product(), np.random.default_rng(0)))
    asked = drive(searcher, spaces.timed, batches=3, count=2 * LEAST_DATA)
    assert len(set(flat(asked))) == 6 * LEAST_DATA
    assert min(map(spaces.latency_s, asked[2])) < np.median([spaces.latency_s(config) for config in asked[0]])


def test_failures_alone_are_not_learned_from() -> None:
    bayesian = BayesianSearch(SearchContext(spaces.product(), np.random.default_rng(0)))
    assert len(flat(drive(bayesian, spaces.failed, batches=2))) == 16
