"""Runs a flat program on a CUDA device: one arena, one stream, one graph.

The first run launches the kernels one by one, which also fills the runtime's workspace pool; the second is captured
into a CUDA graph, and all later ones replay it: launching costs a few microseconds for the model instead of for each
kernel. Where capturing fails the kernels go on being launched one by one.

Kernels with parts of their own take workspace from a pool of their device that all sessions of a process share, and a
graph remembers where. So one session runs at a time on a device: runs of several take turns. Launching kernels one by
one also takes turns between devices, since the runtime keeps the pools of all devices in one list.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.backends.cuda.device import present_devices
from autotune.backends.cuda.driver import Driver
from autotune.backends.cuda.memory_views import View
from autotune.backends.cuda.weight_stream import Fetch, StreamedCall, WeightStream
from autotune.backends.executor import Arrays, Executor
from autotune.graph.lanes import Lane
from autotune.graph.merge import COPY
from autotune.graph.steps import Operand, Steps
from autotune.graph.streaming import Streaming, streamed
from autotune.host.third_party import foreign_runs
from schedules.vocabulary.errors import ArtifactError, MeasureError

logger = logging.getLogger(__name__)

_TURNS: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
"""Number of a device → held by the program that runs there."""

_LAUNCHING = threading.Lock()
"""Held while the runtime launches kernels or a graph is captured."""

ENGINE, COPIES = Lane("kernels", 0, 1, "cuda"), Lane("weights", 1, 1, "cuda", copies=True)
"""The lanes of a program whose weights are streamed: a stream each."""

Place = tuple[int, int]
"""(address in the device's memory, bytes)."""


def check_device(ordinal: int = 0) -> None:
    """Check that this machine has the device.

    Raises:
        ArtifactError: if it has not, with those that it has.
    """
    present = present_devices()
    if ordinal < len(present):
        return
    if present:
        raise ArtifactError(
            f"this artifact is for cuda:{ordinal} and this machine has {', '.join(present)}; tune it on these devices"
        )
    raise ArtifactError("this artifact is for a CUDA device and this machine has none; tune it with --target host")


class CudaExecutor(Executor):
    """Calls kernels one after the other on the device's arena; neither profiles nor cancels, nor survives a fork.

    Args:
        library: holds the kernels.
        weights: the program's weights; copied to the device once.
        ordinal: number of the device.
        streaming: which weights stay on the device; None for all. The others are fetched in every run.

    Raises:
        ArtifactError: if this machine has no such device.
    """

    def __init__(
        self,
        library: tvm.runtime.Module,
        steps: Steps,
        weights: Sequence[NDArray[Any]],
        ordinal: int = 0,
        streaming: Streaming | None = None,
    ) -> None:
        check_device(ordinal)
        self._device = tvm.cuda(ordinal)
        self._driver = Driver(ordinal=ordinal)
        self._turn = _TURNS[ordinal]
        self._stream = self._driver.stream()
        self._graphs = True  # until the calls cannot be captured
        self._graph: Any = None
        self._runs = 0
        resident = range(len(weights)) if streaming is None else streaming.resident
        if streaming is not None:
            steps = streamed(replace(steps, weights=tuple(weights)), streaming, (ENGINE, COPIES))
        self._arena = tvm.runtime.empty((max(1, steps.arena_bytes),), "uint8", self._device)
        self._views: list[View] = []
        self._weights = {
            number: tvm.runtime.tensor(np.ascontiguousarray(weights[number]), self._device) for number in resident
        }
        self._inputs: dict[int, tvm.runtime.Tensor] = {}
        self._host: dict[int, NDArray[np.uint8]] = {}
        self._streamed: dict[int, NDArray[np.uint8]] = {}
        self._calls = WeightStream(self._driver, self._stream, list(self._streamed_calls(library, steps, weights)))
        self._outputs = [(operand, self._driver.pinned(_bytes(operand))) for operand in steps.outputs]

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """The outputs for ``inputs``, which lie in the host's memory."""
        with self._turn, foreign_runs():
            self._driver.enter()
            for number, tensor in self._inputs.items():
                self._upload(number, tensor, inputs[number])
            self._launch()
            arrays = [self._download(operand, pinned) for operand, pinned in self._outputs]
            self._driver.synchronize(self._stream)
            return [array.copy() for array in arrays]

    def run_there(self, inputs: Sequence[Place], outputs: Sequence[Place]) -> None:
        """Run on inputs that lie in the device's memory, and leave the outputs there.

        Args:
            inputs, outputs: (address, bytes) of each, in the model's order.
        """
        with self._turn:
            self._driver.enter()
            for number, tensor in self._inputs.items():
                address, size = inputs[number]
                self._driver.call("cuMemcpyDtoDAsync", address_of(tensor), address, size, self._stream)
            self._launch()
            for (operand, _), (address, size) in zip(self._outputs, outputs, strict=True):
                source = address_of(self._arena) + operand.index
                self._driver.call("cuMemcpyDtoDAsync", address, source, size, self._stream)
            self._driver.synchronize(self._stream)

    def _launch(self) -> None:
        """Put the whole program on the stream."""
        self._runs += 1
        if self._graphs and self._graph is None and self._runs > 1:
            try:
                with _LAUNCHING:
                    self._graph = self._driver.graph(self._stream, self._call_all)
            except MeasureError as error:
                logger.warning(
                    "the program cannot be captured into a CUDA graph (%s); kernels are launched singly", error
                )
                self._graphs = False
        if self._graph is None:
            with _LAUNCHING:
                self._call_all()
        else:
            self._driver.replay(self._graph, self._stream)

    def _call_all(self) -> None:
        self._device.set_raw_stream(int(self._stream))
        self._calls.launch()

    def _streamed_calls(
        self, library: tvm.runtime.Module, steps: Steps, weights: Sequence[NDArray[Any]]
    ) -> Iterator[StreamedCall]:
        """Every kernel call, with the copies before it that bring its weights."""
        fetches: list[Fetch] = []
        for step in steps.calls:
            if step.symbol == COPY:
                weight, place = step.operands
                fetches.append(self._fetch(weight.index, place.index, weights))
                continue
            arguments = [self._bound(operand) for operand in step.operands]
            yield StreamedCall(partial(library[step.symbol], *arguments), tuple(fetches))
            fetches.clear()

    def _fetch(self, weight: int, offset: int, weights: Sequence[NDArray[Any]]) -> Fetch:
        """The copy of a weight, which is put into page-locked memory once, to an offset of the arena."""
        if weight not in self._streamed:
            flat = np.ascontiguousarray(weights[weight]).reshape(-1).view(np.uint8)
            self._streamed[weight] = self._driver.pinned(flat.size)
            self._streamed[weight][: flat.size] = flat
        size = weights[weight].nbytes
        return Fetch(self._streamed[weight].ctypes.data, address_of(self._arena) + offset, size)

    def _bound(self, operand: Operand) -> tvm.runtime.Tensor:
        if operand.place == "weight":
            return self._weights[operand.index]._create_view(operand.shape, operand.dtype)
        if operand.place == "input":
            if operand.index not in self._inputs:
                self._inputs[operand.index] = tvm.runtime.empty(operand.shape, operand.dtype, self._device)
                self._host[operand.index] = self._driver.pinned(_bytes(operand))
            return self._inputs[operand.index]._create_view(operand.shape)
        place = address_of(self._arena) + operand.index
        self._views.append(View(place, operand.shape, operand.dtype, self._device))
        return self._views[-1].tensor

    def _upload(self, number: int, tensor: tvm.runtime.Tensor, array: NDArray[Any]) -> None:
        pinned = self._host[number]
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        pinned[: flat.size] = flat
        self._driver.call("cuMemcpyHtoDAsync", address_of(tensor), pinned.ctypes.data, flat.size, self._stream)

    def _download(self, operand: Operand, pinned: NDArray[np.uint8]) -> NDArray[Any]:
        size = _bytes(operand)
        source = address_of(self._arena) + operand.index
        self._driver.call("cuMemcpyDtoHAsync", pinned.ctypes.data, source, size, self._stream)
        return pinned[:size].view(np.dtype(operand.dtype)).reshape(operand.shape)


def address_of(tensor: tvm.runtime.Tensor) -> int:
    """Return where a tensor lies on the device."""
    return int(tensor.data_ptr())


def _bytes(operand: Operand) -> int:
    return math.prod(operand.shape) * np.dtype(operand.dtype).itemsize
