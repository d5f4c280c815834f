"""The events of a run as JSON lines in a file: for programs that follow a run, and to keep."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.events import Event, PhaseBegan, ReferenceTimed, SlotBegan, SlotDone, TuningBegan, TuningEnded
from schedules.vocabulary.errors import UsageError
from search.allocators.allocation import TaskState


class EventFile:
    """An observer that writes every event at once, with its time ``t`` in seconds since the epoch.

    Args:
        path: a file, written anew, or a pipe.

    Raises:
        UsageError: if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._stream = path.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write events to {path} ({error.strerror}); name another --events FILE") from error

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __call__(self, event: Event) -> None:
        """Write ``event``."""
        self.write(to_data(event))

    def write(self, data: Mapping[str, Any]) -> None:
        """Write one line."""
        self._stream.write(json.dumps({"t": time.time(), **data}) + "\n")
        self._stream.flush()


def to_data(event: Event) -> dict[str, Any]:
    """``event`` as one line of ``tune run --events``: its kind in ``event``, tasks by key, units in the names."""
    match event:
        case PhaseBegan(name):
            return {"event": "phase", "name": name}
        case ReferenceTimed(name, version, latency_s):
            return {"event": "reference_timed", "name": name, "version": version, "latency_ms": 1e3 * latency_s}
        case TuningBegan(tasks, states, budget_s):
            known = [{"name": task.name, **_state(state)} for task, state in zip(tasks, states, strict=True)]
            return {"event": "tuning_began", "budget_s": budget_s, "tasks": known}
        case SlotBegan(task, trials, why):
            return {"event": "slot_began", "key": task.key, "count": trials, "why": why}
        case SlotDone():
            slot = {"measured": event.measured, "failures": event.failures, "elapsed_s": event.elapsed_s}
            return {"event": "slot_done", **slot, **_state(event.state)}
        case TuningEnded(reason):
            return {"event": "tuning_ended", "reason": reason}


def _state(state: TaskState) -> dict[str, Any]:
    """Return the state of a task as the event has it."""
    return {
        "key": state.key,
        "weight": state.weight,
        "bound_us": 1e6 * state.bound_s,
        "trials": state.trials,
        "best_us": None if state.best_s is None else 1e6 * state.best_s,
    }
