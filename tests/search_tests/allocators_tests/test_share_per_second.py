from __future__ import annotations

from dataclasses import replace

from search.allocators.share_per_second import PACE, SharePerSecond
from tests.conformance.allocator_suite import fresh, run
from tests.search_tests.states import known


def test_untried_tasks_come_first_the_largest_before() -> None:
    assert run(SharePerSecond(), fresh(4), 4) == ["task3", "task2", "task1", "task0"]


def test_weight_and_latency_decide_among_alike_histories() -> None:
    one, often = known("one", [1e-3] * 16), known("often", [1e-3] * 16, weight=5)
    slow = known("slow", [9e-3] * 16)
    assert SharePerSecond().next([one, often]) == "often"
    assert SharePerSecond().next([one, often, slow]) == "slow"


def test_a_dear_trial_counts_against_a_task() -> None:
    cheap, dear = known("cheap", [1e-3] * 16), known("dear", [1e-3] * 16, spent_s=(1.0,) * 16)
    assert SharePerSecond().next([dear, cheap]) == "cheap"
    assert SharePerSecond().next([replace(dear, weight=100), cheap]) == "dear"


def test_tasks_at_their_bound_get_nothing() -> None:
    done = known("done", [1.02e-4] * 4, weight=100)
    assert SharePerSecond().next([done, known("open", [9e-4] * 4)]) == "open"
    assert SharePerSecond().next([done]) is None


def test_dead_ends_lose_their_turn() -> None:
    dead, open_ = known("dead", []), known("open", [1e-3] * 8)
    served = []
    for _ in range(24):
        served.append(SharePerSecond().next([dead, open_]))
        if served[-1] == "dead":
            dead = known("dead", [*dead.latencies_s, *[None] * 8])
        else:
            open_ = known("open", [*open_.latencies_s, *[1e-3] * 8])
    assert served[0] == "dead"
    assert served.count("open") >= 5
    assert "open" in served[:6]


def test_every_task_is_served_once_before_any_is_served_twice() -> None:
    assert SharePerSecond().next([known("open", [1e-1] * 2, weight=100), known("fresh", [])]) == "fresh"


def test_first_slots_are_short() -> None:
    assert SharePerSecond().pace == PACE


def test_the_reason_names_its_numbers() -> None:
    allocator, states = SharePerSecond(), [known("a", [1e-3] * 16), known("b", [])]
    assert allocator.next(states) == "b"
    assert "no config was tried" in allocator.why("b", states)
    assert "had 1.6 s of tuning" in allocator.why("a", states)
    assert "none of 3 trials worked so far" in allocator.why("c", [known("c", [None] * 3)])
