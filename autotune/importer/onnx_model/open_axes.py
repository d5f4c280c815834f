"""Sizes that a model leaves open: their names, where they occur, and what follows for calls of other sizes.

A *symbol* is an open size: ``batch``. Axes of inputs that the model gives one name share a symbol; an axis without a
name is called after its input, ``data_0``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import onnx

from autotune.importer.onnx_model.shapes import true_inputs

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class OpenSpec:
    """Name, shape and type of an input or output; an open size is a symbol's name, an unknown one ``?``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


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
        found = {s.name: [axis for axis, size in enumerate(s.shape) if size == symbol] for s in self.inputs}
        return {name: axes for name, axes in found.items() if axes}

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Symbol → its size in ``shapes``; None if they do not fit the model."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            given = shapes.get(spec.name)
            if given is None or len(given) != len(spec.shape):
                return None
            for want, got in zip(spec.shape, given, strict=True):
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
        """Whether every output's shape follows from the open sizes."""
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


def open_interface(
    model: onnx.ModelProto,
    inputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]],
    outputs: Sequence[Sequence[tuple[str, tuple[int, ...], str]]],
) -> Interface:
    """The interface that several static ones of ``model`` have in common.

    Args:
        model: as in its file, with names for open sizes.
        inputs, outputs: for each set of shapes (name, shape, dtype) of all.
    """
    names = _dim_names(model)
    opened = []
    for index, (name, shape, dtype) in enumerate(inputs[0]):
        every = [each[index][1] for each in inputs]
        opened.append(OpenSpec(name, tuple(_opened(every, axis, names, name) for axis in range(len(shape))), dtype))
    interface = Interface(tuple(opened), (), {})
    sizes = [interface.sizes({name: shape for name, shape, _ in each}) or {} for each in inputs]
    made, scale = [], {}
    for number, (name, shape, dtype) in enumerate(outputs[0]):
        dims: list[int | str] = []
        for axis in range(len(shape)):
            others = [each[number][1] for each in outputs]
            if any(len(other) != len(shape) for other in others):
                dims.append("?")
                continue
            dim, factor = _followed([other[axis] for other in others], sizes)
            dims.append(dim)
            if factor is not None:
                scale[number, axis] = factor
        made.append(OpenSpec(name, tuple(dims), dtype))
    return Interface(tuple(opened), tuple(made), scale)


def _dim_names(model: onnx.ModelProto) -> dict[tuple[str, int], str]:
    """(input, axis) → the name that the model gives its size."""
    return {
        (value.name, axis): dim.dim_param
        for value in true_inputs(model.graph)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param
    }


def _opened(shapes: Sequence[tuple[int, ...]], axis: int, names: Mapping[tuple[str, int], str], name: str) -> int | str:
    """An input's size if it is the same everywhere, else its symbol."""
    sizes = {shape[axis] for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else names.get((name, axis), f"{name}_{axis}")


def _followed(sizes: Sequence[int], symbols: Sequence[Mapping[str, int]]) -> tuple[int | str, Fraction | None]:
    """What an output's size follows: itself, a symbol and how many times that, or nothing that is known."""
    if len(set(sizes)) == 1:
        return sizes[0], None
    for symbol in symbols[0]:
        factors = {Fraction(size, known[symbol]) for size, known in zip(sizes, symbols, strict=True)}
        if len(factors) == 1:
            return symbol, factors.pop()
    return "?", None
