"""Inputs and outputs of a model: names, shapes and types, at one set of shapes or with sizes left open.

A *symbol* is an open size: ``batch``. For importer, artifacts and sessions alike, so that a session needs no importer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
class Interface:
    """A model's inputs and outputs over several sets of shapes.

    Attributes:
        scale: (output's number, axis) → its size per unit of its symbol.
        padded: symbols along which zeros may be added behind the end: what they yield is cut off, and nothing else
            changes.
        split: symbols along which a call may be made in several.
    """

    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    scale: Mapping[tuple[int, int], Fraction]
    padded: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()

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
                shape[axis] = int(self.scale[number, axis] * sizes[size])
        return tuple(shape)

    def knows_outputs(self) -> bool:
        """Return whether every output's shape follows from the open sizes."""
        return all("?" not in spec.shape for spec in self.outputs)

    def to_data(self) -> dict[str, Any]:
        """As in the manifest of an artifact in parts."""
        return {
            "inputs": [[s.name, list(s.shape), s.dtype] for s in self.inputs],
            "outputs": [[s.name, list(s.shape), s.dtype] for s in self.outputs],
            "scale": [[number, axis, str(value)] for (number, axis), value in self.scale.items()],
            "padded": sorted(self.padded),
            "split": sorted(self.split),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Interface:
        """Inverse of ``to_data``."""
        inputs, outputs = (
            tuple(OpenSpec(str(name), tuple(shape), str(dtype)) for name, shape, dtype in data[field])
            for field in ("inputs", "outputs")
        )
        scale = {(int(number), int(axis)): Fraction(value) for number, axis, value in data["scale"]}
        return Interface(inputs, outputs, scale, frozenset(data["padded"]), frozenset(data["split"]))
