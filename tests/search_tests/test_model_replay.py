"""A beats B for allocators, on a made-up model of 26 tasks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from search.allocators.allocator_catalog import make_allocator
from search.allocators.remaining import LEVEL, remaining_gain
from search.allocators.stopping import Limits
from tests.search_tests.model_replay import area, time_to, trajectories

SEEDS = 2
pytestmark = pytest.mark.slow  # statistics over searches of 26 tasks


@cache
def seconds(allocator: str) -> float:
    times = [time_to(allocator, seed, 1.05, 150.0) for seed in range(SEEDS)]
    return float(np.exp(np.mean(np.log(times))))


@cache
def mean_area(allocator: str) -> float:
    return float(np.mean([area(allocator, seed, 60.0) for seed in range(SEEDS)]))


def test_the_default_is_far_ahead_of_sequential_and_random() -> None:
    assert seconds("share-per-second") * 2.4 <= seconds("sequential")
    assert seconds("share-per-second") * 1.3 <= seconds("random")


@pytest.mark.parametrize("rival", ["round-robin", "gradient"])
def test_the_default_is_no_slower_than_a_rival(rival: str) -> None:
    assert seconds("share-per-second") <= 1.05 * seconds(rival)


@pytest.mark.parametrize("rival", ["round-robin", "gradient", "flop-proportional", "random", "sequential"])
def test_the_default_has_the_smallest_area(rival: str) -> None:
    assert mean_area("share-per-second") < mean_area(rival)


def test_the_bound_of_the_remaining_gain_holds_what_happens() -> None:
    held = []
    for seed in range(SEEDS):
        by_key = {trajectory.state.key: trajectory for trajectory in trajectories(seed)}
        slots = dict.fromkeys(by_key, 0)
        allocator = make_allocator("share-per-second", np.random.default_rng(seed))
        for served in range(120):
            states = [by_key[key].after(count) for key, count in slots.items()]
            if served >= 40 and served % 10 == 0:
                remaining = remaining_gain(states, Limits())
                later = [by_key[key].after(count + 8) for key, count in slots.items()]
                realised = remaining.model_s - sum(state.weight * (state.best_s or 0.0) for state in later)
                held.append(realised <= remaining.high_s)
            key = allocator.next(states)
            if key is None:
                break
            slots[key] += 1
    assert np.mean(held) >= LEVEL
