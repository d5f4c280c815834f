from __future__ import annotations

import numpy as np
import pytest

from autotune.contrib.replay.allocator_replay import (
    Curve,
    allocate,
    final_latency,
    first_slots_s,
    moments,
    one_by_one,
    oracle,
    pace_of,
    total_s,
)
from autotune.contrib.replay.recorded_runs import SearchRules
from autotune.contrib.replay.trajectories import Trajectories
from search.allocators.simple_allocators import RoundRobin
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


def test_time_and_area_of_a_staircase() -> None:
    curve = Curve(np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 1.0]))
    assert [curve.time_to(latency_s) for latency_s in (4.0, 2.5, 1.0, 0.5)] == [0.0, 1.0, 3.0, float("inf")]
    assert curve.area(1.0, 0.0, 4.0) == pytest.approx(3.0 + 2 * 1.0)
    assert curve.area(1.0, 0.5, 2.0) == pytest.approx(0.5 * 3.0 + 1.0)


def test_time_and_area_of_a_line() -> None:
    line = Curve(np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 1.0]), linear=True)
    assert [line.time_to(latency_s) for latency_s in (4.0, 3.0, 1.5, 1.0)] == [0.0, 0.5, 2.0, 3.0]
    assert line.time_to(0.9) == float("inf")
    assert line.area(1.0, 0.0, 3.0) == pytest.approx(2.0 + 1.0)
    assert line.area(1.0, 1.0, 3.0) == pytest.approx(1.0)


def test_models_one_by_one_have_equal_shares_of_the_time() -> None:
    one = Curve(np.array([0.0, 1.0]), np.array([4.0, 2.0]))
    other = Curve(np.array([0.0, 2.0]), np.array([10.0, 5.0]))
    both = one_by_one([one, other])
    assert both.times.tolist() == [0.0, 2.0, 4.0]
    assert both.latencies.tolist() == [14.0, 12.0, 7.0]


def test_moments_count_slots_and_seconds() -> None:
    trajectories = Trajectories([trace("a"), trace("b", 3e-4, 1)], 0, SearchRules(trials=16))
    every = list(moments(trajectories, RoundRobin()))
    assert [moment.slots for moment in every] == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    assert every[-1].now_s == pytest.approx(total_s(trajectories))
    assert every[-1].latency_s == pytest.approx(final_latency(trajectories))


@pytest.mark.parametrize("allocator", ["round-robin", "share-per-second", "sequential"])
def test_no_allocator_is_below_the_oracle_at_any_time(allocator: str) -> None:
    pair = [trace("a"), trace("b", 3e-4, 1)]
    paces = [pace_of(allocator), (1, 1, 2)]
    rivals = [Trajectories(pair, 0, SearchRules(trials=24, pace=pace)) for pace in paces]
    final_s = final_latency(rivals[0])
    curve = allocate(rivals[0], allocator, 0, final_s)
    assert curve.latencies[-1] <= 1.003 * final_s
    best = oracle(rivals)
    assert (best.at(curve.times) <= curve.latencies * (1 + 1e-9)).all()
    assert best.time_to(1.02 * final_s) <= curve.time_to(1.02 * final_s)
    assert 0 < first_slots_s(rivals[0]) < total_s(rivals[0])
    assert pace_of("round-robin") == () != pace_of("share-per-second")
