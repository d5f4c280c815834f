"""Ansor's gradient rule (Zheng et al., OSDI 2020, section 6), which MetaSchedule keeps.

Notation: w = weight, g = best latency, t = slots served, Δt = window, C = operations, V = best speed of a task of the
same template.

    ∂f/∂t ≈ w·(α·(g(t) − g(t−Δt))/Δt + (1−α)·(min(g − g/t, β·C / max V) − g))

The task with the most negative slope gets the slot. The rest is as in TVM's ``task_scheduler.py``: every task has one
slot first, and a task without any valid config keeps its first place in the order. That order is a known weakness,
kept because this is the rule to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocators.allocation import SLOT, Allocator, TaskState, open_tasks, state_of

ALPHA, BETA, WINDOW = 0.2, 2.0, 3
"""α, β and Δt in slots, as in TVM's ``task_scheduler.py``."""

RANDOM_SHARE = 0.05
"""Share of the slots that go to a random task, as in TVM's ``task_scheduler.py``."""

NEVER = 1e10
"""Latency in seconds of a task without a valid config, as in TVM's ``task_scheduler.py``."""


class Gradient(Allocator):
    """Ansor's rule; ``pace``: trials of a task's first slots."""

    def __init__(self, rng: np.random.Generator, pace: tuple[int, ...] = ()) -> None:
        self.pace = pace
        self._rng = rng

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The open task with the steepest fall of model latency."""
        tasks = open_tasks(states)
        if not tasks:
            return None
        fresh = [state for state in tasks if not state.trials]
        if fresh:
            return fresh[0].key
        if self._rng.random() < RANDOM_SHARE:
            return tasks[int(self._rng.integers(len(tasks)))].key
        return min(tasks, key=lambda state: self._slope(state, states)).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """The slope, as in ``Allocator.why``."""
        state = state_of(key, states)
        if not state.trials:
            return "every task is served once first"
        return f"{1e6 * -self._slope(state, states):.1f} µs of model latency per slot by its slope, or chance (1 in 20)"

    def _best_after(self, state: TaskState, trials: int) -> float:
        known = [latency for latency in state.latencies_s[: max(trials, 1)] if latency is not None]
        return min(known, default=NEVER)

    def _slope(self, state: TaskState, states: Sequence[TaskState]) -> float:
        slots = max(state.trials / SLOT, 1.0)
        best = self._best_after(state, state.trials)
        backward = 0.0
        if slots > WINDOW:
            backward = (best - self._best_after(state, state.trials - WINDOW * SLOT)) / WINDOW
        like = [other for other in states if other.template == state.template and other.best_s is not None]
        fastest = max((other.flop / other.best_s for other in like if other.best_s), default=0.0)
        by_likeness = BETA * state.flop / fastest if fastest > 0 else NEVER
        forward = min(best - best / slots, by_likeness) - best
        return state.weight * (ALPHA * backward + (1.0 - ALPHA) * forward)
