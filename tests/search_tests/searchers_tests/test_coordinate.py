from __future__ import annotations

import numpy as np

from schedules.config import Config
from schedules.space import Space
from search.searchers.coordinate import CoordinateSearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def context(space: Space | None = None, seed: int = 0) -> SearchContext:
    return SearchContext(space or spaces.enumerated(), np.random.default_rng(seed))


def test_descent_asks_neighbours_of_the_best_and_moves_on() -> None:
    space = spaces.enumerated()
    searcher = CoordinateSearch(context(space))
    start = space.initial[0]
    searcher.tell([(start, spaces.timed(start))])
    assert set(searcher.ask(4)) <= set(space.neighbours(start))


def test_descent_reaches_the_best_of_a_smooth_space_in_few_trials() -> None:
    space = spaces.enumerated()
    best = min(spaces.latency_s(space.config(row)) for row in space.rows)
    asked: list[Config] = flat(drive(CoordinateSearch(context(space)), spaces.timed, batches=8, count=4))
    assert min(spaces.latency_s(config) for config in asked) == best
