"""Running a flat program: Python's side of ``core.cc``, which is linked into every artifact."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cpu.native_library import (
    CANCELLED,
    OK,
    NativeLibrary,
    Program,
    Report,
    Request,
    Run,
    RunLayout,
    Settings,
)
from autotune.backends.cpu.native_streams import NativeStreams
from autotune.backends.cpu.program_words import groups_of, host_operands, lanes_of, nbytes, program_words
from autotune.backends.executor import Arrays, Executor, Span
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.steps import MOST_LIVE, LiveSizes, Operand, Steps
from autotune.host.pages import RecycledMemory
from schedules.vocabulary.errors import ArtifactError, RunError, last_line

ANYWHERE = -1
"""In place of a CPU: the thread is not pinned."""

SLEEPING = -2
"""In place of a CPU: the thread waits for a device; it is not pinned, and does not take a core while it waits."""

FIRST_SPARE = -3
"""``FIRST_SPARE - n`` in place of CPU n: the thread waits for a device on a CPU on which nobody computes."""

DeviceCall = Callable[[Arrays], None]
"""Answers a call on a lane that is a device: given those of its operands that lie in the host's memory."""

_attached = threading.local()
"""Has ``state`` in threads of the core that the interpreter knows for good. Else it would make what it keeps of one
anew for every call."""

KERNEL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int32, c_void_p)
"""A kernel's type, TVM's ``TVMFFISafeCallType``; its arguments are 16 bytes each, the latter 8 a tensor's address."""


