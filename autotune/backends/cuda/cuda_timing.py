"""Checks and times candidates on a CUDA device, inside a worker; the GPU's counterpart of ``measure.timing.Bench``.

A run is timed by the device's own events, after L2 has been overwritten, since a model meets its weights there no more
than a kernel does that runs alone. Drift of the clock is met as on the CPU: a contender is timed in turn with the
incumbent's kernel, whose earlier time is known.

An error that loses the context leaves this module as an exception on purpose: the worker ends with it, the measuring
process starts another, and the candidate has failed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm

from autotune.backends.cuda.driver import Driver, StickyError
from autotune.measure.kernel_builder import last_words, starved
from autotune.measure.kernel_timing import load
from autotune.measure.messages import ReferenceJob, Settings, Timed, TimedAll, TimeJob
from autotune.measure.output_check import (
    Array,
    Expected,
    aligned,
    make_inputs,
    mirrored,
    normal_block,
    numpy_dtype,
    poison,
)
from autotune.measure.racing import duel, race
from schedules.task import Task
from tuning_logs.measurement import ErrorKind

FLUSH_FACTOR = 2
"""L2 is overwritten by so many times its size."""

KEPT_TASKS = 4

Kernel = Any


@dataclass
class OnDevice:
    """A task's arguments on the device, the same with mirrored activations, and what must come out."""

    arguments: list[tvm.runtime.Tensor]
    mirrored: list[tvm.runtime.Tensor]
    poisoned: Array
    expected: Expected | None

    @property
    def output(self) -> tvm.runtime.Tensor:
        """The last argument."""
        return self.arguments[-1]


class DeviceBench:
    """Runs libraries on one device.

    Args:
        settings: the measurer's.
        driver: the device's; a stand-in in tests.
    """

    def __init__(self, settings: Settings, driver: Driver | None = None) -> None:
        self._settings = settings
        self._driver = driver or Driver()
        self._device = tvm.cuda(0)
        self._stream = self._driver.stream()
        self._device.set_raw_stream(int(self._stream))
        self._block = normal_block(settings.seed)
        size = FLUSH_FACTOR * settings.target.l2_bytes
        self._flush = int(self._driver.call("cuMemAlloc", size)), size
        self._tasks: OrderedDict[str, OnDevice] = OrderedDict()

    def reference(self, job: ReferenceJob) -> TimedAll:
        """Run the untuned library, write its output, time it."""
        start = time.perf_counter()
        kernel = load(job.library, job.task)
        for positive in (False, True):
            prepared = self._fresh(job.task, positive)
            self._call(kernel, prepared.arguments)
            got = prepared.output.numpy()
            if got.dtype.kind != "f" or np.isfinite(got).all():
                break
        np.save(job.output, got)
        prepared.expected = Expected(got.copy(), job.task.dtypes[-1])
        self._keep(job.task, prepared)
        (runs,) = race([partial(self._run, kernel, prepared)], job.evaluator, None)
        return TimedAll((Timed(tuple(runs), time.perf_counter() - start),), positive)

    def time(self, job: TimeJob) -> TimedAll:
        """Check every library of the job, then time the right ones, interleaved."""
        start = time.perf_counter()
        prepared = self._get(job)
        answers: list[Timed | None] = []
        kernels: list[Kernel] = []
        for library in job.libraries:
            kernel = load(library, job.task)
            wrong = self._wrong(kernel, prepared)
            answers.append(wrong)
            if wrong is None:
                kernels.append(kernel)
        series = iter(self._series(job, kernels, prepared))
        spent = (time.perf_counter() - start) / len(job.libraries)
        return TimedAll(tuple(answer or Timed(tuple(next(series)), spent) for answer in answers))

    def _series(self, job: TimeJob, kernels: list[Kernel], prepared: OnDevice) -> list[Sequence[float]]:
        if len(kernels) != 1 or job.control is None or job.incumbent_s is None or not job.evaluator.races:
            timed = [partial(self._run, kernel, prepared) for kernel in kernels]
            return [*race(timed, job.evaluator, job.incumbent_s)] if kernels else []
        control = load(job.control[0], job.task)
        own, other = (partial(self._run, kernel, prepared) for kernel in (kernels[0], control))
        return [duel(own, other, job.evaluator, job.incumbent_s)]

    def _wrong(self, kernel: Kernel, prepared: OnDevice) -> Timed | None:
        """Why a kernel is not fit to be timed, or None."""
        start = time.perf_counter()
        try:
            self._call(kernel, prepared.mirrored)
            prepared.output.copyfrom(prepared.poisoned)
            self._call(kernel, prepared.arguments)
        except StickyError:
            raise
        except Exception as error:  # whatever a candidate provokes is its measurement
            kind: ErrorKind = "out_of_memory" if starved(str(error)) else "wrong_result"
            return Timed(
                run_s=time.perf_counter() - start, error=kind, message=f"the kernel raised {last_words(error)}"
            )
        assert prepared.expected is not None
        mismatch = prepared.expected.mismatch(prepared.output.numpy())
        if not mismatch:
            return None
        return Timed(run_s=time.perf_counter() - start, error="wrong_result", message=mismatch)

    def _run(self, kernel: Kernel, prepared: OnDevice) -> float:
        """Seconds of one run, by the device's events, with L2 overwritten before it."""
        address, size = self._flush
        self._driver.call("cuMemsetD8Async", address, 0, size, self._stream)
        seconds: list[float] = []
        with self._driver.timed(self._stream, seconds):
            kernel(*prepared.arguments)
        return seconds[0]

    def _call(self, kernel: Kernel, arguments: Sequence[tvm.runtime.Tensor]) -> None:
        kernel(*arguments)
        self._driver.synchronize(self._stream)

    def _get(self, job: TimeJob) -> OnDevice:
        prepared = self._tasks.get(job.task.key)
        if prepared is None:
            prepared = self._fresh(job.task, job.reference.positive)
            prepared.expected = Expected(np.load(job.reference.output), job.task.dtypes[-1])
            self._keep(job.task, prepared)
        self._tasks.move_to_end(job.task.key)
        return prepared

    def _keep(self, task: Task, prepared: OnDevice) -> None:
        self._tasks[task.key] = prepared
        while len(self._tasks) > KEPT_TASKS:
            self._tasks.popitem(last=False)

    def _fresh(self, task: Task, positive: bool) -> OnDevice:
        inputs = make_inputs(task, self._block, self._settings.seed, positive)
        output = aligned(task.shapes[-1], numpy_dtype(task.dtypes[-1]))
        poison(output)
        arguments = [tvm.runtime.tensor(array, self._device) for array in (*inputs, output)]
        others = [
            known if other is array else tvm.runtime.tensor(other, self._device)
            for known, array, other in zip(arguments, inputs, mirrored(task, inputs), strict=False)
        ]
        return OnDevice(arguments, [*others, arguments[-1]], output, None)
