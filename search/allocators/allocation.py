"""Allocator: which task gets the next slot of the tuning budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from schedules.vocabulary.errors import UsageError

UNTUNED = 20.0
"""Latency of an untuned kernel in units of its roofline bound: untuned programs were one to two orders slower than
ONNX Runtime."""

SLOT = 8
"""Trials of a slot, once a task's first slots (``Allocator.pace``) are over. Heuristic, not measured."""


@dataclass(frozen=True)
class TaskState:
    """The state of tuning one task so far.

    Attributes:
        key: the task's key.
        template: template name; tasks of one template behave alike.
        weight: how often the model runs the task.
        flop: operations of one run.
        bound_s: roofline bound in seconds: no kernel of this task runs faster. 0 if there is none.
        latencies_s: every trial's latency in seconds, in order; None for a failed trial.
        spent_s: (n_trials,) seconds each trial cost (compile and run).
        exhausted: no untried config is left.
    """

    key: str
    template: str
    weight: int
    flop: int
    bound_s: float
    latencies_s: tuple[float | None, ...] = ()
    spent_s: tuple[float, ...] = ()
    exhausted: bool = False

    def __post_init__(self) -> None:
        if len(self.latencies_s) != len(self.spent_s):
            raise UsageError("a task state needs one cost per trial")

    def first(self, trials: int) -> TaskState:
        """The state after its first ``trials``; the same if there were no more."""
        if self.trials <= trials:
            return self
        return replace(self, latencies_s=self.latencies_s[:trials], spent_s=self.spent_s[:trials], exhausted=False)

    @property
    def trials(self) -> int:
        """Trials so far, failed ones included."""
        return len(self.latencies_s)

    @cached_property
    def best_s(self) -> float | None:
        """Least latency so far in seconds, or None before the first valid trial."""
        return min((latency for latency in self.latencies_s if latency is not None), default=None)


class Allocator(ABC):
    """Chooses the task of every slot.

    Attributes:
        pace: trials of a task's first slots, in order. Empty where all slots are equal, as in the literature.
    """

    pace: tuple[int, ...] = ()

    @abstractmethod
    def next(self, states: Sequence[TaskState]) -> str | None:
        """Key of the task that gets the next slot; None when no task deserves one."""

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """Why ``key`` got the slot that ``next`` just gave it from ``states``: a phrase without a full stop.

        This default is the first line of the allocator's documentation.
        """
        del key, states
        rule = (type(self).__doc__ or type(self).__name__).strip().splitlines()[0].rstrip(".")
        return rule[:1].lower() + rule[1:]


def slot_trials(pace: Sequence[int], trials: int, batch: int) -> int:
    """Trials of the next slot of a task that has had ``trials``: up to the end of the slot it is in.

    Args:
        pace: trials of the first slots; one longer than ``batch`` is cut to it.
        batch: trials of every later slot.
    """
    ends = 0
    for length in pace:
        ends += min(length, batch)
        if trials < ends:
            return ends - trials
    return batch


def latency_share(state: TaskState) -> float:
    """Seconds of model latency that the task takes now; a task without a valid trial by its bound and ``UNTUNED``."""
    return state.weight * (state.best_s if state.best_s is not None else UNTUNED * state.bound_s)


def open_tasks(states: Sequence[TaskState]) -> list[TaskState]:
    """Those that still have untried configs."""
    return [state for state in states if not state.exhausted]


def state_of(key: str, states: Sequence[TaskState]) -> TaskState:
    """The state of task ``key``."""
    return next(state for state in states if state.key == key)
