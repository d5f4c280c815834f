"""Running an artifact of several sets of input shapes.

A call goes to the part of its very shapes. Else it goes to the smallest part that it fits into with zeros behind the
end, along sizes where that is known to be right; kernels leave out what the zeros would yield. Else it is made in
several calls. Else it is refused, and the message says which option to add.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.artifact.composite import Composite, Part
from autotune.backends.executor import Span
from autotune.runtime.artifact_executor import Array, Arrays, LazyExecutor
from autotune.runtime.inputs import shape_text
from autotune.runtime.one_shape_executor import OneShapeExecutor
from schedules.vocabulary.errors import UsageError

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in order."""


class MultiShapeExecutor(LazyExecutor):
    """Runs the part that fits; parts are opened when they are first needed, but for the first.

    Args:
        threads: threads to run on; None for what the artifact was tuned for.
        cpus: logical CPUs to run on; none for the first of this process.
        tuned_for: of parts for several numbers of threads, those for so many; None for the most threads.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
    """

    def __init__(
        self, artifact: Composite, threads: int | None, cpus: Sequence[int] = (), tuned_for: int | None = None
    ) -> None:
        super().__init__()
        self._artifact, self._interface, self._threads, self._cpus = artifact, artifact.interface, threads, cpus
        wanted = tuned_for or max(part.threads for part in artifact.parts)
        self._parts = [part for part in artifact.parts if part.threads == wanted]
        self.inputs, self.outputs = self._interface.inputs, self._interface.outputs
        self.provenance = artifact.provenance
        self._by_shapes = {self._in_order(part): part for part in self._parts}
        first = self._executor(self._parts[0])
        self.threads = first.threads
        self.lanes = first.lanes

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``, for any shapes that the artifact was built for or can be led to.

        Raises:
            UsageError: for a size that needs a part of its own, with the option to add.
            RunError: as ``Executor.run``.
        """
        shapes = _shapes(arrays)
        part = self._by_shapes.get(shapes)
        if part is not None:
            return self._executor(part).run(arrays)
        sizes = self._interface.sizes(self._by_name(shapes))
        if sizes is None:
            raise UsageError(self._refusal(shapes))
        part = self._larger(sizes)
        if part is not None:
            return self._padded(part, arrays, sizes)
        place = self._split_at(sizes)
        if place is not None and self._serves(sizes):
            return self._in_pieces(arrays, sizes, *place)
        raise UsageError(self._refusal(shapes))

    def check(self, arrays: Arrays) -> None:
        """Implement ``Executor.check``."""
        shapes = _shapes(arrays)
        if shapes not in self._by_shapes:
            sizes = self._interface.sizes(self._by_name(shapes))
            if sizes is None or not self._serves(sizes):
                raise UsageError(self._refusal(shapes))

    def _serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call of these sizes can be made, in one or in several."""
        if self._larger(sizes) is not None:
            return True
        place = self._split_at(sizes)
        if place is None:
            return False
        symbol, size = place
        rest = sizes[symbol] % size
        return rest == 0 or self._serves({**sizes, symbol: rest})

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``, of the part for these very shapes."""
        return self._executor(self._exact(arrays)).profile(arrays)

    def timeline(self, arrays: Arrays) -> list[Span]:
        """Implement ``Executor.timeline``, of the part for these very shapes."""
        return self._executor(self._exact(arrays)).timeline(arrays)

    def _executor(self, part: Part) -> OneShapeExecutor:
        if part.path not in self._opened:
            self._keep(part.path, OneShapeExecutor(self._artifact.open(part), self._threads, self._cpus))
        opened: OneShapeExecutor = self._opened[part.path]
        return opened

    def _in_order(self, part: Part) -> Shapes:
        return tuple(part.shapes[spec.name] for spec in self.inputs)

    def _by_name(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {spec.name: shape for spec, shape in zip(self.inputs, shapes, strict=True)}

    def _exact(self, arrays: Arrays) -> Part:
        shapes = _shapes(arrays)
        part = self._by_shapes.get(shapes)
        if part is None:
            raise UsageError(self._refusal(shapes))
        return part

    def _larger(self, sizes: Mapping[str, int]) -> Part | None:
        """The part that ``sizes`` fit into with padding and that computes least, by elements of all inputs."""

        def computed(part: Part) -> tuple[float, int]:
            elements = sum(map(math.prod, part.shapes.values()))
            live = 0 if part.live is None else sizes[part.live.symbol]
            return elements * (live / part.live.rows if part.live else 1), elements

        fitting = [part for part in self._parts if self._fits(self._sizes(part), sizes)]
        return min(fitting, key=computed, default=None)

    def _fits(self, there: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        padded = self._interface.padded
        return all(there[name] == size or (name in padded and there[name] > size) for name, size in sizes.items())

    def _sizes(self, part: Part) -> dict[str, int]:
        return self._interface.sizes(part.shapes) or {}

    def _padded(self, part: Part, arrays: Arrays, sizes: Mapping[str, int]) -> list[Array]:
        wide = [np.zeros(shape, array.dtype) for shape, array in zip(self._in_order(part), arrays, strict=True)]
        for target, array in zip(wide, arrays, strict=True):
            target[tuple(slice(size) for size in array.shape)] = array
        executor = self._executor(part)
        outputs = executor.run(wide) if part.live is None else executor.run_live(wide, sizes[part.live.symbol])
        made = []
        for number, array in enumerate(outputs):
            shape = self._interface.output_shape(number, array.shape, sizes)
            made.append(np.ascontiguousarray(array[tuple(slice(size) for size in shape)]))
        return made

    def _split_at(self, sizes: Mapping[str, int]) -> tuple[str, int] | None:
        """Where to split: behind the largest size that some part has, or is padded to, and that is not too large."""
        for symbol in sorted(self._interface.split & set(sizes)):
            for size in sorted({self._sizes(part)[symbol] for part in self._parts}, reverse=True):
                if size < sizes[symbol] and self._larger({**sizes, symbol: size}) is not None:
                    return symbol, size
        return None

    def _in_pieces(self, arrays: Arrays, sizes: Mapping[str, int], symbol: str, size: int) -> list[Array]:
        axes = self._interface.axes(symbol)
        along = [axes.get(spec.name, []) for spec in self.inputs]
        starts = range(0, sizes[symbol], size)
        made = [
            self.run([cut(array, own, start, start + size) for array, own in zip(arrays, along, strict=True)])
            for start in starts
        ]
        return [
            np.concatenate([piece[number] for piece in made], axis=spec.shape.index(symbol))
            for number, spec in enumerate(self.outputs)
        ]

    def _refusal(self, shapes: Shapes) -> str:
        """What is there, and what to add."""
        there = "; ".join(_text(part.shapes) for part in self._parts)
        given = self._by_name(shapes)
        flags = " ".join(f"--input {shlex.quote(f'{name}:{shape_text(shape)}')}" for name, shape in given.items())
        return (
            f"no set of shapes for {_text(given)}; there are: {there}; "
            f"add {flags} to the other --input of 'tune run' and run it again"
        )


def cut(array: Array, axes: Sequence[int], start: int, stop: int | None) -> Array:
    """``array`` from ``start`` to ``stop`` along ``axes``."""
    index = [slice(None)] * array.ndim
    for axis in axes:
        index[axis] = slice(start, stop)
    return np.ascontiguousarray(array[tuple(index)])


def _shapes(arrays: Arrays) -> Shapes:
    return tuple(array.shape for array in arrays)


def _text(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {shape_text(shape)}" for name, shape in shapes.items())
