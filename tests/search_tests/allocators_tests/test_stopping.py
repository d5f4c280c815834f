from __future__ import annotations

from dataclasses import replace

import pytest

from schedules.vocabulary.errors import UsageError
from search.allocators.allocation import TaskState
from search.allocators.stopping import Limits, credible_bound_s, every_task_tried, why_run_done, why_task_done


def state(*latencies_s: float | None, bound_s: float = 1e-3) -> TaskState:
    return TaskState("a", "conv", 1, 10**9, bound_s, latencies_s, tuple(0.1 for _ in latencies_s))


def test_open_task_has_no_reason() -> None:
    assert why_task_done(state(5e-3, 4e-3), Limits()) is None


def test_exhausted() -> None:
    assert why_task_done(replace(state(5e-3), exhausted=True), Limits()) == "every config was tried"


def test_roofline() -> None:
    assert why_task_done(state(1.02e-3), Limits()) == "within 3% of the roofline bound"
    assert why_task_done(state(1.02e-3, bound_s=0.0), Limits()) is None


def test_plateau_needs_the_whole_window_without_gain() -> None:
    limits = Limits(plateau_trials=3)
    assert why_task_done(state(4e-3, 5e-3, 5e-3, 3.99e-3), limits) == "no gain of 1% in the last 3 trials"
    assert why_task_done(state(4e-3, 5e-3, 5e-3, 3.9e-3), limits) is None
    assert why_task_done(state(4e-3, 5e-3, 5e-3), limits) is None
    assert why_task_done(state(4e-3, 5e-3, 5e-3, 5e-3), Limits(plateau_trials=None)) is None


def test_plateau_of_failures() -> None:
    limits = Limits(plateau_trials=3)
    assert why_task_done(state(None, None, None, None), limits) is not None
    assert why_task_done(state(None, None, None, 5e-3), limits) is None


def test_run_limits() -> None:
    states = [state(5e-3, 4e-3), replace(state(5e-3), key="b")]
    assert why_run_done(states, 10.0, Limits()) is None
    assert why_run_done(states, 60.0, Limits(budget_s=60.0)) == "the 60 s for trials are spent"
    assert why_run_done(states, 0.0, Limits(trials=3)) == "3 trials were measured"
    assert why_run_done([replace(s, exhausted=True) for s in states], 0.0, Limits()) == "every task is done"


@pytest.mark.parametrize("wrong", [{"budget_s": 0.0}, {"trials": -1}, {"plateau_trials": 0}])
def test_limits_check_themselves(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Limits(**wrong)  # type: ignore[arg-type]


def test_a_kernel_that_is_faster_than_its_bound_disproves_it() -> None:
    assert credible_bound_s(1e-4, []) == credible_bound_s(1e-4, [None]) == 1e-4
    assert credible_bound_s(1e-4, [2e-4, 0.98e-4]) == 1e-4
    assert credible_bound_s(1e-4, [2e-4, 0.9e-4, None]) == 0.0


def test_a_task_is_tried_by_a_valid_trial_a_slot_of_failures_or_to_its_end() -> None:
    valid, failed, dead = state(None, 5e-3), state(None), state(*[None] * 8)
    assert every_task_tried([valid, dead, replace(failed, exhausted=True)])
    assert not every_task_tried([valid, failed])
    assert not every_task_tried([valid, state()])
