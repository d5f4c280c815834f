"""Inputs and outputs of a model: names, shapes and types, at one set of shapes or with sizes left open.

A *symbol* is an open size: ``batch``. For importer, artifacts and sessions alike, so that a session needs no importer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = Mapping[str, Sequence[int]]

NO_NAMES = ("none", "null", "unknown", "unk", "any", "dynamic")
"""Words that exporters write in place of a name where a size is open; the first is Python's ``str(None)``."""


def is_name(text: str) -> bool:
    """Return whether what a model writes for an open size is a name, and does not only say that it is open."""
    return any(char.isalpha() for char in text) and text.lower() not in NO_NAMES


ANY_SIZE = 0, 1
"""The least size of calls that may be padded, and of what such sizes are multiples: all may."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a model's input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class OpenSpec:
    """Name, shape and type of an input or output; an open size is a symbol's name, an unknown one ``?``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True)
class Cache:
    """A cache of keys or values, which a model takes and gives back longer.

    Attributes:
        past, present: number of the input, and of the output.
        kind: how the model appends to it, as in ``autotune/importer/generation/caches.py``.
        capacity: positions of the buffer that is bound to both; 0 where that is not known yet.
    """

    past: int
    present: int
    kind: str
    capacity: int = 0


@dataclass(frozen=True)
class Growth:
    """How the size of an axis follows from an open one: as ⌈n ÷ 2⌉ positions are left of n behind a stride of two.

    Attributes:
        steps: (times, plus, over), one after the other: n becomes ⌊(times · n + plus) ÷ over⌋.
    """

    steps: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self) -> None:
        if any(times < 1 or over < 1 for times, _, over in self.steps):
            raise ValueError(f"no growth: {self.steps}")

    def of(self, size: int) -> int:
        """The axis's size where the open one is ``size``."""
        for times, plus, over in self.steps:
            size = (times * size + plus) // over
        return size

    def then(self, times: int = 1, plus: int = 0, over: int = 1) -> Growth:
        """This growth with one more step, joined to the last where that is the same for every size."""
        a, b, c = self.steps[-1] if self.steps else (1, 0, 1)
        if times == 1 or c == 1:  # ⌊(⌊x ÷ c⌋ + p) ÷ o⌋ = ⌊(x + p · c) ÷ (o · c)⌋
            a, b, c = times * a, times * b + plus * c, over * c
            common = math.gcd(a, b, c)
            step = a // common, b // common, c // common
            return Growth((*self.steps[:-1], *([step] if step != (1, 0, 1) else [])))
        return Growth((*self.steps, (times, plus, over)))

    @property
    def ratio(self) -> Fraction | None:
        """The axis's size by the open one, if it is the same for every size that divides without a rest."""
        if not self.steps:
            return Fraction(1)
        (times, plus, over), *more = self.steps
        return None if plus or more else Fraction(times, over)

    def to_data(self) -> str | list[list[int]]:
        """As in the manifest of an artifact in parts: a ratio, or steps."""
        return str(self.ratio) if self.ratio is not None else [list(step) for step in self.steps]

    @staticmethod
    def from_data(data: str | Sequence[Sequence[int]]) -> Growth:
        """Inverse of ``to_data``.

        Raises:
            ValueError: for what no ``to_data`` returns.
        """
        if isinstance(data, str):
            ratio = Fraction(data)
            return Growth().then(ratio.numerator, 0, ratio.denominator)
        return Growth(tuple((int(times), int(plus), int(over)) for times, plus, over in data))


@dataclass(frozen=True)
class Extent:
    """Entries of an axis that follow an open size: the first ones count."""

    symbol: str
    growth: Growth = field(default_factory=Growth)

    def of(self, sizes: Mapping[str, int]) -> int:
        """How many there are at ``sizes``."""
        return self.growth.of(sizes[self.symbol])


@dataclass(frozen=True)
class Joined:
    """Several axes, one behind the other, as the boxes that a detector finds in images of several sizes."""

    axes: tuple[Axis, ...]

    def of(self, sizes: Mapping[str, int]) -> int:
        """How many entries there are at ``sizes``."""
        return sum(axis_size(axis, sizes) for axis in self.axes)


Part = int | Extent | Joined
Axis = tuple[Part, ...]
"""Parts whose product an axis is, the outer ones first; a number for one that never changes."""


def axis_size(axis: Axis, sizes: Mapping[str, int]) -> int:
    """The size of an axis at ``sizes``."""
    return math.prod(part if isinstance(part, int) else part.of(sizes) for part in axis)


def axis_symbols(axis: Axis) -> list[str]:
    """The open sizes that an axis follows."""
    symbols = list[str]()
    for part in axis:
        own = [part.symbol] if isinstance(part, Extent) else []
        symbols += [s for one in part.axes for s in axis_symbols(one)] if isinstance(part, Joined) else own
    return list(dict.fromkeys(symbols))


def with_fixed(axis: Axis, sizes: Mapping[str, int]) -> Axis:
    """``axis`` with numbers in place of what follows the open sizes in ``sizes``."""
    parts = list[Part]()
    for part in axis:
        if isinstance(part, Joined):
            parts.append(Joined(tuple(with_fixed(own, sizes) for own in part.axes)))
        else:
            parts.append(part.of(sizes) if isinstance(part, Extent) and part.symbol in sizes else part)
    return tuple(part for part in parts if part != 1)


