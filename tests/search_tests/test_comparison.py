"""A beats B, on made-up kernels: the claims of the search, small enough for every test run."""

from __future__ import annotations

from functools import cache

import pytest

from tests.search_tests.replay import typical

CONVS = ("conv3x3-56", "conv3x3-14", "conv1x1-28")
SEEDS = 4
LIMIT = 96


@cache
def trials(searcher: str, prior: bool = False) -> float:
    return typical(searcher, CONVS, SEEDS, LIMIT, prior)


def test_adaptive_needs_a_third_of_random() -> None:
    assert trials("adaptive") <= trials("random") / 3


def test_adaptive_needs_half_of_autotvm() -> None:
    assert trials("adaptive") <= trials("autotvm") / 2


@pytest.mark.parametrize("rival", ["annealing", "annealing-released", "boosted", "coordinate", "evolutionary"])
def test_adaptive_is_no_worse_than_a_rival(rival: str) -> None:
    assert trials("adaptive") <= 1.1 * trials(rival)


def test_other_tasks_make_it_faster() -> None:
    assert trials("adaptive", prior=True) <= 0.8 * trials("adaptive")


@pytest.mark.parametrize("searcher", ["annealing", "autotvm", "bayesian", "boosted", "evolutionary"])
def test_every_model_beats_chance_in_a_space_too_large_to_list(searcher: str) -> None:
    assert typical(searcher, ("tiling",), 2, 128) <= 0.9 * typical("random", ("tiling",), 2, 128)
