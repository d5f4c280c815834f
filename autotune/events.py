"""Events of a run, and what observes them: progress, the file of ``--events``, and the artifact's history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from schedules.task import Task
from search.allocators.allocation import TaskState


@dataclass(frozen=True)
class PhaseBegan:
    """A phase of the run (``import search compile measure build verify``) or a step of it, in words."""

    name: str


@dataclass(frozen=True)
class TuningBegan:
    """The loop starts.

    Attributes:
        tasks: what is tuned, most work first.
        states: their states, as the log knows them.
        budget_s: seconds left to spend.
    """

    tasks: tuple[Task, ...]
    states: tuple[TaskState, ...]
    budget_s: float


@dataclass(frozen=True)
class ReferenceTimed:
    """The model's latency on the reference engine, measured before tuning began.

    Attributes:
        name, version: the engine.
        latency_s: median seconds of one inference on the same threads and inputs.
    """

    name: str
    version: str
    latency_s: float


@dataclass(frozen=True)
class SlotBegan:
    """A slot was given to a task.

    Attributes:
        task: what is measured.
        trials: configs about to be measured.
        why: the allocator's reason, a phrase.
    """

    task: Task
    trials: int
    why: str


@dataclass(frozen=True)
class SlotDone:
    """A slot was measured and its records are in the log.

    Attributes:
        task: what was measured.
        state: the task's state now.
        measured, failed: trials in this slot.
        elapsed_s: seconds since the loop started.
        failures: kinds of error of the failed ones.
    """

    task: Task
    state: TaskState
    measured: int
    failed: int
    elapsed_s: float
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class TuningEnded:
    """The loop ended, and why."""

    reason: str


Event = PhaseBegan | ReferenceTimed | TuningBegan | SlotBegan | SlotDone | TuningEnded
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An observer that does nothing."""


def everyone(*observers: Observer) -> Observer:
    """One observer that calls all of them, in order."""

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe
