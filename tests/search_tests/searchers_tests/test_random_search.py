from __future__ import annotations

import numpy as np

from search.searchers.random_search import RandomSearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def test_asks_are_uniform_whatever_was_measured() -> None:
    asked = []
    for outcome in (spaces.timed, spaces.failed):
        searcher = RandomSearch(SearchContext(spaces.product(), np.random.default_rng(3)))
        asked.append(flat(drive(searcher, outcome, batches=4, count=64)))
    assert asked[0] == asked[1]
    columns = np.array([spaces.product().row(config) for config in asked[0]])
    # The constraint is on the first two knobs. The mean of 256 draws from 0 to 7 has a deviation of 0.14.
    assert abs(columns[:, 2:].mean(axis=0) - 3.5).max() < 0.6
