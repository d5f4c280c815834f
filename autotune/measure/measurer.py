"""The interface of measuring: a ``Measurer`` turns configs into measurements.

Conformance: one measurement per config, in order; a candidate's failure is a Measurement, never an exception;
``MeasureError`` is raised only where measuring itself is broken (no worker can be started at all).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

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


WORKER = "worker"
"""Provenance field: who on the machine measured."""


class Origin(NamedTuple):
    """The origin of a measurement.

    Attributes:
        host: the machine's name.
        worker: which of that machine's workers, where there may be several; empty where there is only one.
    """

    host: str
    worker: str = ""

    @property
    def provenance(self) -> dict[str, str]:
        """The worker, as records keep it."""
        return {WORKER: self.worker} if self.worker else {}


class Measurer(Protocol):
    """Builds, checks and times candidates. What only tunes needs no more than this."""

    @property
    def origins(self) -> Sequence[Origin]:
        """The origin of each measurement of the last batch, ranking or untuned run, in order; empty if it is here."""
        ...

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order.

        Args:
            candidates: all of one task.
            incumbent_s: latency of the task's best config so far in seconds; an evaluator may stop early on losers.
        """
        ...

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        """Time contenders in turn with ``incumbent`` from now on: it took ``latency_s`` in an earlier run."""
        ...

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Candidates of one task timed again, run by run in turn, so that drift meets all of them alike."""
        ...

    def close(self) -> None:
        """End every worker process; safe to call twice."""
        ...


class MeasurementBackend(Measurer, Protocol):
    """A measurer on real machines: it also times untuned builds, hands out object files and knows the roofline.

    Attributes:
        compile_s, measure_s: wall-clock seconds spent building, and checking and timing, so far.
        at_once: candidates that it builds at the same time.
        cold_bytes: bytes of the model's weights. Between two runs a candidate's weights leave the caches as that much
            other data does. Set it before a model's first measurement.
    """

    compile_s: float
    measure_s: float
    at_once: int
    cold_bytes: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> object: ...

    def expect(self, candidates: Iterable[Candidate]) -> None:
        """Tasks that will be measured soon, soonest first: a hint, for what can be built where a builder is idle."""
        ...

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """The untuned build's measurement of the candidate's task."""
        ...

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """Object files that hold the candidates' kernels under ``symbol_of`` their tasks.

        Raises:
            CompileError: if one does not compile, naming it and why.
        """
        ...
