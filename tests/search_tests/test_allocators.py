from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from schedules.errors import UsageError
from search.allocation import Outlook, TaskState, pace_of, slot_trials
from search.allocator_catalog import ALLOCATORS, make_allocator
from search.latency_reduction import ExpectedCut
from search.simple_allocators import Sequential
from tests.conformance.allocator_suite import AllocatorSuite, fresh, run


class TestAllocators(AllocatorSuite):
    @pytest.fixture(params=ALLOCATORS)
    def allocator_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def make(name: str):  # type: ignore[no-untyped-def]
    return make_allocator(name, np.random.default_rng(0))


def known(key: str, latencies_s: list[float | None], **other: object) -> TaskState:
    start = TaskState(key, "conv", 1, 10**8, 1e-4, tuple(latencies_s), tuple(0.1 for _ in latencies_s))
    return replace(start, **other)  # type: ignore[arg-type]


def test_unknown_allocator_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'round-robin'"):
        make("roundrobin")


def test_round_robin_takes_turns() -> None:
    served = run(make("round-robin"), fresh(3), 7)
    assert served == ["task0", "task1", "task2", "task0", "task1", "task2", "task0"]


def test_sequential_finishes_a_quota_first() -> None:
    assert run(Sequential(quota=16), fresh(3), 7) == [*["task0"] * 2, *["task1"] * 2, *["task2"] * 2, "task0"]


def test_random_serves_all() -> None:
    assert set(run(make("random"), fresh(3), 30)) == {"task0", "task1", "task2"}


def test_flop_proportional_shares() -> None:
    served = run(make("flop-proportional"), fresh(3), 140)  # weight × flop: 1, 4, 9
    assert [served.count(f"task{index}") for index in range(3)] == pytest.approx([10, 40, 90], abs=3)


def test_gradient_leaves_a_task_that_has_stopped_gaining() -> None:
    falling = known("a", [8e-3 / 1.3**slot for slot in range(5) for _ in range(8)], bound_s=0.0)
    flat = known("b", [2e-3] * 40, bound_s=0.0)
    served = [make_allocator("gradient", np.random.default_rng(seed)).next([flat, falling]) for seed in range(20)]
    assert served.count("a") >= 18


@pytest.mark.parametrize("name", ["dynatune", "dynatune-released"])
def test_dynatune_warms_up_every_task_first(name: str) -> None:
    states = [known("a", [2e-3] * 8), known("b", [None] * 8), known("c", [])]
    assert make(name).next(states) == "b"
    assert make(name).next([states[0], replace(states[1], exhausted=True), states[2]]) == "c"


def test_dynatune_follows_cuts_and_the_released_rule_follows_gflops() -> None:
    slow = known("slow", [9e-3, 8e-3, 7e-3, 6e-3, 5e-3, 4e-3, 3.5e-3, 3e-3])
    fast = known("fast", [1.02e-4, 1.01e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4])
    assert make("dynatune").next([slow, fast]) == "slow"
    assert make("dynatune-released").next([slow, fast]) == "fast"


class TestExpectedCut:
    def test_untried_tasks_come_first_the_largest_before(self) -> None:
        served = run(ExpectedCut(), fresh(4), 4)
        assert served == ["task3", "task2", "task1", "task0"]

    def test_weight_and_latency_decide_among_alike_histories(self) -> None:
        one, often = known("one", [1e-3] * 16), known("often", [1e-3] * 16, weight=5)
        slow = known("slow", [9e-3] * 16)
        assert ExpectedCut().next([one, often]) == "often"
        assert ExpectedCut().next([one, often, slow]) == "slow"

    def test_a_dear_trial_counts_against_a_task(self) -> None:
        cheap, dear = known("cheap", [1e-3] * 16), known("dear", [1e-3] * 16, spent_s=(1.0,) * 16)
        assert ExpectedCut().next([dear, cheap]) == "cheap"

    def test_tasks_at_their_bound_get_nothing(self) -> None:
        done = known("done", [1.02e-4] * 4, weight=100)
        assert ExpectedCut().next([done, known("open", [9e-4] * 4)]) == "open"
        assert ExpectedCut().next([done]) is None

    def test_dead_ends_lose_their_turn(self) -> None:
        dead, open_ = known("dead", []), known("open", [1e-3] * 8)
        served = []
        for _ in range(24):
            served.append(ExpectedCut().next([dead, open_]))
            if served[-1] == "dead":
                dead = known("dead", [*dead.latencies_s, *[None] * 8])
            else:
                open_ = known("open", [*open_.latencies_s, *[1e-3] * 8])
        assert served[0] == "dead"
        assert served.count("open") >= 5
        assert "open" in served[:6]

    def test_every_task_is_served_once_before_any_is_served_twice(self) -> None:
        states = [known("open", [1e-1] * 2, weight=100), known("fresh", [])]
        assert ExpectedCut().next(states) == "fresh"

    def test_of_young_tasks_the_one_far_from_its_bound_is_served(self) -> None:
        far, near = known("far", [1e-3] * 2, bound_s=3e-4), known("near", [1.2e-3] * 2, bound_s=1e-3)
        assert ExpectedCut().next([near, far]) == "far"
        assert ExpectedCut().next([near, replace(far, bound_s=9e-4)]) == "near"

    def test_a_task_has_short_slots_first(self) -> None:
        allocator = ExpectedCut(slot=8, pace=(2, 2, 4))
        assert [slot_trials(pace_of(allocator), trials, 8) for trials in (0, 2, 4, 8, 16)] == [2, 2, 4, 8, 8]
        assert slot_trials((2, 2, 4), 5, 8) == 3  # a slot that was cut short is finished
        assert slot_trials((2, 4), 0, 1) == 1  # no slot is longer than a batch
        assert pace_of(make("round-robin")) == ()
        assert slot_trials((), 0, 8) == 8

    def test_a_dear_task_has_to_be_worth_its_second_slot(self) -> None:
        usual = [known(name, [1e-3] * 10) for name in "abc"]
        dear = known("dear", [5e-4] * 2, spent_s=(3.0,) * 2)
        assert ExpectedCut().next([*usual, dear]) != "dear"
        assert ExpectedCut().next([*usual, known("cheap", [5e-4] * 2)]) == "cheap"
        assert ExpectedCut().next([*usual, replace(dear, weight=100)]) == "dear"

    def test_an_outlook_is_believed_where_it_has_a_word(self) -> None:
        good, bad = Outlook(8, (0.2, 0.3)), Outlook(8, (0.0, 0.001))
        states = [known("bad", [1e-3] * 16, outlook=bad), known("good", [1e-3] * 16, outlook=good)]
        assert ExpectedCut(own_word=1.0).next(states) == "good"

    def test_thompson_serves_more_than_the_favourite(self) -> None:
        states = [known("a", [2e-3, *[1e-3] * 7]), known("b", [2e-3, *[0.95e-3] * 7])]  # young: records are likely
        allocator = ExpectedCut(rng=np.random.default_rng(0))
        served = [allocator.next(states) for _ in range(60)]
        assert 10 <= served.count("a") <= 50


def test_outlooks_check_themselves() -> None:
    with pytest.raises(UsageError):
        Outlook(0, (0.1,))
    with pytest.raises(UsageError):
        Outlook(8, (-0.1,))
