"""A CUDA device as lanes use it: an arena in its memory, a stream per copy engine, a graph per subgraph.

Copies go through page-locked memory of the host that belongs to the call that asks for it and is allocated once, since
only page-locked memory is copied beside kernels. Weights beyond the memory that may be used are streamed. This
class has not run on a GPU yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.backends.cpu.libraries import open_library
from autotune.backends.cuda.cuda_executor import CudaExecutor, address_of, check_device
from autotune.backends.cuda.driver import Driver
from autotune.backends.device_interface import Device, OutOfMemoryError, Room, fitting_weights
from autotune.interface import TensorSpec

HEADROOM_BYTES = 256 << 20
"""Bytes left free for what the driver and TVM's runtime allocate: modules, graphs, workspace. Heuristic."""


WEIGHTS = -1
"""Key of the page-locked memory that stands for streamed weights; others are offsets in the arena."""


class CudaDevice:
    """An implementation of ``Device``.

    Raises:
        ArtifactError: if this machine has no such device.
        OutOfMemoryError: if the arena does not fit.
    """

    def __init__(self, name: str, room: Room, ordinal: int = 0) -> None:
        check_device(ordinal)
        self.name, self._ordinal, self._room = name, ordinal, room
        self._driver = Driver(ordinal=ordinal)
        self.used_bytes = self.streamed_bytes = 0
        self._limit = usable_bytes(self._driver, room.limit_bytes)
        self._reserve(room.arena_bytes, "what passes between subgraphs")
        self._arena = tvm.runtime.empty((max(1, room.arena_bytes),), "uint8", tvm.cuda(ordinal))
        self._streams = {True: self._driver.stream(), False: self._driver.stream()}
        self._pinned: dict[tuple[bool, int], NDArray[np.uint8]] = {}
        self._peers: dict[str, Any] = {}  # a stream for each device that is copied from

    @property
    def free_bytes(self) -> int:
        """Implement ``Device.free_bytes``."""
        return self._limit - self.used_bytes

    def _reserve(self, size: int, what: str) -> None:
        if size > self.free_bytes:
            raise OutOfMemoryError(
                f"{self.name} has {self.free_bytes} bytes left of {self._limit} and {what} takes {size}; "
                "let it use more, or place less on it"
            )
        self.used_bytes += size

    def load(self, part: Artifact, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[[], None]:
        """Implement ``Device.load``."""
        self._reserve(part.steps.arena_bytes, "what passes between its kernels")
        streaming = fitting_weights(self.name, part, min(self.free_bytes, self._room.share(part, self._limit)))
        self._reserve(streaming.bytes, "its weights")
        self.streamed_bytes += streaming.streamed_bytes(replace(part.steps, weights=part.weights))
        library = open_library(part.library)
        executor = CudaExecutor(library, part.steps, part.weights, self._ordinal, streaming=streaming)
        base = address_of(self._arena)
        read = [(base + at, _bytes(spec)) for at, spec in zip(inputs, part.inputs, strict=True)]
        written = [(base + at, _bytes(spec)) for at, spec in zip(outputs, part.outputs, strict=True)]
        return lambda: executor.run_there(read, written)

    def upload(self, array: NDArray[Any], offset: int) -> None:
        """Implement ``Device.upload``."""
        self._driver.enter()
        pinned, stream = self._staging(True, offset, array.nbytes), self._streams[True]
        pinned[:] = array.reshape(-1).view(np.uint8)
        place = address_of(self._arena) + offset
        self._driver.call("cuMemcpyHtoDAsync", place, pinned.ctypes.data, array.nbytes, stream)
        self._driver.synchronize(stream)

    def fetch(self, size: int) -> None:
        """Implement ``Device.fetch``: streamed weights lie in page-locked memory already."""
        self._driver.enter()
        pinned, stream = self._staging(True, WEIGHTS, size), self._streams[True]
        self._driver.call("cuMemcpyHtoDAsync", address_of(self._arena), pinned.ctypes.data, size, stream)
        self._driver.synchronize(stream)

    def download(self, offset: int, array: NDArray[Any]) -> None:
        """Implement ``Device.download``."""
        self._driver.enter()
        pinned, stream = self._staging(False, offset, array.nbytes), self._streams[False]
        place = address_of(self._arena) + offset
        self._driver.call("cuMemcpyDtoHAsync", pinned.ctypes.data, place, array.nbytes, stream)
        self._driver.synchronize(stream)
        array.reshape(-1).view(np.uint8)[:] = pinned

    def reaches(self, other: Device) -> bool:
        """Implement ``Device.reaches``."""
        return isinstance(other, CudaDevice) and self._driver.reaches(other._driver)

    def pull(self, other: Device, source: int, target: int, size: int) -> None:
        """Implement ``Device.pull``; the driver takes the way through the host where there is no other."""
        assert isinstance(other, CudaDevice)
        self._driver.enter()
        if other.name not in self._peers:
            self._driver.reaches(other._driver)
            self._peers[other.name] = self._driver.stream()
        here = address_of(self._arena) + target, self._driver.context
        there = address_of(other._arena) + source, other._driver.context
        self._driver.call("cuMemcpyPeerAsync", *here, *there, size, self._peers[other.name])
        self._driver.synchronize(self._peers[other.name])

    def close(self) -> None:
        """Implement ``Device.close``; the context's memory is freed with this object."""

    def _staging(self, up: bool, offset: int, size: int) -> NDArray[np.uint8]:
        """Page-locked memory for a copy, kept for the next run."""
        known = self._pinned.get((up, offset))
        if known is None or len(known) < size:
            known = self._pinned[up, offset] = self._driver.pinned(size)
        return known[:size]


def usable_bytes(driver: Driver, limit_bytes: int = 0) -> int:
    """Return the bytes of the device's memory that a model may use.

    Args:
        limit_bytes: the most that was asked for; 0 for all that is free.
    """
    free = max(0, driver.free_bytes() - HEADROOM_BYTES)
    return min(limit_bytes, free) if limit_bytes else free


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
