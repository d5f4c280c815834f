"""Measurer: turns configs into measurements.

Conformance: one measurement per config, in order; a candidate's failure is a Measurement, never an exception;
``MeasureError`` is raised only where measuring itself is broken (no worker can be started at all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from schedules.config import Config
from schedules.task import Task
from tuning_logs.measurement import Measurement


@dataclass(frozen=True)
class Candidate:
    """One config of one task, with the program it applies to.

    Attributes:
        task: what is tuned.
        program: the task's normalised PrimFunc as JSON text (``tvm.ir.save_json``).
        config: what to try.
    """

    task: Task
    program: str
    config: Config


def symbol_of(task: str) -> str:
    """Name of a task's kernel in object files, libraries and artifacts."""
    return f"tune_{task}"


@runtime_checkable
class Measurer(Protocol):
    """Builds, checks and times candidates."""

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order.

        Args:
            candidates: all of one task.
            incumbent_s: latency of the task's best config so far in seconds; an evaluator may stop early on losers.
        """
        ...

    def close(self) -> None:
        """End every worker process; safe to call twice."""
        ...


@runtime_checkable
class Ranker(Protocol):
    """A measurer that can also time finalists against each other."""

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Candidates of one task timed again, run by run in turn, so that drift meets all of them alike."""
        ...
