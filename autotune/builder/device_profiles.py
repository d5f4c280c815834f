"""Costs on a device, measured through that device: subgraphs in its memory, and the ways to it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle

import numpy as np

from autotune.artifact.directory import Artifact
from autotune.backends.backend import Backend
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.backends.cpu.device_lanes import device_calls
from autotune.backends.cpu.native_executor import NativeExecutor, thread_places
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import Device, Room
from autotune.graph.device_problem import spec_bytes
from autotune.graph.lanes import HOST, Lane, Way, copy_lanes
from autotune.graph.merge import COPY
from autotune.graph.placement import Link
from autotune.graph.steps import Group, Operand, Step, Steps
from autotune.host.machine import thread_cpus
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.runtime.model_timing import Run, timelines

SMALL, LARGE = 4096, 4 << 20
"""Bytes of the two copies that a link is measured with: latency, and with it bandwidth."""

COPIES = 15
"""Copies of each size. Heuristic, not measured."""

CHAIN = 20
"""Copies in a row that handing over is measured with. Heuristic, not measured."""


@contextmanager
def resident_run(backend: Backend, lane: Lane, part: Artifact) -> Iterator[Run]:
    """A run of ``part`` on inputs that lie in the device's memory, and are zeros.

    Raises:
        RunError: if it does not fit.
    """
    offsets, end = [], 0
    for spec in (*part.inputs, *part.outputs):
        offsets.append(end)
        end += -(-spec_bytes(spec) // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT
    inputs, outputs = offsets[: len(part.inputs)], offsets[len(part.inputs) :]
    with closing(backend.device(lane, Room.of(end, lane.limit_bytes, [part]))) as device:
        call = device.load(part, inputs, outputs)
        for spec, offset in zip(part.inputs, inputs, strict=True):
            device.upload(np.zeros(spec_bytes(spec), np.uint8), offset)
        yield lambda: _seconds(call)


def measured_memory(artifact: Artifact) -> dict[str, tuple[int, int]]:
    """Return what the devices use once all subgraphs of ``artifact`` are loaded: name → (bytes, streamed bytes a run).

    Raises:
        OutOfMemoryError: if one does not fit.
    """
    devices, parts = CpuBackend(backend_of).devices(artifact)
    try:
        device_calls(artifact.steps, devices, parts)
        return {name: (device.used_bytes, device.streamed_bytes) for name, device in devices.items()}
    finally:
        for device in devices.values():
            device.close()


def measured_links(backend: Backend, lane: Lane) -> dict[Way, Link]:
    """The ways between the host's memory and the device's, each with nothing else on its way."""
    with closing(backend.device(lane, Room(LARGE))) as device:
        ways = {(HOST, lane.memory): _up(device), (lane.memory, HOST): _down(device)}
        return {way: _link(copy) for way, copy in ways.items()}


def measured_direct(backend: Backend, one: Lane, other: Lane) -> dict[Way, Link]:
    """The ways between the memories of two devices, past the host's; none if the devices cannot reach each other."""
    with closing(backend.device(one, Room(LARGE))) as first, closing(backend.device(other, Room(LARGE))) as second:
        if not (first.reaches(second) and second.reaches(first)):
            return {}
        ways = {(other.memory, one.memory): (first, second), (one.memory, other.memory): (second, first)}
        return {way: _link(partial(target.pull, source, 0, 0)) for way, (target, source) in ways.items()}


def weight_link(backend: Backend, lane: Lane) -> Link:
    """Return the way of streamed weights into the device's memory, with nothing else on its way."""
    with closing(backend.device(lane, Room(LARGE))) as device:
        return _link(device.fetch)


def hand_over_s(device: Device, lanes: Sequence[Lane], library: NativeLibrary, links: Mapping[Way, Link]) -> float:
    """Seconds that the driver adds to every copy and every subgraph of a device: seeing that it may begin, and calling.

    From ``CHAIN`` copies of the least size there and back, each of which waits for the one before, less what ``links``
    say of them.

    Args:
        device: with ``KERNEL_ALIGNMENT`` bytes of arena at least.
        lanes: the CPU's and the device's.
        library: any, for the driver that is in it.
    """
    engines = copy_lanes(lanes)
    every = (*lanes, *engines.values())
    here, there = (Operand(place, 0, (KERNEL_ALIGNMENT,), "uint8") for place in ("arena", lanes[-1].memory))
    ways = [way for way, _ in zip(cycle(engines), range(CHAIN), strict=False)]
    calls = tuple(Step(COPY, (here, there) if way[0] == HOST else (there, here)) for way in ways)
    groups = tuple(
        Group("", len(lanes) + list(engines).index(way), 1, (number - 1,) if number else ())
        for number, way in enumerate(ways)
    )
    steps = Steps(calls, (here,), KERNEL_ALIGNMENT, (), every, groups, ((lanes[-1].memory, KERNEL_ALIGNMENT),))
    answers = device_calls(steps, {lanes[-1].device: device}, {})
    places = thread_places(every, thread_cpus(1 + max(lane.cores[-1] for lane in every)))
    with closing(NativeExecutor({lane.threads: library for lane in every}, steps, (), places, answers)) as executor:
        took = statistics.median(max(span.ended_s for span in run) for run in timelines(lambda: executor.timeline([])))
    return max(0.0, took - sum(links[way].seconds(KERNEL_ALIGNMENT) for way in ways)) / CHAIN


def _up(device: Device) -> Callable[[int], None]:
    return lambda size: device.upload(np.zeros(size, np.uint8), 0)


def _down(device: Device) -> Callable[[int], None]:
    return lambda size: device.download(0, np.zeros(size, np.uint8))


def _link(copy: Callable[[int], None]) -> Link:
    small, large = (statistics.median(_seconds(partial(copy, size)) for _ in range(COPIES)) for size in (SMALL, LARGE))
    per_byte = max(large - small, 0.0) / (LARGE - SMALL)
    return Link(max(small - SMALL * per_byte, 0.0), 1.0 / per_byte if per_byte else math.inf)


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
