"""A device that software stands in for. For tests and simulation only: it computes on the CPU, at made-up speeds.

It has what a GPU has and a group of cores has not: a memory of its own, of a limited size; an engine that computes and
one per direction that copies, each of which does one thing at a time beside the others; a clock; and failures. Numbers
are computed for real, in its own memory; what takes no time on a CPU, such as a copy of few bytes, is waited for.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.backends.device_interface import Device, DeviceLostError, OutOfMemoryError, Room
from autotune.backends.executor import Arrays
from autotune.graph.lanes import HOST, Way
from autotune.graph.placement import Link
from autotune.graph.steps import Step
from tests.simulated.clock import Clock

Work = Callable[[], None]


PCIE = Link(10e-6, 12e9)
"""About what copies over PCIe 3 × 16 take, made up like everything here."""


@dataclass(frozen=True)
class Speeds:
    """What is made up. The defaults are those of a small GPU behind PCIe, and nobody's in particular.

    Attributes:
        upload, download: between the host's memory and the device's.
        peer: from another simulated device, past the host's memory; None if there is no such way.
        memory_bytes: that the device has.
        kernel_s: seconds of a kernel; None for as long as one core of the CPU takes.
        copy_factor: by which copies take longer than they should.
        lost_after: operations, of any engine, after which the device is lost; None for never.
    """

    upload: Link = PCIE
    download: Link = PCIE
    peer: Link | None = None
    memory_bytes: int = 4 << 30
    kernel_s: Callable[[Step], float] | None = None
    copy_factor: float = 1.0
    lost_after: int | None = None


@dataclass(frozen=True)
class Operation:
    """What an engine did.

    Attributes:
        way: of a copy; None for a kernel or a subgraph.
        offset, bytes: of a copy: where in the arena, and how much.
        began, ended: seconds on the device's clock.
    """

    way: Way | None
    offset: int
    bytes: int
    began: float
    ended: float


class DeviceProgram(Protocol):
    """A subgraph that was loaded."""

    def run(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run on arrays of the device's memory, into others of it."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class SoftwareDevice:
    """An implementation of ``Device``.

    Args:
        name: such as ``sim:0``.

    Raises:
        OutOfMemoryError: if the arena does not fit.
    """

    def __init__(self, name: str, room: Room, speeds: Speeds | None = None, clock: Clock | None = None) -> None:
        self.name, self.speeds, self.clock = name, speeds or Speeds(), clock or Clock()
        self.operations: list[Operation] = []
        self.room = room
        self._limit = min(room.limit_bytes or self.speeds.memory_bytes, self.speeds.memory_bytes)
        self.used_bytes = self.streamed_bytes = 0
        self._engines: defaultdict[Way | None, threading.Lock] = defaultdict(threading.Lock)
        self._counting = threading.Lock()
        self._left, self._lost = self.speeds.lost_after, False
        self._programs: list[DeviceProgram] = []
        self.reserve(room.arena_bytes, "what passes between subgraphs")
        self._memory = np.zeros(room.arena_bytes, np.uint8)

    @property
    def free_bytes(self) -> int:
        """Memory that is left."""
        return self._limit - self.used_bytes

    def reserve(self, size: int, what: str) -> None:
        """Take ``size`` bytes of the memory.

        Raises:
            OutOfMemoryError: if there are not so many.
        """
        if size > self.free_bytes:
            raise OutOfMemoryError(
                f"{self.name} has {self.free_bytes} bytes left of {self._limit} and {what} takes {size}; "
                "let it use more, or place less on it"
            )
        self.used_bytes += size

    def change(self, **fields: Any) -> None:
        """Other speeds, or other failures, from now on: fields of ``Speeds``."""
        self.speeds = replace(self.speeds, **fields)
        self._left = self.speeds.lost_after

    def lose(self) -> None:
        """Be lost: everything fails from now on."""
        self._lost = True

    def load(self, part: Artifact, inputs: Sequence[int], outputs: Sequence[int]) -> Work:
        """Implement ``Device.load``; weights that do not fit are streamed."""
        program = self.program(part)
        self._programs.append(program)
        views = [self.view(at, spec.shape, spec.dtype) for at, spec in zip(inputs, part.inputs, strict=True)]
        places = [self.view(at, spec.shape, spec.dtype) for at, spec in zip(outputs, part.outputs, strict=True)]
        return lambda: program.run(views, places)

    def program(self, part: Artifact) -> DeviceProgram:
        """What runs ``part`` here."""
        from tests.simulated.software_program import SoftwareProgram  # which runs on what is in this module

        return SoftwareProgram(self, part)

    def view(self, offset: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """A tensor of the arena."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        return self._memory[offset : offset + size].view(kind).reshape(shape)

    def occupy(self, work: Work, seconds: float | None = None) -> None:
        """Do ``work`` on the engine that computes, for ``seconds``, or as long as it takes."""
        self._occupy(None, work, seconds or 0.0, 0, 0)

    def upload(self, array: NDArray[Any], offset: int) -> None:
        """Implement ``Device.upload``."""
        place = self._memory[offset : offset + array.nbytes]
        self.copy((HOST, self.name), array, place, offset)

    def fetch(self, size: int) -> None:
        """Implement ``Device.fetch``."""
        self.copy((HOST, self.name), np.zeros(size, np.uint8), self._memory[:size], 0)

    def download(self, offset: int, array: NDArray[Any]) -> None:
        """Implement ``Device.download``."""
        self.copy((self.name, HOST), self._memory[offset : offset + array.nbytes], array, offset)

    def reaches(self, other: Device) -> bool:
        """Implement ``Device.reaches``."""
        return isinstance(other, SoftwareDevice) and self.speeds.peer is not None

    def pull(self, other: Device, source: int, target: int, size: int) -> None:
        """Implement ``Device.pull``."""
        assert isinstance(other, SoftwareDevice)
        there, here = other._memory[source : source + size], self._memory[target : target + size]
        self.copy((other.name, self.name), there, here, target)

    def copy(self, way: Way, source: NDArray[Any], target: NDArray[Any], offset: int) -> None:
        """Copy dense arrays, bytes for bytes, on the engine of ``way``."""
        between = self.speeds.peer or Link()
        link = self.speeds.upload if way[0] == HOST else self.speeds.download if way[1] == HOST else between
        seconds = link.seconds(source.nbytes) * self.speeds.copy_factor

        def work() -> None:
            np.copyto(target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8))

        self._occupy(way, work, seconds, offset, source.nbytes)

    def close(self) -> None:
        """Implement ``Device.close``."""
        while self._programs:
            self._programs.pop().close()

    def _occupy(self, way: Way | None, work: Work, seconds: float, offset: int, size: int) -> None:
        with self._engines[way]:
            self._count()
            began = self.clock.now()
            work()
            self.clock.wait_until(began + seconds)
            self.operations.append(Operation(way, offset, size, began, self.clock.now()))

    def _count(self) -> None:
        """Count an operation.

        Raises:
            DeviceLostError: if the device is lost.
        """
        with self._counting:
            if self._left is not None:
                self._lost = self._lost or self._left <= 0
                self._left -= 1
            if self._lost:
                raise DeviceLostError(f"{self.name} is lost; open the model again")
