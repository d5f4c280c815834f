"""Which ONNX nodes a kernel call computes, told by the numbers it makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.graph.flat import Flat
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.reference_runs import reference_outputs

Array = NDArray[Any]

CLOSE = 1e-3
"""Share of a tensor's root mean square: two right tensors differ by less, two different ones by more."""


class Names:
    """The reference's tensors of one run.

    Args:
        model: simplified, with every shape inferred.
        feed: the inputs.
    """

    def __init__(self, model: onnx.ModelProto, feed: Arrays) -> None:
        self._nodes = list(model.graph.node)
        self._maker = {name: number for number, node in enumerate(self._nodes) for name in node.output if name}
        every = onnx.ModelProto()
        every.CopyFrom(model)
        del every.graph.output[:]
        types = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
        names = [name for name in self._maker if name in types]
        every.graph.output.extend(types[name] for name in names)
        _, arrays = reference_outputs(every, feed)
        self._tensors = dict(zip(names, arrays, strict=True)) | dict(feed)

    def of_call(self, flat: Flat, written: Sequence[Array], number: int) -> tuple[str, ...]:
        """``name (operator)`` of the nodes that call ``number`` computes, in the model's order.

        A call whose output is no tensor of the model (half of a rewritten operator) is told by the calls that read it.
        """
        chain = {number}
        names = self._named(written[number])
        later = number + 1
        while not names and later < len(flat.calls):
            if any(use.source.place == "arena" and use.source.index in chain for use in flat.calls[later].arguments):
                chain.add(later)
                names = self._named(written[later])
            later += 1
        if not names:
            return ()
        known = set(self._inputs(flat, written, chain))
        visited: set[int] = set()
        self._walk(names[0], known, visited)
        return tuple(f"{self._nodes[index].name} ({self._nodes[index].op_type})" for index in sorted(visited))

    def _inputs(self, flat: Flat, written: Sequence[Array], chain: set[int]) -> list[str]:
        """Tensors of the model that the calls of ``chain`` read."""
        names: list[str] = []
        for number in chain:
            for use in flat.calls[number].arguments:
                if use.source.place == "arena" and use.source.index not in chain:
                    names += self._named(written[use.source.index])
        return names

    def _walk(self, name: str, known: set[str], visited: set[int]) -> None:
        """Collect the nodes from ``name`` back to tensors in ``known``."""
        pending = [name]
        while pending:
            current = pending.pop()
            number = self._maker.get(current)
            if number is None or number in visited:
                continue
            visited.add(number)
            pending += [before for before in self._nodes[number].input if before not in known]

    def _named(self, value: Array) -> list[str]:
        """The model's tensors that hold the same numbers, in whatever order, in the model's order."""
        return [name for name, tensor in self._tensors.items() if _same_numbers(value, tensor)]


def _same_numbers(value: Array, tensor: Array) -> bool:
    """Return whether both hold the same numbers; ``value`` may be blocked, (n, C/b, h, w, b) with padded channels."""
    if value.dtype != tensor.dtype:
        return False
    if value.size != tensor.size:
        value = _unblocked(value, tensor.shape)
        if value.size != tensor.size:
            return False
    ours, theirs = np.sort(value, axis=None), np.sort(tensor, axis=None)
    if value.dtype.kind != "f":
        return bool(np.array_equal(ours, theirs))
    scale = math.sqrt(float(np.mean(np.square(theirs, dtype=np.float64)))) if theirs.size else 0.0
    return bool(np.allclose(ours, theirs, CLOSE, CLOSE * scale, equal_nan=True))


def _unblocked(value: Array, shape: tuple[int, ...]) -> Array:
    """``value`` without padded channels, if it can be a blocked tensor of ``shape``."""
    if value.ndim != 5 or len(shape) != 4:
        return value
    n, blocks, h, w, b = value.shape
    if (n, h, w) != (shape[0], *shape[2:]) or not 0 <= blocks * b - shape[1] < b:
        return value
    return value.transpose(0, 1, 4, 2, 3).reshape(n, blocks * b, h, w)[:, : shape[1]]
