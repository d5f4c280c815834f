from __future__ import annotations

import numpy as np

from search.searchers.evolutionary import EvolutionarySearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive


def test_later_generations_are_faster_than_the_random_start() -> None:
    searcher = EvolutionarySearch(SearchContext(spaces.product(), np.random.default_rng(0)))
    asked = drive(searcher, spaces.timed, batches=4)
    medians = [np.median([spaces.latency_s(config) for config in batch]) for batch in asked]
    assert max(medians[2:]) < medians[0]
