"""Checks and times candidates on a CUDA device, inside a worker.

A run is timed by the device's own events. L2 is overwritten before it, because in a model a kernel finds other kernels'
data there. Drift of the clock is handled as on the CPU: a contender is timed in turn with the incumbent's kernel, whose
earlier time is known.

An error that loses the context leaves this module as an exception on purpose: the worker ends with it, the pool starts
another, and the candidate has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm

from autotune.backends.cuda.device import ordinal_of
from autotune.backends.cuda.driver import Driver, StickyError
from autotune.backends.cuda.memory_views import copied
from autotune.host.dtypes import as_words
from autotune.measure.edge_check import ExpectedEdges, edged
from autotune.measure.kernel_timing import Bench, Loaded
from autotune.measure.messages import Settings
from autotune.measure.output_check import Array, Expected, aligned, make_inputs, numpy_dtype, poison
from schedules.task import Task

FLUSH_FACTOR = 2
"""L2 is overwritten by so many times its size, since its replacement is not strictly least-recently-used. Heuristic."""


@dataclass
class OnDevice:
    """A task's arguments on the device, the same with edges among the activations, and what must come out."""

    arguments: list[tvm.runtime.Tensor]
    edged: list[tvm.runtime.Tensor]
    poisoned: Array
    expected: Expected | None
    edges: ExpectedEdges | None

    @property
    def output(self) -> tvm.runtime.Tensor:
        """The last argument."""
        return self.arguments[-1]


class DeviceBench(Bench[OnDevice]):
    """Runs libraries on one device.

    Args:
        settings: the measurer's.
        driver: the device's; a stand-in in tests.
    """

    fatal = (StickyError,)

    def __init__(self, settings: Settings, driver: Driver | None = None) -> None:
        super().__init__(settings)
        ordinal = ordinal_of(settings.device)
        self._driver = driver or Driver(ordinal=ordinal)
        self._device = tvm.cuda(ordinal)
        self._stream = self._driver.stream()
        self._device.set_raw_stream(int(self._stream))
        size = FLUSH_FACTOR * settings.target.l2_bytes
        self._flush = int(self._driver.call("cuMemAlloc", size)), size

    def _output(self, loaded: Loaded, prepared: OnDevice, edges: bool) -> Array:
        prepared.output.copyfrom(prepared.poisoned)
        self._call(loaded, prepared.edged if edges else prepared.arguments)
        output: Array = as_words(prepared.output.numpy())
        return output

    def _call(self, loaded: Loaded, arguments: Sequence[tvm.runtime.Tensor]) -> None:
        loaded.kernel(*arguments)
        self._driver.synchronize(self._stream)

    def _run(self, loaded: Loaded, prepared: OnDevice) -> float:
        """Seconds of one run, by the device's events, with L2 overwritten before it."""
        address, size = self._flush
        self._driver.call("cuMemsetD8Async", address, 0, size, self._stream)
        seconds: list[float] = []
        with self._driver.timed(self._stream, seconds):
            loaded.kernel(*prepared.arguments)
        return seconds[0]

    def _fresh(self, task: Task, positive: bool, draw: int) -> OnDevice:
        inputs = make_inputs(task, self._block, self._settings.seed, positive, draw)
        output = aligned(task.shapes[-1], numpy_dtype(task.dtypes[-1]))
        poison(output)
        typed = zip((*inputs, output), task.dtypes, strict=True)
        arguments = [copied(array, dtype, self._device) for array, dtype in typed]
        others = [
            known if other is array else copied(other, dtype, self._device)
            for known, array, other, dtype in zip(
                arguments, inputs, edged(task, inputs, draw), task.dtypes, strict=False
            )
        ]
        return OnDevice(arguments, [*others, arguments[-1]], output, None, None)
