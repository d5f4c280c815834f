"""Subgraphs that a device runs, as functions that the driver of lanes calls (``autotune/backends/cpu/lanes.cc``).

A subgraph with several outputs has a function for each: the first runs it on the device and keeps what came back, the
others only hand out what is kept. They run in a row on the thread that waits for the device, so nothing else is needed
to keep them together.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray

from autotune.backends.executor import KernelExecutor
from autotune.graph.merge import device_symbol


class DeviceSubgraph:
    """One subgraph.

    Args:
        machine: runs it; its inputs and outputs lie in the host's memory.
    """

    def __init__(self, machine: KernelExecutor) -> None:
        self._machine = machine
        self._made: list[NDArray[Any]] = []
        self._seen: dict[tuple[int, int, tuple[int, ...]], tvm.runtime.Tensor] = {}

    def run(self, *tensors: tvm.runtime.Tensor) -> None:
        """Run on all but the last of ``tensors``, and write the first output there."""
        self._made = self._machine.run([self._input(number, tensor) for number, tensor in enumerate(tensors[:-1])])
        self._write(0, tensors[-1])

    def fetch(self, number: int, *tensors: tvm.runtime.Tensor) -> None:
        """Write output ``number`` of the last run to the last of ``tensors``."""
        self._write(number, tensors[-1])

    def _input(self, number: int, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        """A tensor that may be asked for its memory in every way; kept, since most lie where they lay before."""
        key = (number, int(tensor.data_ptr()), tuple(tensor.shape))
        if key not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[key] = tvm.runtime.from_dlpack(_array(tensor))
        return self._seen[key]

    def _write(self, number: int, tensor: tvm.runtime.Tensor) -> None:
        place = _array(tensor)
        np.copyto(place, self._made[number].view(place.dtype).reshape(place.shape))


MOST_SEEN = 64
"""Inputs whose tensors are kept: those in the arena never move, and a caller's arrays come back now and then."""


def _array(tensor: tvm.runtime.Tensor) -> NDArray[Any]:
    """The host's memory under ``tensor``, which the driver owns: such tensors cannot be handed on by DLPack."""
    dtype, shape = np.dtype(str(tensor.dtype)), tuple(tensor.shape)
    size = math.prod(shape) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(int(tensor.data_ptr()))
    return np.frombuffer(memory, dtype).reshape(shape)


def device_functions(machines: Mapping[str, tuple[KernelExecutor, int]]) -> dict[str, Callable[..., Any]]:
    """Symbol → function of every call that devices answer.

    Args:
        machines: subgraph → what runs it, and how many outputs it has.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name, (machine, outputs) in machines.items():
        subgraph = DeviceSubgraph(machine)
        found[device_symbol(name, 0)] = tvm_ffi.convert_func(subgraph.run)
        for number in range(1, outputs):

            def fetch(*tensors: tvm.runtime.Tensor, subgraph: DeviceSubgraph = subgraph, number: int = number) -> None:
                subgraph.fetch(number, *tensors)

            found[device_symbol(name, number)] = tvm_ffi.convert_func(fetch)
    return found
