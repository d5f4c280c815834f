"""What a device takes, measured through the device that will do it: subgraphs in its memory, and the ways to it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import numpy as np

from autotune.artifact.directory import Artifact
from autotune.backends.backend import Backend
from autotune.backends.device_interface import Device, Room
from autotune.graph.lanes import HOST, Lane, Way
from autotune.graph.placement import Link
from autotune.host.dtypes import numpy_type
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.interface import TensorSpec
from autotune.runtime.model_timing import Run

SMALL, LARGE = 4096, 4 << 20
"""Bytes of the two copies that a link is measured with: latency, and with it bandwidth."""

COPIES = 15
"""Copies of each size. Heuristic, not measured."""


def spec_bytes(spec: TensorSpec) -> int:
    """Size of a tensor."""
    return math.prod(spec.shape) * numpy_type(spec.dtype).itemsize


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


def measured_links(backend: Backend, lane: Lane) -> dict[Way, Link]:
    """The ways between the host's memory and the device's, each with nothing else on its way."""
    with closing(backend.device(lane, Room(LARGE))) as device:
        ways = {(HOST, lane.memory): _up(device), (lane.memory, HOST): _down(device)}
        return {way: _link(copy) for way, copy in ways.items()}


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
