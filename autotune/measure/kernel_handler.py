"""Handlers of the workers that build kernels, check them and time them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, cast

from autotune.host.fork_server import Handler, Refused
from autotune.host.machine import host_target
from autotune.measure.code_cache import CodeCache
from autotune.measure.dirty_registers import dirty_calls
from autotune.measure.kernel_builder import Builder, Lowering
from autotune.measure.kernel_timing import Bench, CpuBench
from autotune.measure.messages import BuildJob, Built, ReferenceJob, Settings, TimedAll, TimeJob
from autotune.measure.timed_memory import compile_producer
from schedules.vocabulary.errors import MeasureError

KernelJob = BuildJob | ReferenceJob | TimeJob


def lowering_of(settings: Settings) -> Lowering:
    """The module that applies configs to programs."""
    return cast(Lowering, importlib.import_module(settings.lowering))


class KernelHandler(Handler):
    """Builds with ``builder``; what runs, runs on the bench, which the first such job opens, so never before a fork.

    Args:
        builder: for the settings' target.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._bench: Bench[Any] | None = None

    def _open(self) -> Bench[Any]:
        """Get what kernels run on."""
        raise NotImplementedError

    def answer(self, job: KernelJob) -> Built | TimedAll | Refused:
        """Do one job; ``Refused`` if nothing can be built here."""
        if isinstance(job, BuildJob):
            return self._built(job)
        if self._bench is None:
            self._bench = self._open()
        return self._bench.answer(job)

    def _built(self, job: BuildJob) -> Built | Refused:
        try:
            return self._builder.build(job)
        except MeasureError as error:
            return Refused(error)


class CpuHandler(KernelHandler):
    """Builds for this machine's CPU, and runs on it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lowering = lowering_of(settings)
        self._producer = compile_producer(host_target())
        cache = CodeCache(Path(settings.cache)) if settings.cache else None
        builder = Builder(settings.target, self._lowering, cache)
        self._dirty = dirty_calls(builder, settings.target)
        super().__init__(builder)

    def _open(self) -> Bench[Any]:
        return CpuBench(self._settings, self._lowering, self._producer, self._dirty)
