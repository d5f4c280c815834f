"""When to stop tuning a task or a run: rules over what is already known, with the reason in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schedules.vocabulary.errors import UsageError
from search.allocators.allocation import SLOT, TaskState

NEAR_BOUND = 1.03
"""A task within this factor of its roofline bound is done. Heuristic: a gain of 3 % is about the least that single
measurements show."""

PLATEAU_GAIN = 0.01
"""The least relative gain that keeps a task from a plateau. Heuristic, not measured."""

DISPROVED = 0.97
"""Share of its roofline bound below which a kernel's latency disproves the bound. Medians of a kernel repeat within 3 %
(docs/measuring.md), so a smaller difference may be noise."""


@dataclass(frozen=True)
class Limits:
    """The limits of a run, and when a task is good enough.

    Attributes:
        budget_s: seconds of the whole run; None is no limit.
        trials: measured trials of the whole run; None is no limit.
        plateau_trials: a task without a gain in so many trials is done; None is no such rule. 64 is eight slots.
            Heuristic, not measured.
    """

    budget_s: float | None = None
    trials: int | None = None
    plateau_trials: int | None = 64

    def __post_init__(self) -> None:
        if self.budget_s is not None and self.budget_s <= 0:
            raise UsageError(f"budget is {self.budget_s} s; it must be above zero")
        if self.trials is not None and self.trials < 0:
            raise UsageError(f"trials is {self.trials}; it must be zero or more")
        if self.plateau_trials is not None and self.plateau_trials < 1:
            raise UsageError(
                f"plateau_trials is {self.plateau_trials}; it must be at least 1, or None for no plateau rule"
            )


def credible_bound_s(bound_s: float, latencies_s: Iterable[float | None]) -> float:
    """The bound, or 0 (none) once a kernel was faster: its data then came from a nearer cache than was assumed."""
    fastest = min((latency for latency in latencies_s if latency is not None), default=bound_s)
    return bound_s if fastest >= DISPROVED * bound_s else 0.0


def every_task_tried(states: Sequence[TaskState]) -> bool:
    """Return whether every task has a valid trial, a slot's worth of failed ones, or nothing left to try.

    One failed trial says next to nothing of a task, and a first slot may be one trial.
    """
    return all(state.best_s is not None or state.trials >= SLOT or state.exhausted for state in states)


def near_roofline(state: TaskState) -> bool:
    """Return whether the task's best latency is within ``NEAR_BOUND`` of what the machine allows."""
    return state.best_s is not None and state.bound_s > 0 and state.best_s <= state.bound_s * NEAR_BOUND


def on_plateau(state: TaskState, trials: int) -> bool:
    """Return whether the last ``trials`` trials cut the best latency by less than ``PLATEAU_GAIN`` of it.

    A task without any valid trial in the first ``trials`` is on a plateau too.
    """
    if state.trials <= trials:
        return False
    before = [latency for latency in state.latencies_s[:-trials] if latency is not None]
    if not before:
        return state.best_s is None
    best_s = state.best_s
    return best_s is not None and best_s > min(before) * (1.0 - PLATEAU_GAIN)


def why_task_done(state: TaskState, limits: Limits) -> str | None:
    """The reason why the task deserves no further trial, or None."""
    if state.exhausted:
        return "every config was tried"
    if near_roofline(state):
        return f"within {NEAR_BOUND - 1.0:.0%} of the roofline bound"
    if limits.plateau_trials is not None and on_plateau(state, limits.plateau_trials):
        return f"no gain of {PLATEAU_GAIN:.0%} in the last {limits.plateau_trials} trials"
    return None


def why_run_done(states: Sequence[TaskState], elapsed_s: float, limits: Limits) -> str | None:
    """The reason why the whole run ends, or None. ``elapsed_s``: seconds since the run began."""
    if limits.budget_s is not None and elapsed_s >= limits.budget_s:
        return f"the {limits.budget_s:g} s for trials are spent"
    if limits.trials is not None and sum(state.trials for state in states) >= limits.trials:
        return f"{limits.trials} trials were measured"
    if all(why_task_done(state, limits) for state in states):
        return "every task is done"
    return None
