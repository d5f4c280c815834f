"""Running an artifact of several sets of input shapes.

A call goes to the part of its very shapes. Else it goes to the smallest part that it fits into with zeros behind the
end, along sizes where that is known to be right; kernels leave out what the zeros would yield. Where no part is large
enough, or the measured latencies of smaller ones promise much less time, it is made in several calls. Else ONNX
Runtime runs the model where the artifact has it, or the call is refused; a message says which option to add.
"""

from __future__ import annotations

import logging
import math
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from autotune.artifact.composite import MODEL, Composite, Part
from autotune.backends.executor import Executor, Span, StreamCall, Streams
from autotune.frame.noise import is_live, noise_of
from autotune.runtime.artifact_executor import Array, Arrays, LazyExecutor
from autotune.runtime.inputs import shape_text
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.segmented_executor import FallbackExecutor
from schedules.vocabulary.errors import UsageError

logger = logging.getLogger(__name__)

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in order."""

PIECES_GAIN = 0.7
"""Largest share of a padded call's predicted time at which several smaller calls are made instead. Parts are timed in
different minutes, so a smaller gain is not sure. Heuristic, not measured."""

MOST_KNOWN = 4096
"""Shapes of calls whose way is remembered, half a kilobyte each."""


@dataclass(frozen=True)
class _Way:
    """One way to make a call.

    Attributes:
        cost: predicted milliseconds; 0 where some part has no measured latency.
        part: what runs it padded; None if it is cut into pieces.
        symbol, size: the open size along which it is cut, and how large a piece is.
    """

    cost: float
    part: Part | None
    symbol: str = ""
    size: int = 0


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
        self._timed = all(part.latency_ms is not None for part in self._parts)
        self._exact_ones: dict[Shapes, OneShapeExecutor] = {}
        self._known: dict[Shapes, tuple[dict[str, int], _Way | None]] = {}
        first = self._executor(self._parts[0])
        self.threads = first.threads
        self.lanes = first.lanes

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``, for any shapes that the artifact was built for or can be led to.

        Raises:
            UsageError: for a size that needs a part of its own, with the option to add.
            ArtifactError, InstallError, ModelError: if ONNX Runtime cannot run other sizes.
            RunError: as ``Executor.run``.
        """
        shapes = _shapes(arrays)
        exact = self._exact_ones.get(shapes)
        if exact is None and (part := self._by_shapes.get(shapes)) is not None:
            exact = self._exact_ones[shapes] = self._executor(part)
        if exact is not None:
            return exact.run(arrays)
        sizes, way = self._led(shapes)
        if way is None:
            own = [array for spec, array in zip(self.inputs, arrays, strict=True) if not is_live(spec.name)]
            return self._elsewhere(shapes).run(own)
        return self._in_pieces(arrays, sizes, way) if way.part is None else self._padded(way.part, arrays, sizes)

    def check(self, arrays: Arrays) -> None:
        """Implement ``Executor.check``."""
        shapes = _shapes(arrays)
        if shapes not in self._by_shapes:
            self._led(shapes)

    def _led(self, shapes: Shapes) -> tuple[dict[str, int], _Way | None]:
        """The open sizes of a call, and the way that it takes; None for ONNX Runtime.

        Raises:
            UsageError: if nothing can run it.
        """
        known = self._known.get(shapes)
        if known is None:
            sizes = self._interface.sizes(self._by_name(shapes))
            way = None if sizes is None else self._way(sizes)
            if sizes is None or (way is None and not self._artifact.other_sizes):
                raise UsageError(self._refusal(shapes))
            known = sizes, way
            if len(self._known) < MOST_KNOWN:
                self._known[shapes] = known
        return known

    def streams(self, others: Sequence[Executor]) -> Streams | None:
        """Implement ``Executor.streams``: of one part, Python takes part only in calls of other shapes than its own."""
        executors = [self, *(other for other in others if isinstance(other, MultiShapeExecutor))]
        if len(self._parts) != 1:
            return None
        own, *rest = (executor._executor(self._parts[0]) for executor in executors)
        exact = own.streams(rest)
        return None if exact is None else OnePartStreams(exact, self._in_order(self._parts[0]), executors)

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

    def _elsewhere(self, shapes: Shapes) -> FallbackExecutor:
        """ONNX Runtime with the whole model.

        Raises:
            ArtifactError, InstallError, ModelError: as ``Composite.whole_model`` and ``FallbackExecutor``.
        """
        if MODEL not in self._opened:
            self._keep(MODEL, FallbackExecutor(self._artifact.whole_model(), self.threads))
            logger.warning("ONNX Runtime runs calls of other sizes: %s", self._refusal(shapes))
        opened: FallbackExecutor = self._opened[MODEL]
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

    def _way(self, sizes: Mapping[str, int]) -> _Way | None:
        """The way to make a call of ``sizes`` that is predicted to take least; None if there is none.

        Where latencies are not known, a call is cut only if no part is large enough, and into few pieces.
        """
        part, ways = self._larger(sizes), self._pieces(sizes)
        pieces = min(ways, key=lambda way: way.cost, default=None) if self._timed else next(ways, None)
        if part is None:
            return pieces
        cost = self._cost(part, sizes)
        gains = self._timed and pieces is not None and pieces.cost < PIECES_GAIN * cost
        return pieces if gains else _Way(cost, part)

    def _pieces(self, sizes: Mapping[str, int]) -> Iterator[_Way]:
        """The ways to cut a call, large pieces first."""
        for symbol in sorted(self._interface.split & set(sizes)):
            for size in sorted({self._sizes(part)[symbol] for part in self._parts}, reverse=True):
                piece = {**sizes, symbol: size}
                part = self._larger(piece) if size < sizes[symbol] else None
                if part is None:
                    continue
                count, rest = divmod(sizes[symbol], size)
                last = self._way({**sizes, symbol: rest}) if rest else _Way(0.0, part)
                if last is not None:
                    yield _Way(count * self._cost(part, piece) + last.cost, None, symbol, size)

    def _larger(self, sizes: Mapping[str, int]) -> Part | None:
        """The part that ``sizes`` fit into with padding and that takes least: by latency, or by what it computes.

        A part that is as large as another along every axis is not taken: parts are timed in different minutes.
        """

        def computed(part: Part) -> tuple[float, int]:
            elements = sum(map(math.prod, part.shapes.values()))
            whole = (part.latency_ms if self._timed else None) or elements
            return whole * self._live_share(part, sizes), elements

        fitting = [part for part in self._parts if self._fits(self._sizes(part), sizes)]
        least = [part for part in fitting if not any(self._is_within(other, part) for other in fitting)]
        return min(least, key=computed, default=None)

    def _is_within(self, part: Part, other: Part) -> bool:
        """Return whether ``part`` is smaller than another along some axis and larger along none."""
        here, there = self._sizes(part), self._sizes(other)
        return here != there and all(size <= there[symbol] for symbol, size in here.items())

    def _cost(self, part: Part, sizes: Mapping[str, int]) -> float:
        """See ``_Way.cost``, of ``part`` with as few rows as ``sizes`` has."""
        return (part.latency_ms or 0.0) * self._live_share(part, sizes) if self._timed else 0.0

    @staticmethod
    def _live_share(part: Part, sizes: Mapping[str, int]) -> float:
        return 1.0 if part.live is None else part.live.share(sizes, part.threads)

    def _fits(self, there: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        may_pad = self._interface.may_pad
        return all(there[name] == size or (there[name] > size and may_pad(name, size)) for name, size in sizes.items())

    def _sizes(self, part: Part) -> dict[str, int]:
        return self._interface.sizes(part.shapes) or {}

    def _padded(self, part: Part, arrays: Arrays, sizes: Mapping[str, int]) -> list[Array]:
        wide = [np.zeros(shape, array.dtype) for shape, array in zip(self._in_order(part), arrays, strict=True)]
        for target, array in zip(wide, arrays, strict=True):
            target[tuple(slice(size) for size in array.shape)] = array
        executor = self._executor(part)
        live = [] if part.live is None else [sizes[size.symbol] for size in part.live.sizes]
        outputs = executor.run_live(wide, live) if live else executor.run(wide)
        full, cut_output = self._sizes(part), self._interface.cut_output
        return [np.ascontiguousarray(cut_output(number, array, full, sizes)) for number, array in enumerate(outputs)]

    def _in_pieces(self, arrays: Arrays, sizes: Mapping[str, int], way: _Way) -> list[Array]:
        symbol, size, total = way.symbol, way.size, sizes[way.symbol]
        axes = self._interface.axes(symbol)
        along = [axes.get(spec.name, []) for spec in self.inputs]
        ends = [spec.shape.index(symbol) for spec in self.outputs]
        part = self._by_shapes.get(
            tuple(_resized(array.shape, own, size) for array, own in zip(arrays, along, strict=True))
        )
        pieces, start = [], 0
        if part is not None and not any(ends) and all(own == [0] for own in along):  # pieces lie behind one another
            count = total // size
            start = count * size
            pieces.append(self._executor(part).run_rows([array[:start] for array in arrays], count))
        pieces += [
            self.run([cut(array, own, first, first + size) for array, own in zip(arrays, along, strict=True)])
            for first in range(start, total, size)
        ]
        if len(pieces) == 1:
            return pieces[0]
        return [np.concatenate([piece[number] for piece in pieces], axis) for number, axis in enumerate(ends)]

    def _refusal(self, shapes: Shapes) -> str:
        """Return a message that names the shapes that are there and the one to add."""
        there = "; ".join(_text(part.shapes) for part in self._parts)
        wanted = self._by_name(shapes)
        flags = " ".join(
            f"--input {shlex.quote(f'{name}:{shape_text(shape)}')}"
            for name, shape in wanted.items()
            if noise_of(name) is None
        )
        return (
            f"no set of shapes for {_text(wanted)}; there are: {there}; "
            f"add {flags} to the other --input of 'tune run' and run it again"
        )


@dataclass(frozen=True)
class OnePartStreams:
    """An implementation of ``Streams``, for an artifact of one set of shapes that answers others in several calls.

    Attributes:
        exact: the streams for calls of the very ``shapes``.
        executors: of every stream.
    """

    exact: Streams
    shapes: Shapes
    executors: Sequence[MultiShapeExecutor]

    def call(self, inputs: Arrays) -> StreamCall:
        """Implement ``Streams.call``."""
        return self.exact.call(inputs) if _shapes(inputs) == self.shapes else LedCall(self, inputs)

    def run(self, inputs: Arrays, timeout_s: float | None) -> list[Array]:
        """Implement ``Streams.run``."""
        if _shapes(inputs) == self.shapes:
            return self.exact.run(inputs, timeout_s)
        return LedCall(self, inputs).run(timeout_s)

    def cancel_runs(self) -> None:
        """Implement ``Streams.cancel_runs``."""
        self.exact.cancel_runs()

    def stream(self, timeout_s: float | None) -> AbstractContextManager[int]:
        """Implement ``Streams.stream``."""
        return self.exact.stream(timeout_s)


class LedCall:
    """An implementation of ``StreamCall``, of other shapes than those of the part."""

    def __init__(self, streams: OnePartStreams, inputs: Arrays) -> None:
        self._streams, self._inputs = streams, inputs
        self._lock = threading.Lock()
        self._on: MultiShapeExecutor | None = None
        self._cancelled = False

    def run(self, timeout_s: float | None) -> list[Array]:
        """Implement ``StreamCall.run``."""
        streams = self._streams
        streams.executors[0].check(self._inputs)  # before it waits
        held = streams.stream(timeout_s)
        try:
            return self._run_on(streams.executors[held.__enter__()])
        finally:  # not ``with``: Ctrl-C at the begin of its end would keep the stream
            try:
                held.__exit__(None, None, None)
            finally:
                held.__exit__(None, None, None)

    def _run_on(self, executor: MultiShapeExecutor) -> list[Array]:
        with self._lock:
            self._on = executor
            if self._cancelled:
                executor.halt()
        try:
            return executor.run(self._inputs)
        finally:
            with self._lock:
                self._on = None
                if self._cancelled:
                    executor.resume()

    def cancel(self) -> None:
        """Implement ``StreamCall.cancel``; one that waits ends when it gets a stream."""
        with self._lock:
            if not self._cancelled and self._on is not None:
                self._on.halt()
            self._cancelled = True


def cut(array: Array, axes: Sequence[int], start: int, stop: int | None) -> Array:
    """``array`` from ``start`` to ``stop`` along ``axes``."""
    index = [slice(None)] * array.ndim
    for axis in axes:
        index[axis] = slice(start, stop)
    return np.ascontiguousarray(array[tuple(index)])


def _resized(shape: Sequence[int], axes: Sequence[int], size: int) -> tuple[int, ...]:
    """``shape`` with ``size`` on ``axes``."""
    return tuple(size if axis in axes else own for axis, own in enumerate(shape))


def _shapes(arrays: Arrays) -> Shapes:
    return tuple(array.shape for array in arrays)


def _text(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {shape_text(shape)}" for name, shape in shapes.items() if noise_of(name) is None)
