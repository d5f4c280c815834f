"""Allocator: which task gets the next slot of the tuning budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from schedules.errors import UsageError


@dataclass(frozen=True)
class Outlook:
    """What a searcher's own model expects of its next trials.

    Attributes:
        trials: how many trials ahead, m.
        gains: equally likely values of ln(best latency now / best latency after m more trials), each ≥ 0.
    """

    trials: int
    gains: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.trials < 1 or not self.gains or min(self.gains) < 0:
            raise UsageError(f"an outlook needs a trial and gains that are not negative, got {self}")


@runtime_checkable
class Outlooking(Protocol):
    """A searcher whose model can say what it expects of its next trials."""

    def outlook(self, count: int) -> Outlook | None:
        """What the next ``count`` trials may bring; None while nothing is known of the task."""
        ...


@dataclass(frozen=True)
class TaskState:
    """What tuning one task has brought so far.

    Attributes:
        key: the task's key.
        template: template name; tasks of one template behave alike.
        weight: how often the model runs the task.
        flop: operations of one run.
        bound_s: roofline bound: no kernel of this task runs faster, seconds.
        latencies_s: every valid trial's latency in order, seconds; a failed trial is None.
        spent_s: (n_trials,) seconds each trial cost (compile and run).
        exhausted: no untried config is left.
        outlook: what the task's searcher expects, if it can say and the allocator wants to know.
    """

    key: str
    template: str
    weight: int
    flop: int
    bound_s: float
    latencies_s: tuple[float | None, ...] = ()
    spent_s: tuple[float, ...] = ()
    exhausted: bool = False
    outlook: Outlook | None = None

    def __post_init__(self) -> None:
        if len(self.latencies_s) != len(self.spent_s):
            raise UsageError("a task state needs one cost per trial")

    @property
    def trials(self) -> int:
        """Trials so far, failed ones included."""
        return len(self.latencies_s)

    @property
    def best_s(self) -> float | None:
        """Least latency so far in seconds, or None before the first valid trial."""
        return min((latency for latency in self.latencies_s if latency is not None), default=None)


@runtime_checkable
class Allocator(Protocol):
    """Deals out slots."""

    def next(self, states: Sequence[TaskState]) -> str | None:
        """Key of the task that gets the next slot; None when no task deserves one."""
        ...


@runtime_checkable
class Paced(Protocol):
    """An allocator whose first slots of a task are shorter than the later ones.

    Attributes:
        pace: trials of a task's first slots, in order.
    """

    pace: tuple[int, ...]


def pace_of(allocator: Allocator) -> tuple[int, ...]:
    """Trials of a task's first slots; empty where all slots are equal, as in the literature."""
    return allocator.pace if isinstance(allocator, Paced) else ()


def slot_trials(pace: Sequence[int], trials: int, batch: int) -> int:
    """Trials of the next slot of a task that has had ``trials``: up to the end of the slot it is in.

    Args:
        pace: of the first slots; none is longer than ``batch``.
        batch: trials of every later slot.
    """
    ends = 0
    for length in pace:
        ends += min(length, batch)
        if trials < ends:
            return ends - trials
    return batch


@runtime_checkable
class Foresees(Protocol):
    """An allocator that may look at ``TaskState.outlook``.

    Attributes:
        foresees: whether it does; a searcher fits its model anew to say what it expects.
    """

    foresees: bool


def foresees(allocator: Allocator) -> bool:
    """Whether ``allocator`` looks at outlooks."""
    return isinstance(allocator, Foresees) and allocator.foresees


@runtime_checkable
class Explains(Protocol):
    """An allocator that can say why, in words."""

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """Why ``key`` got the slot that ``next`` just dealt from ``states``; a phrase without a full stop."""
        ...


def why(allocator: Allocator, key: str, states: Sequence[TaskState]) -> str:
    """Why ``allocator`` gave the slot to ``key``: its own words, else the first line of its documentation."""
    if isinstance(allocator, Explains):
        return allocator.why(key, states)
    rule = (type(allocator).__doc__ or type(allocator).__name__).strip().splitlines()[0].rstrip(".")
    return rule[:1].lower() + rule[1:]


def open_tasks(states: Sequence[TaskState]) -> list[TaskState]:
    """Those that still have untried configs."""
    return [state for state in states if not state.exhausted]


class RoundRobin:
    """Every task that still has untried configs, in turn; ``pace``: trials of a task's first slots."""

    def __init__(self, pace: tuple[int, ...] = ()) -> None:
        self.pace = pace
        self._last: str | None = None

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The first open task after the one served last, in the order of ``states``."""
        order = [state.key for state in states]
        start = order.index(self._last) + 1 if self._last in order else 0
        for state in [*states[start:], *states[:start]]:
            if not state.exhausted:
                self._last = state.key
                return state.key
        return None
