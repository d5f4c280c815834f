"""Subgraphs that a device runs, as functions that the core calls like kernels (``native_executor.py``).

A subgraph with several outputs has a function for each: the first runs it on the device and keeps what came back, the
others only hand out what is kept. They run in a row on the thread that waits for the device, so nothing else is needed
to keep them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends.cpu.native_executor import DeviceCall
from autotune.backends.executor import Arrays, KernelExecutor
from autotune.graph.merge import device_symbol


class DeviceSubgraph:
    """One subgraph.

    Args:
        machine: runs it; its inputs and outputs lie in the host's memory.
    """

    def __init__(self, machine: KernelExecutor) -> None:
        self._machine = machine
        self._made: list[NDArray[Any]] = []

    def run(self, arrays: Arrays) -> None:
        """Run on all but the last of ``arrays``, and write the first output there."""
        self._made = self._machine.run(arrays[:-1])
        self.fetch(0, arrays)

    def fetch(self, number: int, arrays: Arrays) -> None:
        """Write output ``number`` of the last run to the last of ``arrays``."""
        place = arrays[-1]
        np.copyto(place, self._made[number].view(place.dtype).reshape(place.shape))


def device_functions(machines: Mapping[str, tuple[KernelExecutor, int]]) -> dict[str, DeviceCall]:
    """Symbol → function of every call that devices answer.

    Args:
        machines: subgraph → what runs it, and how many outputs it has.
    """
    found: dict[str, DeviceCall] = {}
    for name, (machine, outputs) in machines.items():
        subgraph = DeviceSubgraph(machine)
        found[device_symbol(name, 0)] = subgraph.run
        for number in range(1, outputs):
            found[device_symbol(name, number)] = partial(subgraph.fetch, number)
    return found
