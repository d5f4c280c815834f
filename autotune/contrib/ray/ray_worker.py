"""Code that Ray runs on a cluster's machine: a description of the machine, and its ``MeasuringWorker``."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Any

import tvm

from autotune.host.machine import host_target
from autotune.host.roofline import Roofline, measure_roofline
from autotune.measure.evaluator import Evaluator
from autotune.measure.local_measurer import LOWERING, LocalMeasurer
from autotune.measure.machine_lock import MachineLock, lock_file
from autotune.measure.measure_limits import MeasureLimits, Shared
from autotune.measure.remote.measuring_worker import MeasuringWorker
from autotune.versions import DISTRIBUTION, installed
from schedules.target import Target


@dataclass(frozen=True)
class Description:
    """A worker's machine.

    Attributes:
        host: its name.
        target: what it would measure for.
        versions: of this program and of TVM; both decide what a config means and how fast it is.
    """

    host: str
    target: Target
    versions: tuple[str, str]


@dataclass(frozen=True)
class MeasurerOptions:
    """Arguments of the workers' ``LocalMeasurer``, see there."""

    evaluator: str | Evaluator = "adaptive"
    seed: int = 0
    limits: MeasureLimits = field(default_factory=MeasureLimits)
    lowering: str = LOWERING


class RayWorker:
    """One worker; Ray makes an actor of it.

    Several workers on one machine share its lock: they build together, and nothing else runs while one times.
    """

    def __init__(self) -> None:
        self._worker: MeasuringWorker | None = None

    def describe(self, threads: int | None, isa: str | None) -> Description:
        """Return the description of this machine."""
        return Description(platform.node(), host_target(threads, isa), versions())

    def open(self, target: Target, options: MeasurerOptions) -> None:
        """Start measuring for ``target``."""
        lock = MachineLock(lock_file())

        def roofline() -> Roofline:
            with lock.alone():
                return measure_roofline(target)

        measurer = LocalMeasurer(
            target,
            evaluator=options.evaluator,
            seed=options.seed,
            limits=options.limits,
            lowering=options.lowering,
            shared=Shared(lock),
        )
        self._worker = MeasuringWorker(measurer, roofline)

    def call(self, method: str, *arguments: Any) -> Any:
        """See ``RemoteMachine.call``; ``open`` comes first."""
        return getattr(self._worker, method)(*arguments)


def versions() -> tuple[str, str]:
    """Return the versions of this program and of TVM here."""
    return installed(DISTRIBUTION) or "not installed", tvm.__version__
