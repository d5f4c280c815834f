from __future__ import annotations

from dataclasses import replace

import numpy as np

from search.allocators.latency_reduction import PACE, LatencyReduction
from tests.conformance.allocator_suite import fresh, run
from tests.search_tests.states import known


def test_untried_tasks_come_first_the_largest_before() -> None:
    served = run(LatencyReduction(), fresh(4), 4)
    assert served == ["task3", "task2", "task1", "task0"]


def test_weight_and_latency_decide_among_alike_histories() -> None:
    one, often = known("one", [1e-3] * 16), known("often", [1e-3] * 16, weight=5)
    slow = known("slow", [9e-3] * 16)
    assert LatencyReduction().next([one, often]) == "often"
    assert LatencyReduction().next([one, often, slow]) == "slow"


def test_a_dear_trial_counts_against_a_task() -> None:
    cheap, dear = known("cheap", [1e-3] * 16), known("dear", [1e-3] * 16, spent_s=(1.0,) * 16)
    assert LatencyReduction().next([dear, cheap]) == "cheap"


def test_tasks_at_their_bound_get_nothing() -> None:
    done = known("done", [1.02e-4] * 4, weight=100)
    assert LatencyReduction().next([done, known("open", [9e-4] * 4)]) == "open"
    assert LatencyReduction().next([done]) is None


def test_dead_ends_lose_their_turn() -> None:
    dead, open_ = known("dead", []), known("open", [1e-3] * 8)
    served = []
    for _ in range(24):
        served.append(LatencyReduction().next([dead, open_]))
        if served[-1] == "dead":
            dead = known("dead", [*dead.latencies_s, *[None] * 8])
        else:
            open_ = known("open", [*open_.latencies_s, *[1e-3] * 8])
    assert served[0] == "dead"
    assert served.count("open") >= 5
    assert "open" in served[:6]


def test_every_task_is_served_once_before_any_is_served_twice() -> None:
    states = [known("open", [1e-1] * 2, weight=100), known("fresh", [])]
    assert LatencyReduction().next(states) == "fresh"


def test_of_young_tasks_the_one_far_from_its_bound_is_served() -> None:
    far, near = known("far", [1e-3] * 2, bound_s=3e-4), known("near", [1.2e-3] * 2, bound_s=1e-3)
    assert LatencyReduction().next([near, far]) == "far"
    assert LatencyReduction().next([near, replace(far, bound_s=9e-4)]) == "near"


def test_a_dear_task_has_to_be_worth_its_second_slot() -> None:
    usual = [known(name, [1e-3] * 10) for name in "abc"]
    dear = known("dear", [5e-4] * 2, spent_s=(3.0,) * 2)
    assert LatencyReduction().next([*usual, dear]) != "dear"
    assert LatencyReduction().next([*usual, known("cheap", [5e-4] * 2)]) == "cheap"
    assert LatencyReduction().next([*usual, replace(dear, weight=100)]) == "dear"


def test_thompson_serves_more_than_the_favourite() -> None:
    states = [known("a", [2e-3, *[1e-3] * 7]), known("b", [2e-3, *[0.95e-3] * 7])]  # young: records are likely
    allocator = LatencyReduction(rng=np.random.default_rng(0))
    served = [allocator.next(states) for _ in range(60)]
    assert 10 <= served.count("a") <= 50


def test_first_slots_are_short() -> None:
    assert LatencyReduction().pace == PACE
    assert "2 trials in 0.2 s" in LatencyReduction().why("a", [known("a", [1e-3] * 2)])


def test_the_reason_names_its_numbers() -> None:
    allocator, states = (
        LatencyReduction(),
        [known("a", [1e-3 / (1 + 0.1 * index) for index in range(16)]), known("b", [])],
    )
    assert allocator.next(states) == "b"
    assert "nothing is known of it" in allocator.why("b", states)
    assert "8 trials in 0.8 s are expected to cut" in allocator.why("a", states)
