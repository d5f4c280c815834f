"""The default allocation: the slot goes to the task expected to reduce the model's latency most per second of tuning.

Notation: w = weight, b = best latency, g = ln gain of the next m trials, c = seconds of one trial of the task.

    value = w·b·(1 − e^−g) / (m·c)

This is DynaTune's idea with four departures:

- the unit is latency per second of tuning, and a task costs what its own trials cost;
- no curve is fitted to the staircase of best latencies: g comes from a model of new records (``gain.py``);
- instead of UCB1, whose bonus needs rewards in [0, 1], the expectation decides, or a draw (Thompson). Each slot lowers
  the next one's expectation, so no task is starved;
- every task is served once before any is served twice, most arithmetic first: an untuned kernel is 5 to 100 times
  slower than a template's first initial config, more than any other slot could gain.

The first slots of a task are short (``PACE``). Tasks within ``NEAR_BOUND`` of their bound get no slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocators.allocation import SLOT, Allocator, TaskState, open_tasks, slot_trials, state_of
from search.allocators.gain import GainModel, latency_share, trial_cost_s
from search.allocators.stopping import NEAR_BOUND, near_roofline

PACE = (1, 3, 4)
"""Trials of a task's first slots: its first trials bring most (``gain.py``). One is enough of what is known to be good,
and every task has to have one. On ten recorded models slots of 1, 3 and 4, of 1, 2 and 5, and of 1, 1, 2 and 4 were
level; on seeds that did not choose, 2, 2 and 4 took 1.47, 1.30 and 1.10 times as long to within 5, 2 and 1 %
(docs/lab: budget)."""

ALIVE = 0.7
"""Share of tasks of which some config works, before anything was tried. Heuristic, not measured."""

TIE_BREAK = 0.01
"""Share of the expectation added to a Thompson draw: most draws hold no record at all and would be equal."""


class LatencyReduction(Allocator):
    """Expected reduction of the model's latency per second of tuning.

    Args:
        rng: if given, values are drawn from it (Thompson) instead of expected.
    """

    pace = PACE

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self._rng = rng
        self._gains = GainModel()

    def next(self, states: Sequence[TaskState]) -> str | None:
        """An untried task, the most arithmetic first; then the one of the largest value; None if none is open.

        Tasks that are exhausted, or near their bounds, are not open.
        """
        self._gains.observe(states)
        tasks = [state for state in open_tasks(states) if not near_roofline(state, NEAR_BOUND)]
        if not tasks:
            return None
        fresh = [state for state in tasks if not state.trials]
        if fresh:
            return max(fresh, key=lambda state: (state.weight * state.flop, latency_share(state))).key
        return max(tasks, key=self._value).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """The expected reduction and its cost, as in ``Allocator.why``."""
        state = state_of(key, states)
        share = latency_share(state) / max(sum(map(latency_share, states)), 1e-12)
        if state.best_s is None:
            tried = f"none of {state.trials} trials worked so far" if state.trials else "nothing is known of it"
            return f"{tried}, and untuned it would take some {share:.0%} of the model's time"
        ahead = self._ahead(state)
        cut_us = 1e6 * self._gains.reduction_s(state, ahead)
        return (
            f"{ahead} trials in {ahead * trial_cost_s(state):.1f} s are expected to cut {cut_us:.1f} µs; "
            f"it takes {share:.0%} of the model's time"
        )

    def _ahead(self, state: TaskState) -> int:
        return slot_trials(self.pace, state.trials, SLOT)

    def _value(self, state: TaskState) -> float:
        """Seconds of model latency saved per second of tuning; a task with failures only counts as untuned."""
        ahead = self._ahead(state)
        slot_s = ahead * trial_cost_s(state)
        if state.best_s is None:
            return latency_share(state) * _chance_of_first(state.trials, ahead) / slot_s
        if self._rng is None:
            return self._gains.reduction_s(state, ahead) / slot_s
        drawn = float(self._gains.draws(state, ahead, 1, self._rng)[0])
        drawn += TIE_BREAK * self._gains.expected(state, ahead)
        return latency_share(state) * -float(np.expm1(-drawn)) / slot_s


def _chance_of_first(failures: int, ahead: int) -> float:
    """Chance that one of ``ahead`` trials is the first valid one after ``failures`` failures, at least one.

    Either the task can work, with a share of valid configs that is uniform a priori (Laplace's rule), or none of its
    configs does. The evidence for the latter grows with every failure, so a task without any valid config is left.
    """
    alive = ALIVE / (failures + 1.0)
    alive /= alive + 1.0 - ALIVE
    return alive * (1.0 - (1.0 - 1.0 / (failures + 2.0)) ** ahead)
