from __future__ import annotations

import numpy as np
import pytest

from autotune.replay.allocator_replay import Curve, allocate, final_latency, moments, oracle, pace_of, total_s
from autotune.replay.recorded_runs import SearchRules
from autotune.replay.trajectories import Trajectories
from search.allocators.simple_allocators import RoundRobin
from tests.autotune_tests.replay_tests.made_up import trace


def test_time_and_area_of_a_staircase() -> None:
    curve = Curve(np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 1.0]))
    assert [curve.time_to(latency_s) for latency_s in (4.0, 2.5, 1.0, 0.5)] == [0.0, 1.0, 3.0, float("inf")]
    assert curve.area(1.0, 4.0) == pytest.approx(3.0 + 2 * 1.0)


def test_moments_count_slots_and_seconds() -> None:
    found = Trajectories([trace("a"), trace("b", 3e-4, 1)], 0, SearchRules(trials=16))
    every = list(moments(found, RoundRobin()))
    assert [moment.slots for moment in every] == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    assert every[-1].now_s == pytest.approx(total_s(found))
    assert every[-1].latency_s == pytest.approx(final_latency(found))


def test_a_replay_ends_at_the_final_latency_and_the_oracle_is_no_slower() -> None:
    found = Trajectories([trace("a"), trace("b", 3e-4, 1)], 0, SearchRules(trials=24))
    final_s = final_latency(found)
    curve = allocate(found, "round-robin", 0, final_s)
    assert curve.latencies[-1] <= 1.003 * final_s
    best = oracle(found)
    assert best.area(final_s, total_s(found)) <= 1.02 * curve.area(final_s, total_s(found))
    assert pace_of("round-robin") == () != pace_of("expected-cut")
