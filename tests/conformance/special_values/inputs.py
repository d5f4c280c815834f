"""Inputs with NaN, infinities, zeros of both signs, denormals and extremes: a name, and the values under that name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Pattern = Callable[[Floats, np.random.Generator, int], None]
"""(values, rng, number of the input): change standard normal ``values`` in place."""

NAN, INF, LARGEST = np.float32(np.nan), np.float32(np.inf), np.finfo(np.float32).max
LEAST_NORMAL, LEAST = np.finfo(np.float32).tiny, np.float32(1e-45)
SHARE = 16
"""One element of this many is special in a mixture."""


def _put(values: Floats, rng: np.random.Generator, *specials: float) -> None:
    """Put each of ``specials`` at a random position."""
    flat = values.reshape(-1)
    places = rng.permutation(flat.size)[: len(specials)]
    flat[places] = np.asarray(specials, np.float32)[: places.size]


def _spread(values: Floats, rng: np.random.Generator, *specials: float) -> None:
    """Put random ones of ``specials`` at one position of ``SHARE``."""
    chosen = rng.random(values.shape) < 1 / SHARE
    values[chosen] = rng.choice(np.asarray(specials, np.float32), int(chosen.sum()))


def _row(values: Floats, rng: np.random.Generator, special: float) -> None:
    """Fill one row along the last axis."""
    rows = values.reshape(-1, values.shape[-1])
    rows[int(rng.integers(len(rows)))] = special


def _fill(special: float) -> Pattern:
    def fill(values: Floats, rng: np.random.Generator, number: int) -> None:
        values[...] = special

    return fill


def _one(special: float, number: int = 0) -> Pattern:
    """One special value in one of the inputs, the only one where there is no such input."""

    def put(values: Floats, rng: np.random.Generator, at: int) -> None:
        if at == number:
            _put(values, rng, special)

    return put


def _mixed(*specials: float) -> Pattern:
    return lambda values, rng, number: _spread(values, rng, *specials)


def _opposed(values: Floats, rng: np.random.Generator, number: int) -> None:
    """Infinities that meet in ∞ − ∞: of one sign in even inputs, of the other in odd ones."""
    values.reshape(-1)[::3] = -INF if number % 2 else INF


def _zero_and_infinity(values: Floats, rng: np.random.Generator, number: int) -> None:
    """Infinities that meet zeros in 0 · ∞."""
    values.reshape(-1)[::3] = INF if number % 2 else 0.0


def _scales(values: Floats, rng: np.random.Generator, number: int) -> None:
    values *= 10.0 ** rng.uniform(-30, 30, values.shape).astype(np.float32)


def _ties(values: Floats, rng: np.random.Generator, number: int) -> None:
    """Halves: roundings to even, equal elements."""
    values[...] = np.round(values * 8) / 2


def _infinite_row(values: Floats, rng: np.random.Generator, number: int) -> None:
    _row(values, rng, -INF)
    _put(values, rng, INF)


def _nan_beside_infinity(values: Floats, rng: np.random.Generator, number: int) -> None:
    _put(values, rng, NAN, INF, -INF, 0.0, -0.0)


def _any_nan(values: Floats, rng: np.random.Generator, number: int) -> None:
    """Of both signs and any payload, the largest one among them: a carry out of it would make a number."""
    bits = values.reshape(-1).view(np.uint32)
    places = rng.permutation(bits.size)[:4]
    bits[places] = [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001, 0xFFC00000][: places.size]


PATTERNS: Mapping[str, Pattern] = {
    "one NaN": _one(NAN),
    "one NaN in the second input": _one(NAN, 1),
    "all NaN": _fill(NAN),
    "one +inf": _one(INF),
    "one -inf": _one(-INF),
    "all +inf": _fill(INF),
    "all -inf": _fill(-INF),
    "NaN of any bits": _any_nan,
    "both infinities": _mixed(INF, -INF),
    "inf - inf": _opposed,
    "0 * inf": _zero_and_infinity,
    "a row of -inf": _infinite_row,
    "NaN next to infinity": _nan_beside_infinity,
    "zeros of both signs": _mixed(0.0, -0.0),
    "negative zero": _fill(-0.0),
    "denormals": _mixed(1e-40, -1e-40, LEAST, -LEAST),
    "least normal": _mixed(LEAST_NORMAL, -LEAST_NORMAL, 1e-38, -1e-38),
    "largest": _mixed(LARGEST, -LARGEST),
    "a row of 3e38": lambda values, rng, number: _row(values, rng, 3e38),
    "beyond exp": _mixed(88.0, -86.0, 88.6, 89.0, -104.0, 1000.0, -1000.0),
    "negative": lambda values, rng, number: np.negative(np.abs(values) + 1, out=values),
    "scales": _scales,
    "ties": _ties,
    "everything": _mixed(NAN, INF, -INF, 0.0, -0.0, 1e-40, LARGEST, -LARGEST, 1e3, -1e3),
}


LARGE = frozenset({"largest", "a row of 3e38", "scales", "everything"})
"""Patterns whose sums and products may be beyond the largest number."""


def feed(pattern: str, shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Floats]:
    """Float inputs of ``shapes`` with ``pattern``, the same ones for a seed."""
    rng = np.random.default_rng([seed, list(PATTERNS).index(pattern)])
    arrays = {}
    for number, (name, shape) in enumerate(shapes.items()):
        values = rng.standard_normal(shape, dtype=np.float32)
        PATTERNS[pattern](values, rng, number)
        arrays[name] = values
    return arrays
