"""What single strategies promise beyond the protocol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedules.config import Config
from search.adaptive import AdaptiveSearch
from search.annealer import Annealer, Cooling
from search.annealing import AnnealingSearch, annealing_released
from search.coordinate import CoordinateSearch
from search.pool import Pool
from search.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def context(space=None, seed: int = 0) -> SearchContext:  # type: ignore[no-untyped-def]
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
    released = drive(annealing_released(context()), spaces.timed, batches=6)
    assert paper[:4] == released[:4]  # random until the first plan
    assert flat(paper[4:]) != flat(released[4:])


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


def test_first_guesses_come_first_in_adaptive_search() -> None:
    space = spaces.enumerated()
    asked = drive(AdaptiveSearch(context(space)), spaces.timed, 1)
    assert asked[0][:2] == list(space.initial)


def test_seeds_are_tried_whatever_other_tasks_recommend() -> None:
    plain = spaces.enumerated()
    others = [plain.config(row) for row in plain.rows if plain.config(row) not in plain.initial]
    seeds = (others[3], others[40], others[-1])
    known = tuple((config, spaces.timed(config)) for config in others[:64])
    space = replace(plain, seeds=seeds)
    warm = replace(context(space), prior=((plain, known),))
    asked = drive(AdaptiveSearch(warm), spaces.timed, batches=3, count=2)
    assert asked[0][0] == space.initial[0]
    # One a batch, so that what is recommended is tried too.
    assert [[config for config in batch if config in seeds] for batch in asked] == [[seed] for seed in seeds]
    assert len(set(flat(asked))) == 6
