"""A subgraph on a simulated device: the CPU's kernels, weights that stay or are streamed, at a made-up pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.backends.cpu.native_executor import ANYWHERE, SLEEPING, DeviceCall, NativeExecutor
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import fitting_weights
from autotune.backends.executor import Arrays
from autotune.graph.lanes import HOST, Lane, cpu_lane
from autotune.graph.merge import COPY
from autotune.graph.steps import WHOLE, Group, Step, Steps
from autotune.graph.streaming import Streaming, streamed

if TYPE_CHECKING:  # which loads this module
    from tests.simulated.software_device import SoftwareDevice

BEGIN, END = "@begin", "@end"
"""Calls around a kernel whose seconds are made up."""


class SoftwareProgram:
    """The subgraph of ``part`` on ``device``.

    Raises:
        OutOfMemoryError: if not even its activations and two buffers of weights fit.
    """

    def __init__(self, device: SoftwareDevice, part: Artifact) -> None:
        self._device, self._began = device, 0.0
        device.reserve(part.steps.arena_bytes, "what passes between its kernels")
        budget = min(device.free_bytes, device.room.share(part, device.speeds.memory_bytes))
        streaming = fitting_weights(device.name, part, budget)
        device.reserve(streaming.bytes, "its weights")
        steps = replace(part.steps, weights=part.weights)
        device.streamed_bytes += streaming.streamed_bytes(steps)
        self.steps, self.streaming = steps, streaming
        self._machine = self._executor(part, streaming)

    def run(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run on arrays of the device's arena, into others of it."""

        def work() -> None:
            for place, array in zip(outputs, self.results(inputs), strict=True):
                place[...] = array.view(place.dtype).reshape(place.shape)

        self._device.occupy(work)

    def results(self, inputs: Arrays) -> Sequence[NDArray[Any]]:
        """What it computes of arrays of the device's arena."""
        return self._machine.run(inputs)

    def close(self) -> None:
        """End its threads."""
        self._machine.close()

    def _executor(self, part: Artifact, streaming: Streaming) -> NativeExecutor:
        name, threads = self._device.name, part.target.threads
        lanes = (cpu_lane(0, threads), Lane(f"{name} in", threads, 1, name, copies=True))
        steps = streamed(self.steps, streaming, lanes)
        if self._device.speeds.kernel_s is not None:
            steps = paced(steps, lanes[0], Lane(name, 0, 1, name))
        cores = max((lane.cores[-1] + 1 for lane in steps.lanes), default=threads)
        calls = {number: self._answer(step, steps, number) for number, step in enumerate(steps.calls) if _ours(step)}
        library = NativeLibrary(part.library)
        cpus = [ANYWHERE] * threads + [SLEEPING] * (cores - threads)
        return NativeExecutor({threads: library}, steps, part.weights, cpus, calls)

    def _answer(self, step: Step, steps: Steps, number: int) -> DeviceCall:
        if step.symbol == COPY:
            return self._fetch
        return self._begin if step.symbol == BEGIN else partial(self._end, steps.calls[number - 1])

    def _fetch(self, arrays: Arrays) -> None:
        weight, buffer = arrays
        self._device.copy((HOST, self._device.name), weight, buffer, 0)

    def _begin(self, _arrays: Sequence[NDArray[Any]]) -> None:
        self._began = self._device.clock.now()

    def _end(self, step: Step, _arrays: Sequence[NDArray[Any]]) -> None:
        kernel_s = self._device.speeds.kernel_s
        assert kernel_s is not None
        self._device.clock.wait_until(self._began + kernel_s(step))


def _ours(step: Step) -> bool:
    return step.symbol in (COPY, BEGIN, END)


def paced(steps: Steps, compute: Lane, pace: Lane) -> Steps:
    """``steps`` with a call before and after every kernel, on a lane of the same core.

    Args:
        compute: the lane of steps that were not placed.
    """
    groups = steps.groups or (Group(WHOLE, 0, len(steps.calls)),)
    lanes = (*(steps.lanes or (compute,)), pace)
    new_groups: list[Group] = []
    calls: list[Step] = []
    last: list[int] = []  # of every old group the last of those made of it
    old_calls = iter(steps.calls)
    for group in groups:
        waits = tuple(last[other] for other in group.waits)
        own = [next(old_calls) for _ in range(group.calls)]
        if lanes[group.lane].copies:
            new_groups.append(replace(group, waits=waits))
            calls += own
        else:
            for step in own:
                calls += [Step(BEGIN, ()), step, Step(END, ())]
                new_groups += [
                    Group(group.name, len(lanes) - 1, 1, waits),
                    Group(group.name, group.lane, 1),
                    Group(group.name, len(lanes) - 1, 1),
                ]
        last.append(len(new_groups) - 1)
    return replace(steps, calls=tuple(calls), groups=tuple(new_groups), lanes=lanes)