class NativeExecutor(Executor):
    """Runs groups of kernel calls on lanes, one run at a time; callers of other threads wait for their turn.

    Args:
        libraries: threads of a lane → the library that holds kernels built for so many. The first one's core runs all.
        steps: what to run.
        weights: the program's weights, aligned.
        cpus: logical CPU of every core that lanes speak of; Thread 0 is the caller's (``thread_places``).
        devices: number of a call → what answers it, on lanes that are devices (``device_lanes.py``).
        live: which jobs ``run`` may leave out.

    Raises:
        RunError: if there is no memory for the arena, or a thread cannot be started.
    """

    def __init__(
        self,
        libraries: Mapping[int, NativeLibrary],
        steps: Steps,
        weights: Sequence[NDArray[Any]],
        cpus: Sequence[int],
        devices: Mapping[int, DeviceCall] | None = None,
        live: LiveSizes | None = None,
    ) -> None:
        self.lanes = steps.lanes or (cpu_lane(0, len(cpus)),)
        self.groups = groups_of(steps)
        self._steps, self._weights, self._devices = steps, weights, devices or {}
        self.library = next(iter(libraries.values()))
        self.first_cpu = int(cpus[0])
        for library in libraries.values():
            library.adopt(self.library)
        self._inputs = _input_bytes(steps)
        self.reads = len(self._inputs)
        self._layout = RunLayout(len(self._inputs), len(steps.outputs))
        results = RecycledMemory()
        self.makers = [results.maker(tuple(spec.shape), np.dtype(spec.dtype)) for spec in steps.outputs]
        self._callbacks: list[Any] = []  # the core calls them, so they must live as long as it
        self._words = program_words(
            steps, self._inputs, live, self.library.run_sizes is not None, self.library.growth_steps > 0
        )
        kernels = np.array(list(self._kernels(libraries)), np.uintp)
        places = np.array([array.ctypes.data for array in weights], np.uintp)
        where = np.array(cpus, np.int64)
        program = Program(self._words.ctypes.data, kernels.ctypes.data, places.ctypes.data)
        handle, report = c_void_p(), Report()
        self._places = places  # the core reads outputs that are weights through it
        settings = Settings(len(cpus), where.ctypes.data, True)
        if self.library.open(program, settings, ctypes.addressof(handle), ctypes.addressof(report)) != OK:
            raise RunError(f"the model cannot be opened: {report.message}; free memory, or ask for fewer threads")
        self.handle = handle
        self._request = Request()  # of every run here; those of streams have their own
        self._token = ctypes.addressof(self._request)
        self._escaped: BaseException | None = None
        # At exit all stays as it is: a daemon thread may still run on the core.
        self._close = weakref.finalize(self, _close, tuple(libraries.values()), handle, self._callbacks)
        self._close.atexit = False

    @property
    def survives_fork(self) -> bool:
        """Implement ``Executor``: the core does; no device is known to."""
        return not self._devices

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Implement ``Executor.run``; an error names the subgraph and its lane."""
        return self._run(inputs, None)

    def run_live(self, inputs: Arrays, live: Sequence[int]) -> list[NDArray[Any]]:
        """Implement ``Executor.run_live``: jobs of other rows alone do not run."""
        return self._run(inputs, None, live)

    def run_rows(self, inputs: Arrays, count: int) -> list[NDArray[Any]]:
        """Implement ``Executor.run_rows``, by one call of the core's where all outputs have a first axis."""
        shapes = [spec.shape for spec in self._steps.outputs]
        if self.library.run_rows is None or not all(shapes):
            return super().run_rows(inputs, count)
        outputs = [
            np.empty((count * first, *rest), spec.dtype)
            for spec, (first, *rest) in zip(self._steps.outputs, shapes, strict=True)
        ]
        run = Run(self._layout, inputs, outputs)
        status = self.library.run_rows(self.handle, run.inputs_at, run.outputs_at, run.report, self._token, count)
        if status != OK:
            self.raise_failure(status, run.said())
        return outputs

    def timeline(self, inputs: Arrays) -> list[Span]:
        """Run once; when every group ran."""
        seconds = self._times(inputs)[: len(self.groups)]
        return [Span(group, *map(float, pair)) for group, pair in zip(self.groups, seconds, strict=True)]

    def profile(self, inputs: Arrays) -> list[tuple[str, float]]:
        """(symbol, seconds) of every kernel call, on the lanes where they belong."""
        seconds = self._times(inputs)[len(self.groups) :]
        return [
            (step.symbol, float(ended - began)) for step, (began, ended) in zip(self._steps.calls, seconds, strict=True)
        ]

    def halt(self) -> None:
        """Implement ``Executor.halt``."""
        self._request.cancelled = 1  # first: a run that begins now looks here after it has cleared the core's mark
        self.library.cancel(self.handle)

    def resume(self) -> None:
        """Implement ``Executor.resume``."""
        self._request.cancelled = 0

    def close(self) -> None:
        """End the threads; safe to call twice. No run may be on."""
        self._close()

    def _times(self, inputs: Arrays) -> NDArray[np.float64]:
        """(groups + calls, 2) seconds at which each of one run began and ended."""
        times = np.zeros((len(self.groups) + len(self._steps.calls), 2), np.int64)
        self._run(inputs, times.ctypes.data)
        return np.asarray((times - times[:, 0].min(initial=times.max(initial=0))) * 1e-9)

    def raise_failure(self, status: int, report: Report) -> None:
        """Raise what a run that did not end well reported.

        Raises:
            RunError: naming the subgraph and its lane.
        """
        escaped, self._escaped = self._escaped, None
        if escaped is not None:
            raise escaped
        if report.group < 0:
            raise RunError(report.message if status == CANCELLED else f"the model did not run: {report.message}")
        group = self.groups[report.group]
        raise RunError(
            f"subgraph {group.name!r} failed on lane {self.lanes[group.lane].name}: {report.message}; "
            "build the artifact again, and report the model if it stays"
        )

    def streams(self, others: Sequence[Executor]) -> NativeStreams | None:
        """Implement ``Executor.streams``; None of an artifact that was built by a version without them."""
        same = [other for other in others if isinstance(other, NativeExecutor)]
        try:
            return NativeStreams([self, *same])
        except ArtifactError:
            return None

    def _run(self, inputs: Arrays, times: int | None, live: Sequence[int] = ()) -> list[NDArray[Any]]:
        run = Run(self._layout, inputs, [make() for make in self.makers])
        more: list[Any] = []
        function = self.library.run
        if live and self.library.run_sizes is not None:
            more, function = [(c_int64 * MOST_LIVE)(*live)], self.library.run_sizes
        elif live:
            more, function = [live[0]], self.library.run_live
        status = function(self.handle, run.inputs_at, run.outputs_at, times, run.report, self._token, *more)
        if status != OK:
            self.raise_failure(status, run.said())
        return run.outputs

    def _kernels(self, libraries: Mapping[int, NativeLibrary]) -> list[int]:
        """Address of the function of every call."""
        lanes, calls, addresses = lanes_of(self._steps), iter(self._steps.calls), list[int]()
        for group in self.groups:
            lane = lanes[group.lane]
            # Where nothing was placed, kernels may run on another number of threads than they were built for.
            library = libraries[lane.threads] if self._steps.lanes and not lane.device else self.library
            for _ in range(group.calls):
                step = next(calls)
                addresses.append(
                    self._callback(self._devices[len(addresses)], host_operands(step))
                    if lane.device
                    else library.kernel(step.symbol)
                )
        return addresses

    def _callback(self, function: DeviceCall, operands: Sequence[Operand]) -> int:
        """Address of a kernel that calls ``function``."""
        library = self.library

        def call(_: int, arguments: int, count: int, _result: int) -> int:
            if not hasattr(_attached, "state"):
                _attached.state = ctypes.pythonapi.PyGILState_Ensure()
            try:
                pairs = (ctypes.c_uint64 * (2 * count)).from_address(arguments)
                function([_view(pairs[2 * i + 1], operand) for i, operand in enumerate(operands)])
            except BaseException as error:  # whatever a device raises, or Ctrl-C, is raised again by the run
                if not isinstance(error, Exception):
                    self._escaped = error
                library.fail(last_line(error).encode())
                return -1
            return 0

        self._callbacks.append(KERNEL(call))
        return ctypes.cast(self._callbacks[-1], c_void_p).value or 0


