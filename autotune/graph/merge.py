"""Programs of subgraphs put together into one graph of calls. Pure but for NumPy's arrays, which are only handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Place, Source, Use
from autotune.host.dtypes import numpy_type, word
from autotune.interface import TensorSpec

DEVICE_CALL = "@"
"""Begins the symbol of a call that a device answers; no kernel's name begins so."""


@dataclass(frozen=True)
class Part:
    """A subgraph's program.

    Attributes:
        name: of the subgraph.
        flat: its calls; its inputs are numbered as in ``inputs``.
        inputs, outputs: names of the values that pass between subgraphs.
    """

    name: str
    flat: Flat
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Merged:
    """All subgraphs as one graph.

    Attributes:
        flat: the calls of one subgraph after those of another.
        calls: (parts,) the numbers of each subgraph's calls.
    """

    flat: Flat
    calls: tuple[tuple[int, ...], ...]


def device_symbol(name: str, number: int) -> str:
    """The call that gives output ``number`` of the subgraph ``name``; number 0 also runs it."""
    return f"{DEVICE_CALL}{name}#{number}"


def device_flat(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Flat:
    """A subgraph that a device runs: one call that runs it and writes its first output, one for each other output."""

    def use(place: Place, index: int, spec: TensorSpec) -> Use:
        return Use(Source(place, index), spec.shape, str(word(numpy_type(spec.dtype))))

    read = tuple(use("input", index, spec) for index, spec in enumerate(inputs))
    made = tuple(use("arena", number, spec) for number, spec in enumerate(outputs))
    calls = tuple(
        FlatCall(device_symbol(name, number), () if number else read, written.shape, written.dtype)
        for number, written in enumerate(made)
    )
    return Flat(calls, made, {}, frozenset(), ())


def merge(parts: Sequence[Part], inputs: Sequence[str], outputs: Sequence[str]) -> Merged:
    """``parts`` as one graph.

    Args:
        parts: in an order in which they can run.
        inputs: names of the model's inputs, in its order.
        outputs: names of its outputs, in its order; each is made by a part.
    """
    made: dict[str, Use] = {}
    calls: list[FlatCall] = []
    numbers: list[tuple[int, ...]] = []
    slices: dict[int, Slice] = {}
    removed: set[int] = set()
    weights: list[NDArray[Any]] = []
    for part in parts:
        flat, first, first_weight = part.flat, len(calls), len(weights)
        sources = [made[name].source if name in made else Source("input", inputs.index(name)) for name in part.inputs]

        def placed(
            use: Use, sources: list[Source] = sources, first: int = first, first_weight: int = first_weight
        ) -> Use:
            if use.source.place == "input":
                return replace(use, source=sources[use.source.index])
            base = first_weight if use.source.place == "weight" else first
            return replace(use, source=Source(use.source.place, base + use.source.index))

        calls += [replace(call, arguments=tuple(map(placed, call.arguments))) for call in flat.calls]
        slices |= _moved(flat.slices, first)
        removed |= {first + call for call in flat.removed}
        weights += flat.weights
        numbers.append(tuple(range(first, len(calls))))
        made |= {name: placed(use) for name, use in zip(part.outputs, flat.outputs, strict=True)}
    uses = tuple(made[name] for name in outputs)
    return Merged(Flat(tuple(calls), uses, slices, frozenset(removed), tuple(weights)), tuple(numbers))


def _moved(slices: Mapping[int, Slice], first: int) -> dict[int, Slice]:
    return {first + part: Slice(first + known.parent, known.offset) for part, known in slices.items()}
