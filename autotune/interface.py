"""Inputs and outputs of a model: names, shapes and types, at one set of shapes or with sizes left open.

A *symbol* is an open size: ``batch``. For importer, artifacts and sessions alike, so that a session needs no importer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Shapes = Mapping[str, Sequence[int]]

NO_NAMES = ("none", "null", "unknown", "unk", "any", "dynamic")
"""Words that exporters write in place of a name where a size is open; the first is Python's ``str(None)``."""


def is_name(text: str) -> bool:
    """Return whether what a model writes for an open size is a name, and does not only say that it is open."""
    return any(char.isalpha() for char in text) and text.lower() not in NO_NAMES


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
        steps = tuple((int(times), int(plus), int(over)) for times, plus, over in data)
        if any(times < 1 or over < 1 for times, _, over in steps):
            raise ValueError(f"no growth: {steps}")
        return Growth(steps)


@dataclass(frozen=True)
class Interface:
    """A model's inputs and outputs over several sets of shapes.

    Attributes:
        scale: (output's number, axis) → how its size follows from its symbol.
        padded: symbols along which zeros may be added behind the end: what they yield is cut off, and nothing else
            changes.
        split: symbols along which a call may be made in several.
        limits: symbol → the least size that may be padded, and of what all such are multiples; (1, 1) for symbols that
            are not here.
    """

    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    scale: Mapping[tuple[int, int], Growth]
    padded: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)

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

    def output_shape(self, number: int, full: Sequence[int], sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of an output at ``sizes``, of which ``full`` is the shape at larger ones."""
        shape = list(full)
        for axis, size in enumerate(self.outputs[number].shape):
            if isinstance(size, str) and size in sizes:
                shape[axis] = max(0, self.scale[number, axis].of(sizes[size]))
        return tuple(shape)

    def may_pad(self, symbol: str, size: int) -> bool:
        """Return whether calls of this size may be padded."""
        least, multiple = self.limits.get(symbol, (1, 1))
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
        return Interface(inputs, outputs, scale, frozenset(data["padded"]), frozenset(data["split"]), limits)