def thread_places(lanes: Sequence[Lane], cpus: Sequence[int]) -> list[int]:
    """Return where the thread of every core of ``lanes`` runs, as ``NativeExecutor`` takes it.

    Threads that wait for devices share a CPU on which nothing is computed, where there is one: they are there when a
    result is, while one that sleeps is woken 5 to 50 µs later on a virtual machine, on a core that kernels run on.

    Args:
        cpus: that may be used; if they are fewer than cores, some run the threads of several.
    """
    computing = max((lane.cores[-1] + 1 for lane in lanes if not lane.device), default=0)
    where = [cpus[core % len(cpus)] for core in range(max(lane.cores[-1] for lane in lanes) + 1)]
    waiting = FIRST_SPARE - cpus[computing] if computing < len(cpus) else SLEEPING
    for lane in lanes:
        if lane.device:
            where[lane.first] = waiting
    return where


def _view(tensor: int, operand: Operand) -> NDArray[Any]:
    """The host's memory under the ``DLTensor`` at ``tensor``, whose first field is its address."""
    address = c_void_p.from_address(tensor).value or 0
    memory = (ctypes.c_uint8 * nbytes(operand)).from_address(address)
    return np.ctypeslib.as_array(memory).view(operand.dtype).reshape(operand.shape)


def _input_bytes(steps: Steps) -> list[int]:
    """Sizes of the inputs by number, 0 for those that nothing reads."""
    read = (operand for step in steps.calls for operand in step.tensors if operand.place == "input")
    sizes = {operand.index: nbytes(operand) for operand in (*read, *steps.outputs) if operand.place == "input"}
    return [sizes.get(number, 0) for number in range(max(sizes, default=-1) + 1)]


def _close(libraries: tuple[NativeLibrary, ...], handle: c_void_p, _callbacks: list[Any]) -> None:
    libraries[0].close(handle)
