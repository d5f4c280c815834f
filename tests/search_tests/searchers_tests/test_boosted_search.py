from __future__ import annotations

import numpy as np

from search.searchers.boosted_search import BoostedSearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive


def test_initial_configs_come_first_and_then_what_the_model_expects_most_of() -> None:
    space = spaces.enumerated()
    asked = drive(BoostedSearch(SearchContext(space, np.random.default_rng(0))), spaces.timed, batches=5)
    assert asked[0][: len(space.initial)] == list(space.initial)
    medians = [np.median([spaces.latency_s(config) for config in batch]) for batch in asked]
    assert min(medians[1:]) < medians[0]
