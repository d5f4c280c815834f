"""What tuning may still bring, in numbers and in words for people. Nothing is decided here.

Notation: w = weight, b = best latency, g = ln gain of m more trials, c = seconds of one trial, T = seconds left.

    reduction(m) = w·b·(1 − e^−E[g(m)])                       seconds of model latency
    remaining    = Σ reduction(T / (c·number of open tasks))  over tasks with a valid trial, the time divided evenly

The expectation E[g] is ``GainModel``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from search.allocators.allocation import TaskState, open_tasks, state_of
from search.allocators.gain import GainModel, latency_share, trial_cost_s


def remaining_s(gains: GainModel, states: Sequence[TaskState], left_s: float) -> float:
    """Seconds by which ``left_s`` more seconds of tuning are expected to reduce the model's latency."""
    begun = [state for state in open_tasks(states) if state.trials]
    each_s = left_s / max(1, len(begun))
    return sum(gains.reduction_s(state, int(each_s / trial_cost_s(state))) for state in begun)


def describe_slot(gains: GainModel, key: str, states: Sequence[TaskState], slot: int) -> str:
    """Why a slot of ``slot`` trials for task ``key`` is worth its time."""
    state = state_of(key, states)
    share = latency_share(state) / max(sum(map(latency_share, states)), 1e-12)
    if state.best_s is None:
        tried = f"none of {state.trials} trials worked so far" if state.trials else "nothing is known of it"
        return f"{tried}, and untuned it would take some {share:.0%} of the model's time"
    cut_us = 1e6 * gains.reduction_s(state, slot)
    return (
        f"{slot} trials in {slot * trial_cost_s(state):.1f} s are expected to cut {cut_us:.1f} µs; "
        f"it takes {share:.0%} of the model's time"
    )
