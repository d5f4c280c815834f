"""Running a flat program on lanes: Python's side of ``lanes.cc``, which is linked into every artifact."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.backends.executor import Span, Tensors
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.steps import WHOLE, Group, Operand, Steps
from autotune.host.pages import paged
from schedules.errors import RunError, last_line

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""NumPy's kind of a type → DLPack's code. Every other kind is a float of fewer bits, bfloat16."""
BFLOAT = 4

ANYWHERE = -1
"""In place of a CPU: the thread is not pinned."""

Kernels = Any | Mapping[str, Callable[..., Any]]
"""Symbol → function: a library of TVM's, which has no types, or a dictionary."""


class LaneExecutor:
    """Runs groups of kernel calls on lanes, one run at a time; callers of other threads wait for their turn.

    Args:
        libraries: threads of a lane → the library that holds kernels built for so many.
        steps: what to run.
        weights: the program's weights, aligned.
        cpus: logical CPU of every core that lanes speak of; ``ANYWHERE`` for a thread that waits for a device.
            Thread 0 is the caller's.
        devices: symbol → what answers calls on lanes that are devices (``autotune/backends/cpu/device_lanes.py``).

    Raises:
        RuntimeError: if a thread cannot be started.
    """

    pool_per_thread = False

    def __init__(
        self,
        libraries: Mapping[int, tvm.runtime.Module],
        steps: Steps,
        weights: Sequence[NDArray[Any]],
        cpus: Sequence[int],
        devices: Kernels | None = None,
    ) -> None:
        self.lanes = steps.lanes or (cpu_lane(0, len(cpus)),)
        self.groups = steps.groups or (Group(WHOLE, 0, len(steps.calls)),)
        self._steps, self._libraries, self._cpus, self._devices = steps, libraries, cpus, devices or {}
        self._single: LaneExecutor | None = None
        self._arena = paged(steps.arena_bytes)
        self._weights = weights
        self._outputs = [self._view(operand) for operand in steps.outputs]
        self._lock = threading.Lock()
        driver = next(iter(libraries.values()))
        launch, barrier = driver["tune_lanes_launch"](), driver["tune_lanes_barrier"]()
        for library in libraries.values():
            library["tune_lanes_adopt"](launch, barrier)
        # Where nothing was placed, kernels may run on another number of threads than they were built for.
        kernels = [self._kernels(self.lanes[group.lane], driver) for group in self.groups]
        words = self._words(steps, kernels, cpus)
        self._driver, self._start = driver, driver["tune_lanes_infer"]  # looking a function up costs microseconds
        self._handle = int(driver["tune_lanes_new"](words.ctypes.data))
        # Threads end before the interpreter does: they may be inside a kernel of a library that would be unloaded.
        self._close = weakref.finalize(self, _free, driver, self._handle)

    def run(self, inputs: Tensors) -> list[NDArray[Any]]:
        """One array per output, of the outputs' shapes, copied out of the arena.

        Raises:
            RunError: if a kernel failed, naming its subgraph and lane, or the run was cancelled.
        """
        with self._lock:
            self._run(inputs)
            return [output.copy() for output in self._outputs]

    def timeline(self, inputs: Tensors) -> list[Span]:
        """Run once; when every group ran."""
        with self._lock:
            self._run(inputs)
            times = np.zeros((len(self.groups), 2), np.int64)
            self._driver["tune_lanes_times"](self._handle, times.ctypes.data)
        first = times[:, 0].min(initial=times.max(initial=0))
        seconds = (times - first) * 1e-9
        return [Span(group, *map(float, pair)) for group, pair in zip(self.groups, seconds, strict=True)]

    def profile(self, inputs: Tensors) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call, one after the other on the lanes where they belong."""
        if self._single is None:
            self._single = LaneExecutor(
                self._libraries, _one_by_one(self._steps, self.groups), self._weights, self._cpus, self._devices
            )
        spans = self._single.timeline(inputs)
        return [(step.symbol, span.seconds) for step, span in zip(self._steps.calls, spans, strict=True)]

    def cancel(self) -> None:
        """End the run that is on before its next kernel; it raises ``RunError``."""
        self._driver["tune_lanes_cancel"](self._handle)

    def close(self) -> None:
        """End the threads; safe to call twice. No run may be on."""
        self._close()

    def _run(self, inputs: Tensors) -> None:
        try:
            self._start(self._handle, *inputs)
        except Exception as error:  # the FFI raises whatever class a kernel names, and devices raise their own
            number = int(self._driver["tune_lanes_failed"](self._handle))
            if not number:
                raise RunError(str(error)) from error
            group = self.groups[number - 1]
            raise RunError(
                f"subgraph {group.name!r} failed on lane {self.lanes[group.lane].name}: {last_line(error)}; "
                "build the artifact again, and report the model if it stays"
            ) from error

    def _kernels(self, lane: Lane, driver: tvm.runtime.Module) -> Kernels:
        """What has the functions that ``lane`` calls."""
        if lane.device:
            return self._devices
        return self._libraries[lane.threads] if self._steps.lanes else driver

    def _view(self, operand: Operand) -> NDArray[Any]:
        dtype = np.dtype(operand.dtype)
        size = math.prod(operand.shape) * dtype.itemsize
        return self._arena[operand.index : operand.index + size].view(dtype).reshape(operand.shape)

    def _words(self, steps: Steps, kernels: Sequence[Kernels], cpus: Sequence[int]) -> NDArray[np.int64]:
        """What ``tune_lanes_new`` reads."""
        words = [len(cpus), *cpus, len(self.groups)]
        calls = iter(steps.calls)
        # Held only until the machine, which takes a reference of its own, is made.
        self._functions: list[Callable[..., Any]] = []
        for group, library in zip(self.groups, kernels, strict=True):
            lane = self.lanes[group.lane]
            words += [lane.first, lane.threads, len(group.waits), *group.waits, group.calls]
            for _ in range(group.calls):
                step = next(calls)
                function = library[step.symbol]
                self._functions.append(function)
                words += [_handle(function), len(step.operands)]
                for operand in step.operands:
                    words += self._operand(operand)
        for core in range(len(cpus)):
            items = [number for number, group in enumerate(self.groups) if core in self.lanes[group.lane].cores]
            words += [len(items), *items]
        return np.array(words, np.int64)

    def _operand(self, operand: Operand) -> list[int]:
        if operand.place == "input":
            where = operand.index
        elif operand.place == "weight":
            where = self._weights[operand.index].ctypes.data
        else:
            where = self._arena.ctypes.data + operand.index
        dtype = np.dtype(operand.dtype)
        code = CODES.get(dtype.kind, BFLOAT)
        return [operand.place == "input", where, code, 8 * dtype.itemsize, len(operand.shape), *operand.shape]


def _one_by_one(steps: Steps, groups: Sequence[Group]) -> Steps:
    """The same calls on the same lanes, each a group that waits for the one before."""
    lanes = [group.lane for group in groups for _ in range(group.calls)]
    waits = [(number - 1,) if number else () for number in range(len(lanes))]
    single = tuple(
        Group(step.symbol, lane, 1, wait) for step, lane, wait in zip(steps.calls, lanes, waits, strict=True)
    )
    return replace(steps, groups=single)


def _free(driver: tvm.runtime.Module, handle: int) -> None:
    driver["tune_lanes_free"](handle)


def _handle(function: Any) -> int:
    """Address of a function object."""
    return int(function.__chandle__())
