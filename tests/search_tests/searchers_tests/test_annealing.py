from __future__ import annotations

import numpy as np

from schedules.space import Space
from search.searchers.annealing import AnnealingSearch
from search.searchers.searcher import SearchContext
from search.searchers.searcher_catalog import make_searcher
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def context(space: Space | None = None, seed: int = 0) -> SearchContext:
    return SearchContext(space or spaces.enumerated(), np.random.default_rng(seed))


def test_annealing_explores_less_when_the_model_is_sure() -> None:
    space = spaces.enumerated()
    shares = []
    for outcome in (spaces.timed, spaces.constant):
        searcher = AnnealingSearch(context(space))
        drive(searcher, outcome, batches=4)
        shares.append(searcher.share())
    assert shares[1] < 0.01 < shares[0] <= 1.0


def test_both_variants_of_adatune_differ() -> None:
    paper = drive(AnnealingSearch(context()), spaces.timed, batches=6)
    released = drive(make_searcher("annealing-released", context()), spaces.timed, batches=6)
    assert paper[:4] == released[:4]  # random until the first plan
    assert flat(paper[4:]) != flat(released[4:])
