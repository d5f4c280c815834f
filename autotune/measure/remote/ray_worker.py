"""What runs on a cluster's machine: a LocalMeasurer behind an object that Ray can call from elsewhere.

Several workers on one machine take turns (``turns.py``): they build together, and nothing else runs while one times.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from autotune.host.machine import host_target, read_host
from autotune.host.roofline import Peak, measure_peak
from autotune.measure.evaluator import Evaluator
from autotune.measure.local_measurer import LOWERING, LocalMeasurer
from autotune.measure.machine_lock import MACHINE_TURN, Turn
from autotune.measure.measurer import Candidate
from autotune.versions import DISTRIBUTION, installed
from schedules.target import Target
from tuning_logs.measurement import Measurement


@dataclass(frozen=True)
class Description:
    """A worker's machine.

    Attributes:
        host: its name.
        cpu: its CPU's name.
        target: what it would measure for.
        versions: of this program and of TVM; both decide what a config means and how fast it is.
    """

    host: str
    cpu: str
    target: Target
    versions: tuple[str, str]


@dataclass(frozen=True)
class Answer:
    """Measurements, and the seconds that the worker has spent so far."""

    measurements: tuple[Measurement, ...]
    compile_s: float
    measure_s: float


@dataclass(frozen=True)
class Limits:
    """What ``LocalMeasurer`` is told; by default what it says itself."""

    compile_timeout_s: float = 6.0
    run_timeout_s: float = 60.0
    memory_bytes: int | None = None
    lowering: str = LOWERING


class RayWorker:
    """One worker; Ray makes an actor of it."""

    def __init__(self) -> None:
        self._measurer: LocalMeasurer | None = None
        self._target: Target | None = None

    def describe(self, threads: int | None, isa: str | None) -> Description:
        """What this machine is."""
        return Description(platform.node(), read_host().model, host_target(threads, isa), versions())

    def open(self, target: Target, evaluator: str | Evaluator, seed: int, limits: Limits) -> None:
        """Start measuring for ``target``."""
        self._target = target
        self._measurer = LocalMeasurer(
            target,
            evaluator=evaluator,
            seed=seed,
            compile_timeout_s=limits.compile_timeout_s,
            run_timeout_s=limits.run_timeout_s,
            memory_bytes=limits.memory_bytes,
            lowering=limits.lowering,
            turn=Turn(MACHINE_TURN),
        )

    def measure(
        self, candidates: Sequence[Candidate], incumbent_s: float | None, leader: Candidate | None, cold_bytes: int
    ) -> Answer:
        """See ``Machine.measure``."""
        measurer = self._open()
        measurer.cold_bytes = cold_bytes
        if leader is not None:
            measurer.lead(leader)
        return self._answer(measurer.measure(candidates, incumbent_s))

    def rank(self, candidates: Sequence[Candidate], cold_bytes: int) -> Answer:
        """See ``Ranker.rank``."""
        measurer = self._open()
        measurer.cold_bytes = cold_bytes
        return self._answer(measurer.rank(candidates))

    def baseline_s(self, candidate: Candidate, cold_bytes: int) -> Answer:
        """See ``Workshop.baseline_s``."""
        measurer = self._open()
        measurer.cold_bytes = cold_bytes
        return self._answer([measurer.baseline_s(candidate)])

    def objects(self, candidates: Sequence[Candidate]) -> list[bytes]:
        """The contents of the object files."""
        return [Path(path).read_bytes() for path in self._open().objects(candidates)]

    def peak(self) -> Peak:
        """The best of this machine."""
        assert self._target is not None
        with Turn(MACHINE_TURN).alone():
            return measure_peak(self._target)

    def close(self) -> None:
        """End the worker processes."""
        if self._measurer is not None:
            self._measurer.close()

    def _open(self) -> LocalMeasurer:
        assert self._measurer is not None, "open() comes first"
        return self._measurer

    def _answer(self, measured: Sequence[Measurement]) -> Answer:
        measurer = self._open()
        return Answer(tuple(measured), measurer.compile_s, measurer.measure_s)


def versions() -> tuple[str, str]:
    """Of this program and of TVM, here."""
    return installed(DISTRIBUTION) or "not installed", tvm.__version__
