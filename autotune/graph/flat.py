"""A program with a plan applied as a graph of kernel calls, before any decision on order, lanes or memory.

A program consists of kernel calls, reshapes and tuples. Concatenations along the outermost axis longer than one
disappear: their parts are written in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.graph.arena import Slice
from autotune.graph.lanes import HOST

Place = Literal["input", "weight", "arena"]


@dataclass(frozen=True)
class Source:
    """A tensor: an input, a weight, or (``arena``) what call ``index`` wrote."""

    place: Place
    index: int


@dataclass(frozen=True)
class Use:
    """A tensor under the shape in which a call wants it."""

    source: Source
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Guard:
    """The boolean by which a call is made or left out.

    Attributes:
        condition: a tensor of one element.
        when: the value with which the call is made.
    """

    condition: Use
    when: bool


@dataclass(frozen=True)
class FlatCall:
    """One kernel call; it writes a tensor of ``shape`` and ``dtype``, known by the call's number.

    Attributes:
        memory: where it writes: the host's memory, or a device's as ``Lane.memory`` names it.
        guard: of a call whose result only one side of a choice needs; None if the call is always made.
    """

    symbol: str
    arguments: tuple[Use, ...]
    shape: tuple[int, ...]
    dtype: str
    memory: str = HOST
    guard: Guard | None = None

    @property
    def bytes(self) -> int:
        """Size of what it writes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Flat:
    """The graph.

    Attributes:
        calls: in the program's order, which respects all dependences.
        outputs: the model's outputs, all written by calls.
        slices: concatenated part → its place in the whole, both by the number of the call that writes them.
        removed: calls that only concatenate, or choose between, what is in place already.
        weights: the program's weights, then the constants that its calls hold.
    """

    calls: tuple[FlatCall, ...]
    outputs: tuple[Use, ...]
    slices: Mapping[int, Slice]
    removed: frozenset[int]
    weights: tuple[NDArray[Any], ...]

    @property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """For every call the calls whose tensors it reads, ascending."""
        return tuple(
            tuple(sorted({use.source.index for use in call.arguments if use.source.place == "arena"}))
            for call in self.calls
        )
