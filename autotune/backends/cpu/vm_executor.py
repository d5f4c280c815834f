"""Running a flat program: every tensor has its place, every call its arguments, before the first run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from autotune.graph.steps import Operand, Steps
from autotune.host.pages import paged

Tensors = Sequence[tvm.runtime.Tensor]


class Machine(Protocol):
    """Runs a model on tensors."""

    def run(self, inputs: Tensors) -> list[NDArray[Any]]:
        """One array per output, of the shapes of the model's outputs, in memory of their own."""
        ...


class StepsMachine:
    """Calls kernels one after the other on one arena; not safe for concurrent runs.

    Args:
        library: holds the kernels.
        weights: the program's weights, aligned.
    """

    def __init__(self, library: tvm.runtime.Module, steps: Steps, weights: Sequence[NDArray[Any]]) -> None:
        self._arena = paged(steps.arena_bytes)
        self._weights = [tvm.runtime.from_dlpack(array) for array in weights]
        self._outputs = [self._view(operand) for operand in steps.outputs]
        self._calls: list[tuple[Any, list[Any]]] = []
        self._symbols = [step.symbol for step in steps.calls]
        # Arguments of a call, position in them, number of the input, the shape in which the call wants it.
        self._inputs: list[tuple[list[Any], int, int, tuple[int, ...]]] = []
        for step in steps.calls:
            arguments = [self._bound(operand) for operand in step.operands]
            self._calls.append((library[step.symbol], arguments))
            for position, operand in enumerate(step.operands):
                if operand.place == "input":
                    self._inputs.append((arguments, position, operand.index, operand.shape))

    def run(self, inputs: Tensors) -> list[NDArray[Any]]:
        """One array per output, of the outputs' shapes, copied out of the arena."""
        for arguments, position, number, shape in self._inputs:
            arguments[position] = _shaped(inputs[number], shape)
        for kernel, arguments in self._calls:
            kernel(*arguments)
        return [output.copy() for output in self._outputs]

    def profile(self, inputs: Tensors) -> list[tuple[str, float]]:
        """One inference: (symbol, seconds) of every kernel call in order."""
        self.run(inputs)
        spans = []
        for (kernel, arguments), symbol in zip(self._calls, self._symbols, strict=True):
            began = time.perf_counter()
            kernel(*arguments)
            spans.append((symbol, time.perf_counter() - began))
        return spans

    def _view(self, operand: Operand) -> NDArray[Any]:
        dtype = np.dtype(operand.dtype)
        size = math.prod(operand.shape) * dtype.itemsize
        return self._arena[operand.index : operand.index + size].view(dtype).reshape(operand.shape)

    def _bound(self, operand: Operand) -> Any:
        if operand.place == "weight":
            return _shaped(self._weights[operand.index], operand.shape)
        return None if operand.place == "input" else tvm.runtime.from_dlpack(self._view(operand))


def _shaped(tensor: tvm.runtime.Tensor, shape: tuple[int, ...]) -> tvm.runtime.Tensor:
    """The same memory under another shape: reshapes are no kernels."""
    if tuple(tensor.shape) == shape:
        return tensor
    return tvm.runtime.from_dlpack(np.from_dlpack(tensor).reshape(shape))


class VirtualMachine:
    """Runs what is not flat on the Relax virtual machine; one call at a time.

    Args:
        library: holds the compiled program.
        weights: its parameters after the inputs.
    """

    def __init__(self, library: tvm.runtime.Module, weights: Sequence[NDArray[Any]]) -> None:
        self._machine = relax.VirtualMachine(library, tvm.cpu())
        self._main = self._machine["main"]
        self._weights = [tvm.runtime.from_dlpack(array) for array in weights]

    def run(self, inputs: Tensors) -> list[NDArray[Any]]:
        """One array per output, of the outputs' shapes."""
        result = self._main(*inputs, *self._weights)
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [item.numpy() for item in results]
