"""Programs that are not a fixed list of kernel calls run on TVM's Relax virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from autotune.backends.executor import Span, Tensors
from autotune.graph.lanes import Lane


class VmExecutor:
    """Runs a program on the virtual machine, which neither profiles nor cancels.

    Args:
        library: holds the compiled program.
        weights: its parameters after the inputs.
    """

    lanes: tuple[Lane, ...] = ()
    pool_per_thread = True

    def __init__(self, library: tvm.runtime.Module, weights: Sequence[NDArray[Any]]) -> None:
        self._machine = relax.VirtualMachine(library, tvm.cpu())
        self._main = self._machine["main"]
        self._weights = [tvm.runtime.from_dlpack(array) for array in weights]

    def run(self, inputs: Tensors) -> list[NDArray[Any]]:
        """One array per output, of the outputs' shapes."""
        result = self._main(*inputs, *self._weights)
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [item.numpy() for item in results]

    def profile(self, inputs: Tensors) -> list[tuple[str, float]]:
        """Empty: the virtual machine does not report its calls."""
        return []

    def timeline(self, inputs: Tensors) -> list[Span]:
        """Empty: as ``profile``."""
        return []

    def cancel(self) -> None:
        """Does nothing: a run goes on to its end."""
