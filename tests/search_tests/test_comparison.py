"""A beats B, on made-up kernels: claims of the search, with margins that hold over a handful of seeds.

``tune replay`` makes the full comparison, on recorded kernels and many seeds.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.search_tests.replay import typical

CONVS = ("conv3x3-56", "conv3x3-28", "conv3x3-14", "conv1x1-28")


@cache
def trials(searcher: str, prior: bool = False) -> float:
    return typical(searcher, CONVS, seeds=4, limit=128, prior=prior)


def test_adaptive_needs_less_than_half_of_random() -> None:
    assert trials("adaptive") <= 0.45 * trials("random")


@pytest.mark.slow
def test_adaptive_needs_two_thirds_of_autotvm() -> None:
    assert trials("adaptive") <= 0.67 * trials("autotvm")


@pytest.mark.slow
@pytest.mark.parametrize("rival", ["annealing", "annealing-released", "boosted", "coordinate", "evolutionary"])
def test_adaptive_is_no_worse_than_a_rival(rival: str) -> None:
    assert trials("adaptive") <= 1.2 * trials(rival)


@pytest.mark.slow
def test_other_tasks_make_it_faster() -> None:
    assert trials("adaptive", prior=True) <= 0.8 * trials("adaptive")


@pytest.mark.slow
@pytest.mark.parametrize("searcher", ["adaptive", "annealing", "autotvm", "boosted", "evolutionary"])
def test_every_model_beats_chance_in_a_space_too_large_to_list(searcher: str) -> None:
    assert typical(searcher, ("tiling",), 2, 128) <= 0.9 * typical("random", ("tiling",), 2, 128)
