"""Programs that are not a fixed list of kernel calls run on TVM's Relax virtual machine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from autotune.backends.cpu.libraries import set_threads
from autotune.backends.executor import Arrays, Executor
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.host.third_party import foreign_runs


class VmExecutor(Executor):
    """Runs a program on the virtual machine, which neither profiles nor cancels, nor survives a fork.

    Args:
        library: holds the compiled program.
        weights: its parameters after the inputs.
        threads: threads that kernels run on.
    """

    def __init__(self, library: tvm.runtime.Module, weights: Sequence[NDArray[Any]], threads: int) -> None:
        self._machine = relax.VirtualMachine(library, tvm.cpu())
        self._main = self._machine["main"]
        self._weights = [_tensor(array) for array in weights]
        self._threads = threads
        self._lock, self._runs = threading.Lock(), foreign_runs()
        self._thread = threading.local()  # not a set of ids: a new thread may get the id of one that ended

    def run(self, inputs: Arrays) -> list[NDArray[Any]]:
        """One array per output, of the outputs' shapes."""
        if not hasattr(self._thread, "ready"):  # TVM's thread pools belong to the calling thread
            set_threads(self._threads)
            self._thread.ready = True
        with self._lock, self._runs:
            result = self._main(*map(_tensor, inputs), *self._weights)
            results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
            return [item.numpy() for item in results]


def _tensor(array: NDArray[Any]) -> tvm.runtime.Tensor:
    """``array`` as TVM's kernels take it: its own memory if they can read that, else a copy."""
    if array.ctypes.data % KERNEL_ALIGNMENT == 0 and array.flags.writeable:
        return tvm.runtime.from_dlpack(array)
    return tvm.runtime.tensor(array)
