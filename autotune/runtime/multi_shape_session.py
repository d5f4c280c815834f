"""``InferenceSession`` over artifacts of one set of shapes or of several.

A call goes to the part of its very shapes; else to the smallest part that it fits into with zeros behind, along sizes
where that is known to be right; else it is made in several calls; else it is refused, and the message says what to add.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.bundle import Bundle, Part, is_bundle, volume
from autotune.artifact.chain import is_chain
from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.importer.onnx_model.open_axes import OpenSpec
from autotune.importer.program import TensorSpec
from autotune.runtime import plain_session as runtime
from autotune.runtime.onnxruntime_compat import (
    ModelMeta,
    Provider,
    check_run_options,
    given,
    meta_of,
    refuse_unknown,
    wanted_outputs,
    warn_of_providers,
)
from autotune.runtime.segmented_session import ChainSession
from autotune.validation.independence import cut
from schedules.errors import UsageError

Array = NDArray[Any]
Shapes = dict[str, tuple[int, ...]]


class OpenArg(runtime.NodeArg):
    """An input or output with open sizes, which are named in ``shape``, as in onnxruntime."""

    def __init__(self, spec: OpenSpec) -> None:
        closed = tuple(size if isinstance(size, int) else 0 for size in spec.shape)
        super().__init__(TensorSpec(spec.name, closed, spec.dtype))
        self.shape = [None if size == "?" else size for size in spec.shape]


class InferenceSession(runtime.InferenceSession):
    """A loaded artifact, of one set of shapes or of several; see ``autotune.runtime.plain_session.InferenceSession``."""

    def __new__(cls, path: str | Path, *arguments: Any, **options: Any) -> Any:
        """The plain session of an artifact of one set of shapes costs nothing more."""
        if not isinstance(path, bytes | bytearray) and is_chain(Path(path)):
            return ChainSession(path, *arguments, **options)
        if isinstance(path, bytes | bytearray) or not is_bundle(Path(path)):
            return runtime.InferenceSession(path, *arguments, **options)
        return super().__new__(cls)

    def __init__(
        self,
        path: str | Path,
        sess_options: object = None,
        providers: Sequence[Provider] | None = None,
        provider_options: object = None,
        *,
        threads: int | None = None,
    ) -> None:
        warn_of_providers(providers)
        self._bundle = Bundle(Path(path))
        self._options = sess_options
        self._threads = threads
        self._opened: dict[Path, runtime.InferenceSession] = {}
        self._opening = threading.Lock()
        self._by_shapes = {tuple(sorted(part.shapes.items())): part for part in self._bundle.parts}
        self._interface = self._bundle.interface
        self.threads = self._session(self._bundle.parts[0]).threads

    def get_inputs(self) -> list[runtime.NodeArg]:
        """The model's inputs, in order; open sizes by name."""
        return [OpenArg(spec) for spec in self._interface.inputs]

    def get_outputs(self) -> list[runtime.NodeArg]:
        """The model's outputs, in order; open sizes by name."""
        return [OpenArg(spec) for spec in self._interface.outputs]

    def get_modelmeta(self) -> ModelMeta:
        """Where the artifact comes from."""
        return meta_of(self._bundle.provenance)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], run_options: object = None
    ) -> list[Array]:
        """Outputs for ``input_feed``, whose shapes may be any that the artifact was built for or can be led to.

        Raises:
            UsageError: for a missing, unknown or misshapen input or an unknown output; a size that needs a
                specialisation of its own is named, with the option to add.
            RunError: as ``runtime.InferenceSession.run``.
        """
        check_run_options(run_options)
        known = [spec.name for spec in self._interface.outputs]
        wanted = wanted_outputs(output_names, known)
        outputs = dict(zip(known, self._run(self._checked(input_feed)), strict=True))
        return [outputs[name] for name in wanted]

    def profile(self, input_feed: Mapping[str, Array]) -> list[tuple[str, float]]:
        """As ``runtime.InferenceSession.profile``, of the part for these very shapes."""
        return self._session(self._exact(self._checked(input_feed))).profile(input_feed)

    def timeline(self, input_feed: Mapping[str, Array]) -> list[Span]:
        """As ``runtime.InferenceSession.timeline``, of the part for these very shapes."""
        return self._session(self._exact(self._checked(input_feed))).timeline(input_feed)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Those of the first part."""
        return self._session(self._bundle.parts[0]).lanes

    def cancel(self) -> None:
        """End the calls that are on in other threads."""
        for session in self._opened.values():
            session.cancel()

    def _session(self, part: Part) -> runtime.InferenceSession:
        with self._opening:
            if part.path not in self._opened:
                artifact = self._bundle.open(part)
                self._opened[part.path] = runtime.InferenceSession(artifact, self._options, threads=self._threads)
            return self._opened[part.path]

    def _checked(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        refuse_unknown(feed, [spec.name for spec in self._interface.inputs])
        return {spec.name: given(feed, spec.name, _text(spec.shape), spec.dtype) for spec in self._interface.inputs}

    def _exact(self, feed: Mapping[str, Array]) -> Part:
        shapes = _shapes(feed)
        part = self._by_shapes.get(tuple(sorted(shapes.items())))
        if part is None:
            raise UsageError(self._refusal(shapes))
        return part

    def _run(self, feed: dict[str, Array]) -> list[Array]:
        shapes = _shapes(feed)
        part = self._by_shapes.get(tuple(sorted(shapes.items())))
        if part is not None:
            return self._session(part).run(None, feed)
        sizes = self._interface.sizes(shapes)
        if sizes is None:
            raise UsageError(self._refusal(shapes))
        part = self._larger(sizes)
        if part is not None:
            return self._padded(part, feed, sizes)
        place = self._split_at(sizes)
        if place is not None:
            return self._in_pieces(feed, sizes, *place)
        raise UsageError(self._refusal(shapes))

    def _larger(self, sizes: Mapping[str, int]) -> Part | None:
        """The smallest part that ``sizes`` fit into with padding."""
        fitting = [part for part in self._bundle.parts if self._fits(self._sizes(part), sizes)]
        return min(fitting, key=lambda part: volume(part.shapes), default=None)

    def _fits(self, there: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        padded = self._interface.padded
        return all(there[name] == size or (name in padded and there[name] > size) for name, size in sizes.items())

    def _sizes(self, part: Part) -> dict[str, int]:
        return self._interface.sizes(part.shapes) or {}

    def _padded(self, part: Part, feed: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Array]:
        wide = {}
        for name, array in feed.items():
            wide[name] = np.zeros(part.shapes[name], array.dtype)
            wide[name][tuple(slice(size) for size in array.shape)] = array
        made = []
        for number, array in enumerate(self._session(part).run(None, wide)):
            shape = self._interface.output_shape(number, array.shape, sizes)
            made.append(np.ascontiguousarray(array[tuple(slice(size) for size in shape)]))
        return made

    def _split_at(self, sizes: Mapping[str, int]) -> tuple[str, int] | None:
        """Where to split: behind the largest size that some part has, or is padded to, and that is not too large."""
        for symbol in sorted(self._interface.split & set(sizes)):
            for size in sorted({self._sizes(part)[symbol] for part in self._bundle.parts}, reverse=True):
                if size < sizes[symbol] and self._larger({**sizes, symbol: size}) is not None:
                    return symbol, size
        return None

    def _in_pieces(self, feed: dict[str, Array], sizes: Mapping[str, int], symbol: str, size: int) -> list[Array]:
        axes = self._interface.axes(symbol)
        made = [self._run(cut(feed, axes, start, start + size)) for start in range(0, sizes[symbol], size)]
        outputs = self._interface.outputs
        return [
            np.concatenate([piece[number] for piece in made], axis=spec.shape.index(symbol))
            for number, spec in enumerate(outputs)
        ]

    def _refusal(self, shapes: Shapes) -> str:
        """What is there, and what to add."""
        there = "; ".join(", ".join(f"{n} {_text(s)}" for n, s in part.shapes.items()) for part in self._bundle.parts)
        flags = " ".join(f"--input {name}:{_text(shape)}" for name, shape in shapes.items())
        for spec in self._interface.inputs:
            given = shapes[spec.name]
            wrong = len(given) != len(spec.shape) or any(
                isinstance(want, int) and want != got for want, got in zip(spec.shape, given, strict=True)
            )
            if wrong and not any(isinstance(size, str) for size in spec.shape):
                return f"input {spec.name!r} has shape {_text(given)}, the artifact was built for {_text(spec.shape)}"
        given_text = ", ".join(f"{name} {_text(shape)}" for name, shape in shapes.items())
        return (
            f"no specialisation for {given_text}; there are: {there}; "
            f"add {flags} to the other --input of 'tune run' and run it again"
        )


def _shapes(feed: Mapping[str, Array]) -> Shapes:
    return {name: tuple(array.shape) for name, array in feed.items()}


def _text(shape: Sequence[int | str]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def load(path: str | Path, threads: int | None = None) -> runtime.InferenceSession:
    """Open the artifact at ``path``; see ``InferenceSession``."""
    session: runtime.InferenceSession = InferenceSession(path, threads=threads)
    return session
