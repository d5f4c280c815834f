"""What tuning may still bring, in numbers and in words: for people who watch, and for nothing else.

Notation: w = weight, b = best latency, g = ln gain of m more trials, c = seconds of one trial, T = seconds left.

    cut(m)    = w·b·(1 − e^−E[g(m)])                    seconds of model latency
    remaining = Σ cut(T / (c·number of open tasks))     over tasks with a valid trial, the time dealt out evenly

The expectation E[g] is ``GainModel``'s, which corrects itself by what it got wrong so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocation import TaskState
from search.gain import GainModel, latency_share
from search.stopping import near_roofline

RECENT = 16  # trials from which the cost of the next is read
NEAR_BOUND = 1.03  # closer to its roofline bound a task gains nothing that can be measured


def cost_s(state: TaskState) -> float:
    """Seconds that the next trial of a task with trials will take, c."""
    return max(float(np.mean(state.spent_s[-RECENT:])), 1e-6)


def cut_s(gains: GainModel, state: TaskState, trials: int) -> float:
    """Seconds that ``trials`` more trials are expected to take off the model's latency; 0 before a valid trial."""
    if state.best_s is None or state.exhausted or trials < 1 or near_roofline(state, NEAR_BOUND):
        return 0.0
    return latency_share(state) * -float(np.expm1(-gains.expected(state, trials)))


def remaining_s(gains: GainModel, states: Sequence[TaskState], left_s: float) -> float:
    """Seconds that ``left_s`` more seconds of tuning are expected to take off the model's latency."""
    begun = [state for state in states if state.trials and not state.exhausted]
    each_s = left_s / max(1, len(begun))
    return sum(cut_s(gains, state, int(each_s / cost_s(state))) for state in begun)


def describe_slot(gains: GainModel, key: str, states: Sequence[TaskState], slot: int) -> str:
    """Why a slot of ``slot`` trials for task ``key`` is worth its time."""
    state = next(state for state in states if state.key == key)
    share = latency_share(state) / max(sum(map(latency_share, states)), 1e-12)
    if state.best_s is None:
        tried = f"none of {state.trials} trials worked so far" if state.trials else "nothing is known of it"
        return f"{tried}, and untuned it would take some {share:.0%} of the model's time"
    cut_us = 1e6 * cut_s(gains, state, slot)
    return (
        f"{slot} trials in {slot * cost_s(state):.1f} s are expected to cut {cut_us:.1f} µs; "
        f"it takes {share:.0%} of the model's time"
    )
