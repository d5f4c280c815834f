from __future__ import annotations

import numpy as np
import pytest

from schedules.space import Knob, Space
from search.searchers.pool import Pool
from tests.conformance import spaces


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
    assert pool.space.allowed(forbidden).tolist() == [False, True]
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
    chosen = [Pool(space, np.random.default_rng(seed)).spread(6) for seed in range(10)]
    assert np.mean([uncovered(rows) for rows in chosen]) < 0.93 * chance
