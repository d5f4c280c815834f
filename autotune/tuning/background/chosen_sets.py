"""Which sets of shapes to tune for, given how much time requests of which sizes have taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.open_axes import open_interface
from autotune.importer.onnx_model.shape_sets import MOST_SETS
from autotune.interface import Interface, OpenSpec, Shapes, TensorSpec
from autotune.runtime.adaptive.routes import rounded
from autotune.runtime.adaptive.whole_model import WholeModel
from autotune.validation.independence import with_independence
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import AutotuneError

NEW_SETS = 4
"""Sets that are added at once: the first kernels shall not wait for the last. Heuristic, not measured."""

AllShapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in order."""

Demand = Mapping[AllShapes, float]
"""Shapes → seconds that requests of them took."""

MOST_TRIED = 32
"""Other sizes at which a model is asked what follows what, until it takes some."""


class SizeChooser:
    """Chooses sets of shapes for one model.

    Args:
        path: of the ONNX file.
        model: it on ONNX Runtime.
    """

    def __init__(self, path: Path, model: WholeModel) -> None:
        self._path, self._model = path, model
        inputs, self.outputs = model.specs()
        self.inputs = tuple(map(_named, inputs))
        self._interface: Interface | None = None
        self._refused: set[AllShapes] = set()

    def choose(self, demand: Demand, present: Sequence[Shapes]) -> list[dict[str, tuple[int, ...]]]:
        """Return the sets that are missing most, ``NEW_SETS`` at most, so that there are ``MOST_SETS`` at most.

        Along sizes where calls may be padded, a set is for the next larger rounded size.

        Args:
            present: sets that are tuned already.
        """
        order = [spec.name for spec in self.inputs]
        known = {tuple(tuple(shapes[name]) for name in order) for shapes in present}
        spent: dict[AllShapes, float] = {}
        for shapes, seconds in demand.items():
            chosen = self._padded(shapes)
            spent[chosen] = spent.get(chosen, 0.0) + seconds
        missing = sorted([shapes for shapes in spent if shapes not in known], key=spent.__getitem__, reverse=True)
        room = max(0, min(NEW_SETS, MOST_SETS - len(known)))
        return [dict(zip(order, shapes, strict=True)) for shapes in missing[:room]]

    def _padded(self, shapes: AllShapes) -> AllShapes:
        """The shapes to tune for so that a call of ``shapes`` is served."""
        if self._interface is None:
            self._interface = self._learn(shapes)
        interface = self._interface
        padded = interface.padded
        wide = _changed(interface.inputs, shapes, lambda name, size: rounded(size) if name in padded else size)
        if wide == shapes or wide in self._refused:
            return shapes
        try:
            self._outputs(self._feed(wide))
        except AutotuneError:  # a table of positions ends before it, for one
            self._refused.add(wide)
            return shapes
        return wide

    def _learn(self, shapes: AllShapes) -> Interface:
        """The model's interface, with the sizes along which calls may be padded or split.

        Found by ONNX Runtime at ``shapes`` and at other sizes that the model takes.
        """
        nothing = Interface(self.inputs, self.outputs, {})
        graph = model_without_weights(self._path)
        if graph is None or all(isinstance(size, int) for spec in self.inputs for size in spec.shape):
            return nothing
        for other in itertools.islice(_others(self.inputs, shapes), MOST_TRIED):
            feeds = [self._feed(shapes), self._feed(other)]
            try:
                answers = [self._outputs(feed) for feed in feeds]
            except AutotuneError:  # the model does not take such sizes
                continue
            described = [[(name, array.shape, str(array.dtype)) for name, array in feed.items()] for feed in feeds]
            results = [
                [(spec.name, array.shape, spec.dtype) for spec, array in zip(self.outputs, arrays, strict=True)]
                for arrays in answers
            ]
            interface = open_interface(graph, described, results)
            sets = [{name: array.shape for name, array in feed.items()} for feed in feeds]
            return with_independence(interface, sets, [self._outputs], 0)
        return nothing

    def _feed(self, shapes: Iterable[tuple[int, ...]]) -> dict[str, NDArray[Any]]:
        specs = [TensorSpec(spec.name, shape, spec.dtype) for spec, shape in zip(self.inputs, shapes, strict=True)]
        return random_inputs(specs, 0)

    def _outputs(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        names = [spec.name for spec in self.inputs]
        return self._model.run(names, [feed[name] for name in names])


def _named(spec: OpenSpec) -> OpenSpec:
    """The input with names for open sizes that have none, as ``open_interface`` gives them."""
    shape = tuple(f"{spec.name}_{axis}" if size == "?" else size for axis, size in enumerate(spec.shape))
    return replace(spec, shape=shape)


def _others(specs: Sequence[OpenSpec], shapes: AllShapes) -> Iterator[AllShapes]:
    """Other shapes, in which no two open sizes grow by the same factor: what follows one follows it alone."""
    sizes = Interface(tuple(specs), (), {}).sizes({s.name: shape for s, shape in zip(specs, shapes, strict=True)}) or {}
    tries = [(size + 1 + 2 * n, (n + 2) * size, size // 2) for n, size in enumerate(sizes.values())]
    for picked in itertools.product(*tries):
        chosen = dict(zip(sizes, picked, strict=True))
        factors = {Fraction(chosen[name], size) for name, size in sizes.items()}
        if min(picked, default=0) > 0 and len(factors) == len(sizes):
            yield _changed(specs, shapes, partial(_looked_up, chosen))


def _looked_up(sizes: Mapping[str, int], name: str, size: int) -> int:
    return sizes.get(name, size)


def _changed(specs: Sequence[OpenSpec], shapes: AllShapes, change: Callable[[str, int], int]) -> AllShapes:
    """``shapes`` with other open sizes."""
    return tuple(
        tuple(
            change(name, size) if isinstance(name, str) else size for name, size in zip(spec.shape, shape, strict=True)
        )
        for spec, shape in zip(specs, shapes, strict=True)
    )
