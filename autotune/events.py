"""What a run tells whoever watches it. The library logs and tells; only the CLI speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schedules.task import Task
from search.allocation import TaskState


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
class PeerTimed:
    """The model's latency on another engine, measured before tuning began.

    Attributes:
        name, version: the engine.
        latency_s: median seconds of one inference on the same threads and inputs.
    """

    name: str
    version: str
    latency_s: float


@dataclass(frozen=True)
class SlotBegan:
    """A slot was dealt.

    Attributes:
        task: who got it.
        trials: configs about to be measured.
        why: the allocator's reason, a phrase.
    """

    task: Task
    trials: int
    why: str


@dataclass(frozen=True)
class SlotDone:
    """One slot was measured and is safe in the log.

    Attributes:
        task: whose slot it was.
        state: that task's state now.
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


def to_data(event: Event) -> dict[str, Any]:
    """``event`` as one line of ``tune run --events``: its kind in ``event``, tasks by key, units in the names."""
    match event:
        case PhaseBegan(name):
            return {"event": "phase", "name": name}
        case PeerTimed(name, version, latency_s):
            return {"event": "peer", "name": name, "version": version, "latency_ms": 1e3 * latency_s}
        case TuningBegan(tasks, states, budget_s):
            known = [{"name": task.name, **_standing(state)} for task, state in zip(tasks, states, strict=True)]
            return {"event": "tuning_began", "budget_s": budget_s, "tasks": known}
        case SlotBegan(task, trials, why):
            return {"event": "slot_began", "key": task.key, "count": trials, "why": why}
        case SlotDone():
            slot = {"measured": event.measured, "failures": event.failures, "elapsed_s": event.elapsed_s}
            return {"event": "slot_done", **slot, **_standing(event.state)}
        case TuningEnded(reason):
            return {"event": "tuning_ended", "reason": reason}


def _standing(state: TaskState) -> dict[str, Any]:
    """Where tuning a task stands."""
    return {
        "key": state.key,
        "weight": state.weight,
        "bound_us": 1e6 * state.bound_s,
        "trials": state.trials,
        "best_us": None if state.best_s is None else 1e6 * state.best_s,
    }


Event = PhaseBegan | PeerTimed | TuningBegan | SlotBegan | SlotDone | TuningEnded
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer that watches nothing."""


def everyone(*observers: Observer) -> Observer:
    """One observer that tells all of them, in order."""

    def tell(event: Event) -> None:
        for observer in observers:
            observer(event)

    return tell
