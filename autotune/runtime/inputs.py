"""Checking what a caller feeds: every input of the model is there, and all of them fit the model and each other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.frame.frame import Frame
from autotune.frame.noise import NoiseSource
from autotune.host.dtypes import numpy_type
from autotune.interface import OpenSpec, TensorSpec
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError, first_line

Array = NDArray[Any]
Spec = TensorSpec | OpenSpec

STRINGS = "object"
"""NumPy's type of arrays of strings."""

UNKNOWN = "?"
"""A size that nothing is known of; two of them may differ."""

MOST_SIZES = 4096
"""Different shapes of feeds that are counted one by one; what comes after them is not."""


class InputCheck:
    """Puts the arrays of a feed in the order of a model's inputs.

    Args:
        specs: the model's inputs. An open size may be any, but the same wherever its name stands.
        frame: of the artifact, which says what is a sequence.
        noise: draws the inputs of noise that a feed leaves out.
        inner: whether the inputs are values inside a model, whose sizes no option names.
        one_set: whether the model may leave other sizes open too: these are of kernels for one set of shapes.

    Attributes:
        seen: shapes of all inputs → feeds of them, of a model with open sizes. Threads that count at the same moment
            may lose one.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        frame: Frame | None = None,
        noise: NoiseSource | None = None,
        inner: bool = False,
        one_set: bool = False,
    ) -> None:
        # What completes a feed, in order; nothing for most models.
        self._steps: list[Callable[[Mapping[str, Any]], dict[str, Any]]] = []
        if frame is not None and frame.sequences:
            self._steps.append(frame.elements)
        if noise is not None and noise.names:
            self._steps.append(noise.add_to)
        self._drawn = frozenset[str]() if noise is None else noise.names
        # Types are looked up once: a model of small layers runs in less time than that takes.
        self._specs = [
            (spec, spec.name, numpy_type(spec.dtype), spec.shape if _is_closed(spec) else None) for spec in specs
        ]
        # Of every input with open sizes: its number, its axes, and what reads the sizes that are known.
        self._open = [
            (number, len(spec.shape), *_known_sizes(spec.shape))
            for number, spec in enumerate(specs)
            if not _is_closed(spec)
        ]
        self._equal = _equal_sizes(specs)
        # Inputs with sizes that the model may leave open.
        self._one_set = {spec.name for spec in specs if (one_set or _is_closed(spec)) and not inner} - self._drawn
        self.seen: dict[tuple[tuple[int, ...], ...], int] = {}

    def arrays(self, feed: Mapping[str, Any]) -> list[Array]:
        """One array per input.

        Raises:
            UsageError: for a missing, unknown or misshapen input, one of another type, or inputs that differ in a size
                that they share.
        """
        try:
            for step in self._steps:
                feed = step(feed)
            if len(feed) > len(self._specs):
                self._refuse_unknown(feed)
            arrays = [
                array
                if isinstance(array := feed.get(name), np.ndarray)
                and array.dtype == dtype
                and (shape is None or array.shape == shape)
                else self._converted(feed, spec)
                for spec, name, dtype, shape in self._specs
            ]
        except (AttributeError, TypeError) as error:
            if isinstance(feed, Mapping):
                raise
            raise UsageError(
                f"input_feed is of type {type(feed).__name__}; give a mapping of input name to array"
            ) from error
        if self._open:
            self._check_sizes(arrays)
            self._count(arrays)
        return arrays

    def _count(self, arrays: Sequence[Array]) -> None:
        shapes = tuple(array.shape for array in arrays)
        if shapes in self.seen or len(self.seen) < MOST_SIZES:
            self.seen[shapes] = self.seen.get(shapes, 0) + 1

    def _check_sizes(self, arrays: Sequence[Array]) -> None:
        """Check the sizes of inputs that have open ones.

        Raises:
            UsageError: naming an input that does not fit the model, or two that do not fit each other.
        """
        for number, axes, read, known in self._open:
            shape = arrays[number].shape
            if len(shape) != axes or read(shape) != known:
                raise self._misshapen(self._specs[number][0], arrays[number])
        for symbol, (number, axis), others in self._equal:
            size = arrays[number].shape[axis]
            for other, place in others:
                if arrays[other].shape[place] != size:
                    one, two = self._specs[number][1], self._specs[other][1]
                    raise UsageError(
                        f"input {two!r} has size {arrays[other].shape[place]} on axis {place} and input {one!r} has "
                        f"size {size} on axis {axis}; both are {symbol!r}, so give equal ones"
                    )

    def _converted(self, feed: Mapping[str, Any], spec: Spec) -> Array:
        """Return the value that was fed for ``spec``, as an array."""
        self._refuse_unknown(feed)
        if spec.name not in feed:
            raise UsageError(
                f"input {spec.name!r} is missing; give an array of shape {_wanted(spec)} and type {spec.dtype}"
            )
        try:
            array = np.asarray(feed[spec.name])
        except (ValueError, TypeError, RuntimeError) as error:  # ragged rows, or an object that fails to become one
            raise UsageError(
                f"input {spec.name!r} cannot be made an array ({first_line(error)}); "
                f"give one of shape {_wanted(spec)} and type {spec.dtype}"
            ) from error
        if spec.dtype == STRINGS and array.dtype.kind == "U":
            array = array.astype(object)
        if (_is_closed(spec) and array.shape != spec.shape) or str(array.dtype) != spec.dtype:
            raise self._misshapen(spec, array)
        return array

    def _misshapen(self, spec: Spec, array: Array) -> UsageError:
        """Return the refusal of an array, with the option that builds for its shape if that may help."""
        have, built = f"shape {array.shape}", str(_wanted(spec))
        if str(array.dtype) != spec.dtype:
            have, built = f"{have} and type {array.dtype}", f"{built} and {spec.dtype}"
        elif spec.name in self._one_set and array.size and array.ndim == len(spec.shape):
            flag = shlex.quote(f"{spec.name}:{shape_text(array.shape)}")
            built = f"{built}; if the model leaves that size open, use 'tune run' with --input {flag}"
        return UsageError(f"input {spec.name!r} has {have}, the artifact was built for {built}")

    def _refuse_unknown(self, feed: Mapping[str, Any]) -> None:
        known = [spec.name for spec, *_ in self._specs if spec.name not in self._drawn]
        for name in feed:
            if name not in known and name not in self._drawn:
                raise UsageError(f"the model has no input {name!r}; {did_you_mean(name, known)}its inputs are {known}")


def _is_closed(spec: Spec) -> bool:
    """Return whether every size is known."""
    return all(isinstance(size, int) for size in spec.shape)


def _wanted(spec: Spec) -> object:
    """The shape of an input as messages have it."""
    return spec.shape if _is_closed(spec) else shape_text(spec.shape)


def _known_sizes(shape: Sequence[int | str]) -> tuple[Any, Any]:
    """A function that reads the known sizes from a shape, and what it has to return."""
    axes = [axis for axis, size in enumerate(shape) if isinstance(size, int)]
    read: Any = itemgetter(*axes) if axes else len
    return read, read(shape)


def _equal_sizes(specs: Sequence[Spec]) -> list[tuple[str, tuple[int, int], list[tuple[int, int]]]]:
    """Every open size that stands in several places: its name, its first (input, axis), and the others."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, spec in enumerate(specs):
        for axis, size in enumerate(spec.shape):
            if isinstance(size, str) and size != UNKNOWN:
                places.setdefault(size, []).append((number, axis))
    return [(symbol, first, others) for symbol, (first, *others) in places.items() if others]


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape as ``--input`` takes it: ``1x3x224x224``."""
    return "x".join(map(str, shape)) or "scalar"
