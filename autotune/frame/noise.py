"""Inputs that a session fills: the random numbers that a model draws, and which positions of a padded call count.

An operator that draws becomes arithmetic on an input of standard normal or uniform numbers
(``importer/conversion/noise_inputs.py``). The name of the input says what it holds, so it reaches kernels, parts, C
libraries and the reference engine like any other input. Where a caller feeds it, nothing is drawn for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.interface import OpenSpec, TensorSpec
from schedules.vocabulary.errors import UsageError

PREFIX = "tune.noise/"
"""Begin of the names of noise: ``tune.noise/normal/x``, and ``tune.noise/normal/7/x`` of the seed 7."""

NORMAL, UNIFORM = "normal", "uniform"
"""Kinds of noise: mean 0 and deviation 1, and at least 0 and below 1."""

LIVE = "live"
"""Kind of an input that is one at every position of a call, so that zeros stand where a set of shapes is larger
(``importer/live/live_ranges.py``). It is filled like noise, and draws nothing."""

Array = NDArray[Any]
Spec = TypeVar("Spec", TensorSpec, OpenSpec, TensorSpec | OpenSpec)


class Noise(NamedTuple):
    """The contents of an input of noise; ``seed`` is that of the model's operator, None where it has none."""

    kind: str
    seed: int | None


def noise_name(kind: str, seed: int | None, stem: str) -> str:
    """Return the name of an input of noise for the value ``stem``."""
    return f"{PREFIX}{kind}/{stem}" if seed is None else f"{PREFIX}{kind}/{seed}/{stem}"


def live_name(symbol: str) -> str:
    """Return the name of the input that says which positions along the open size ``symbol`` count."""
    return f"{PREFIX}{LIVE}/{symbol}"


def is_live(name: str) -> bool:
    """Return whether the input ``name`` says which positions count."""
    return name.startswith(live_name(""))


def live_symbol(name: str) -> str:
    """Return the open size of such an input."""
    return name.removeprefix(live_name(""))


def live_sizes(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the open sizes, by symbol, that have such inputs among ``shapes``."""
    return {live_symbol(name): int(shape[0]) for name, shape in shapes.items() if is_live(name)}


def noise_of(name: str) -> Noise | None:
    """Return what the input ``name`` holds; None for an input that is no noise."""
    if not name.startswith(PREFIX):
        return None
    kind, _, rest = name.removeprefix(PREFIX).partition("/")
    seed, slash, _ = rest.partition("/")
    return Noise(kind, int(seed)) if slash and seed.isdecimal() else Noise(kind, None)


def without_noise(specs: Sequence[Spec]) -> list[Spec]:
    """Return the inputs that a caller feeds."""
    return [spec for spec in specs if noise_of(spec.name) is None]


def draw(kind: str, generator: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Draw an array of noise of float32 or float64; ones of the kind ``LIVE``."""
    if kind == LIVE:
        return np.ones(tuple(shape), np.dtype(dtype))
    drawn = generator.standard_normal if kind == NORMAL else generator.random
    return np.asarray(drawn(tuple(shape), np.dtype(dtype)))


class NoiseSource:
    """Draws the noise of a session. Safe to call from several threads.

    Every input of noise has a generator of its own. An operator with a seed has the same stream in every session.

    Args:
        specs: inputs of the kernels; those that are no noise are only looked at for their sizes.
        seed: of the operators without one; None draws other numbers in every session.
        sizes: finds the shape of every input from those that a caller feeds, by name, where names of sizes do not say
            it.

    Raises:
        UsageError: if ``seed`` is negative or no whole number.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec | OpenSpec],
        seed: int | None,
        sizes: Callable[[Mapping[str, tuple[int, ...]]], Mapping[str, Sequence[int]]],
    ) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise UsageError(f"seed is {seed!r}; it must be a whole number, at least 0, or None")
        self._seed, self._sizes = seed, sizes
        self._given = without_noise(specs)
        self._noise = [(spec, known) for spec in specs if (known := noise_of(spec.name)) is not None]
        self.names = frozenset(spec.name for spec, _ in self._noise)
        self.renew()

    def renew(self) -> None:
        """Begin again in the child of a fork: numbers without a seed are other ones than the parent's."""
        self._lock = threading.Lock()
        own = np.random.SeedSequence(self._seed).spawn(len(self._noise))
        self._generators = [
            np.random.default_rng(child if known.seed is None else known.seed)
            for child, (_, known) in zip(own, self._noise, strict=True)
        ]

    def add_to(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``feed`` with noise for every input of noise that it leaves out.

        Raises:
            UsageError: if the sizes of the noise do not follow from ``feed``.
        """
        filled = {**feed}
        left = [number for number, (spec, _) in enumerate(self._noise) if spec.name not in filled]
        if not left or any(own.name not in filled for own in self._given):  # what is missing is named elsewhere
            return filled
        shapes = [self._shape(self._noise[number][0], feed) for number in left]
        with self._lock:
            for number, shape in zip(left, shapes, strict=True):
                spec, known = self._noise[number]
                filled[spec.name] = draw(known.kind, self._generators[number], shape, spec.dtype)
        return filled

    def _shape(self, spec: TensorSpec | OpenSpec, feed: Mapping[str, Any]) -> tuple[int, ...]:
        """The shape of an input of noise."""
        if all(isinstance(size, int) for size in spec.shape):
            return tuple(int(size) for size in spec.shape)
        shapes = {own.name: getattr(feed[own.name], "shape", ()) for own in self._given}
        known = {
            name: size
            for own in self._given
            for name, size in zip(own.shape, shapes[own.name], strict=False)
            if isinstance(name, str)
        }
        if all(isinstance(size, int) or size in known for size in spec.shape):
            return tuple(size if isinstance(size, int) else known[size] for size in spec.shape)
        return tuple(self._sizes(shapes)[spec.name])