def _cut(array: NDArray[Any], at: int, axis: Axis, full: Mapping[str, int], sizes: Mapping[str, int]) -> NDArray[Any]:
    """The entries of ``array`` along ``at`` that count at ``sizes``, of all that there are at ``full``."""
    parts = [part if isinstance(part, int) else part.of(full) for part in axis]
    wide = array.reshape(*array.shape[:at], *parts, *array.shape[at + 1 :])
    for number, part in enumerate(axis, at):
        if isinstance(part, Extent):
            wide = wide[(*[slice(None)] * number, slice(max(0, part.of(sizes))))]
        elif isinstance(part, Joined):
            ends = np.cumsum([axis_size(one, full) for one in part.axes])
            pieces = zip(np.split(wide, ends[:-1], number), part.axes, strict=True)
            wide = np.concatenate([_cut(piece, number, one, full, sizes) for piece, one in pieces], number)
    return wide.reshape(*array.shape[:at], -1, *array.shape[at + 1 :])


def _axis_to_data(axis: Axis) -> list[Any]:
    data = list[Any]()
    for part in axis:
        own = [part.symbol, part.growth.to_data()] if isinstance(part, Extent) else part
        data.append({"joined": list(map(_axis_to_data, part.axes))} if isinstance(part, Joined) else own)
    return data


def _axis_from_data(data: Sequence[Any]) -> Axis:
    parts = list[Part]()
    for part in data:
        if isinstance(part, Mapping):
            parts.append(Joined(tuple(map(_axis_from_data, part["joined"]))))
        else:
            parts.append(int(part) if isinstance(part, int) else Extent(str(part[0]), Growth.from_data(part[1])))
    return tuple(parts)


@dataclass(frozen=True)
class Interface:
    """A model's inputs and outputs over several sets of shapes.

    Attributes:
        scale: (output's number, axis) → how its size follows from its symbol.
        padded: symbols along which zeros may be added behind the end: what they yield is cut off, and nothing else
            changes.
        split: symbols along which a call may be made in several.
        parts: (output's number, axis) → its parts, if it follows several open sizes or stands for several axes.
        limits: symbol → the least size that may be padded, and of what all such are multiples; ``ANY_SIZE`` for symbols
            that are not here.
    """

    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    scale: Mapping[tuple[int, int], Growth]
    padded: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    parts: Mapping[tuple[int, int], Axis] = field(default_factory=dict)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every open size, in order of first use."""
        return tuple(dict.fromkeys(size for spec in self.inputs for size in spec.shape if isinstance(size, str)))

    def axes(self, symbol: str) -> dict[str, list[int]]:
        """Input → its axes of that size."""
        by_input = {s.name: [axis for axis, size in enumerate(s.shape) if size == symbol] for s in self.inputs}
        return {name: axes for name, axes in by_input.items() if axes}

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Symbol → its size in ``shapes``; None if they do not fit the model."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            shape = shapes.get(spec.name)
            if shape is None or len(shape) != len(spec.shape):
                return None
            for want, got in zip(spec.shape, shape, strict=True):
                if isinstance(want, str):
                    if sizes.setdefault(want, got) != got:
                        return None
                elif want != got:
                    return None
        return sizes

    def cut_output(
        self, number: int, array: NDArray[Any], full: Mapping[str, int], sizes: Mapping[str, int]
    ) -> NDArray[Any]:
        """The part of an output that counts at ``sizes``, if it was made at ``full``: a view where it can be one."""
        index = [slice(None)] * array.ndim
        for at, size in enumerate(self.outputs[number].shape):
            if (number, at) in self.parts:
                array = _cut(array, at, self.parts[number, at], full, sizes)
            elif isinstance(size, str) and size in sizes:
                index[at] = slice(max(0, self.scale[number, at].of(sizes[size])))
        return array[tuple(index)]

    def may_pad(self, symbol: str, size: int) -> bool:
        """Return whether calls of this size may be padded."""
        least, multiple = self.limits.get(symbol, ANY_SIZE)
        return symbol in self.padded and size >= least and size % multiple == 0

    def knows_outputs(self) -> bool:
        """Return whether every output's shape follows from the open sizes."""
        return all("?" not in spec.shape for spec in self.outputs)

    def to_data(self) -> dict[str, Any]:
        """As in the manifest of an artifact in parts."""
        return {
            "inputs": [[s.name, list(s.shape), s.dtype] for s in self.inputs],
            "outputs": [[s.name, list(s.shape), s.dtype] for s in self.outputs],
            "scale": [[number, axis, growth.to_data()] for (number, axis), growth in self.scale.items()],
            "padded": sorted(self.padded),
            "split": sorted(self.split),
            **({"parts": [[*place, _axis_to_data(axis)] for place, axis in self.parts.items()]} if self.parts else {}),
            **({"limits": {symbol: list(own) for symbol, own in self.limits.items()}} if self.limits else {}),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Interface:
        """Inverse of ``to_data``."""
        inputs, outputs = (
            tuple(OpenSpec(str(name), tuple(shape), str(dtype)) for name, shape, dtype in data[field])
            for field in ("inputs", "outputs")
        )
        scale = {(int(number), int(axis)): Growth.from_data(value) for number, axis, value in data["scale"]}
        limits = {
            str(symbol): (int(least), max(1, int(step))) for symbol, (least, step) in data.get("limits", {}).items()
        }
        parts = {(int(number), int(axis)): _axis_from_data(own) for number, axis, own in data.get("parts", ())}
        return Interface(inputs, outputs, scale, frozenset(data["padded"]), frozenset(data["split"]), limits, parts)
