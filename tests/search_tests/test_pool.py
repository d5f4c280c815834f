from __future__ import annotations

import numpy as np
import pytest

from schedules.space import Knob, Space
from search.history import History
from search.pool import Pool
from search.prior import MOST_ROWS, columns_of, prior_rows
from search.searcher import SearchContext
from search.spread import spread
from tests.conformance import spaces
from tuning_logs.measurement import Measurement


def make(space: Space) -> Pool:
    return Pool(space, np.random.default_rng(0))


@pytest.mark.parametrize("build", [spaces.enumerated, spaces.product])
def test_drawn_rows_are_valid_distinct_and_untried_until_taken(build) -> None:  # type: ignore[no-untyped-def]
    space = build()
    pool = make(space)
    rows = pool.draw(20)
    assert len(np.unique(rows, axis=0)) == 20
    assert pool.untried(rows).all()
    pool.configs(rows[:5])
    assert pool.untried(rows).tolist() == [False] * 5 + [True] * 15


def test_forbidden_rows_are_not_untried() -> None:
    pool = make(spaces.enumerated())
    forbidden = np.array([[5, 3, 0, 0], [0, 0, 0, 0]], dtype=np.int32)
    assert pool.valid(forbidden).tolist() == [False, True]
    assert pool.untried(forbidden).tolist() == [False, True]


def test_remaining_counts_down() -> None:
    space = spaces.enumerated()
    pool = make(space)
    assert pool.remaining == space.size
    pool.configs(pool.draw(7))
    assert pool.remaining == space.size - 7
    assert make(spaces.product()).remaining is None


def test_neighbours_agree_with_the_space() -> None:
    space = spaces.enumerated()
    config = space.initial[0]
    near = make(space).neighbours(space.row(config))
    assert {space.config(row) for row in near} == set(space.neighbours(config))


def test_candidates_of_a_product_space_contain_children_of_parents() -> None:
    pool = make(spaces.product())
    parent = pool.draw(1)
    close = (pool.candidates(parent, 400) != parent).sum(axis=1)
    assert (close == 1).sum() > 20
    assert (close > 4).sum() > 100


def test_mutants_differ_and_stay_inside() -> None:
    pool = make(spaces.product())
    parents = pool.draw(4)
    children = pool.mutate(parents, 200)
    assert children.min() >= 0
    assert children.max() <= 7


def test_spread_covers_better_than_chance() -> None:
    space = Space("grid", 1, (Knob("a", tuple(range(1, 31))), Knob("b", tuple(range(1, 31)))))

    def uncovered(rows: np.ndarray) -> float:  # type: ignore[type-arg]
        squares = ((space.rows[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2)
        return float(np.sqrt(squares.min(axis=1)).mean())

    chance = np.mean([uncovered(Pool(space, np.random.default_rng(seed)).draw(6)) for seed in range(10)])
    chosen = [spread(Pool(space, np.random.default_rng(s)), 6, np.random.default_rng(s)) for s in range(10)]
    assert np.mean([uncovered(rows) for rows in chosen]) < 0.93 * chance


def test_history_keeps_the_newest_success() -> None:
    space = spaces.tiny()
    history = History(make(space))
    config = space.config([1])
    history.tell([(config, Measurement(latencies_s=(1e-3,)))])
    history.tell([(config, Measurement(latencies_s=(2e-3,)))])
    history.tell([(config, spaces.failed(config))])
    assert np.exp(-history.scores).tolist() == pytest.approx([2e-3])
    other = space.config([0])
    history.tell([(other, spaces.failed(other))])
    assert history.valid.tolist() == [True, False]
    assert history.incumbents(5).tolist() == [[1]]


def test_prior_takes_tasks_with_the_same_columns_only() -> None:
    space = spaces.enumerated()
    results = tuple((config, spaces.mixed(config)) for config in space.sample(100, np.random.default_rng(1)))
    alien = spaces.product()
    told = tuple((config, spaces.timed(config)) for config in alien.sample(5, np.random.default_rng(1)))
    foreign = (told[0], *results)  # a config that this space does not know is left out
    context = SearchContext(space, np.random.default_rng(0), prior=((alien, told), (space, foreign)))
    (rows,) = prior_rows(context)
    assert columns_of(space) == ("wide", "high", "order", "split", "area")
    assert rows.features.shape == (MOST_ROWS, 5)
    assert 0 < (~rows.valid).sum() < MOST_ROWS
    timed = [-np.log(m.latency_s) for _, m in results if m.ok]
    assert np.nanmax(rows.scores) == pytest.approx(max(timed))
