"""Baselines: allocators that look at counts of trials and operations only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocators.allocation import Allocator, TaskState, open_tasks

QUOTA = 128
"""Trials of one task before sequential allocation goes on to the next. Heuristic, not measured."""


class RoundRobin(Allocator):
    """Every task that still has untried configs, in turn; ``pace``: trials of a task's first slots."""

    def __init__(self, pace: tuple[int, ...] = ()) -> None:
        self.pace = pace
        self._last: str | None = None

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The first open task after the one served last, in the order of ``states``."""
        order = [state.key for state in states]
        start = order.index(self._last) + 1 if self._last in order else 0
        tasks = open_tasks([*states[start:], *states[:start]])
        if not tasks:
            return None
        self._last = tasks[0].key
        return self._last


class Sequential(Allocator):
    """One task after the other, ``quota`` trials each; all of them again when every task has had its quota."""

    def __init__(self, quota: int = QUOTA) -> None:
        self._quota = quota

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The first open task with the fewest whole quotas."""
        tasks = open_tasks(states)
        return min(tasks, key=lambda state: state.trials // self._quota).key if tasks else None


class RandomAllocator(Allocator):
    """Any open task, uniformly."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def next(self, states: Sequence[TaskState]) -> str | None:
        """One of the open tasks."""
        tasks = open_tasks(states)
        return tasks[int(self._rng.integers(len(tasks)))].key if tasks else None


class FlopProportional(Allocator):
    """Trials in proportion to the operations that the model spends in each task."""

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The open task whose trials lag most behind its share."""
        tasks = open_tasks(states)
        return max(tasks, key=lambda state: state.weight * (state.flop + 1) / (state.trials + 1)).key if tasks else None
