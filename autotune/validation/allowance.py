"""How far right outputs may be from the reference's: what the model's own arithmetic is worth.

Notation: x exact outputs, or the reference's where there are none; s samples, outputs of the same model computed in
other ways that are as right; y ours; t the fixed tolerance ATOL + RTOL·|x|; F is FACTOR. Norms are over the elements of
one output. y is right if its errors, e = y − x, are not above t or F times those of the worst sample, d = s − x:

    every element    |e| ≤ max(t, F · max|d|)
    on the whole     rms e ≤ max(rms t, F_RMS · rms d)
    a shift          |mean e| ≤ max(mean t, F · max(|mean d|, rms d / √n))
    a stretch        |g(e)| ≤ max(RTOL · σ, F · max(|g(d)|, rms(d · z) / √n)),   g(e) = mean(e · z)

with n the number of elements, σ the standard deviation of x, and z = (x − mean x) / σ. The first lets a quantum differ
here and there. The others see what is wrong everywhere by less than that: a wrong zero point shifts, a wrong scale
stretches, where right roundings have no sign. The mean of n numbers without a sign is some of their rms / √n; a sample
whose mean is smaller by luck is given that. Probabilities are a few large numbers whose errors are as large, so that
rms(d · z) is many times rms d there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.dtypes import is_short_float

Array = NDArray[Any]
Doubles = NDArray[np.float64]

RTOL, ATOL = 1e-3, 1e-5
"""The tolerances of ONNX's own suite, with the absolute one that onnxruntime uses."""

FACTOR = 3.0
RMS_FACTOR = 2.0
"""How much farther from exact than the worst sample outputs may be: single elements and sums of signs vary more than an
output's rms. Seen of right artifacts: 1.5 (2.1 where there was one sample) and 1.1; docs/lab: correctness."""

WHOLE = {"rms": RMS_FACTOR, "shift": FACTOR, "stretch": FACTOR}
"""Fields of ``_Errors`` about an output as a whole, and their factors."""

ORDERED_BYTES = 2
"""Integers of so many bytes are numbers that were rounded; wider ones are indices, of which only equality counts."""


@dataclass(frozen=True)
class Allowance:
    """The model's outputs computed in ways that are all right.

    Attributes:
        exact: every output in 64 bits, or the reference's where ``reason`` is given.
        samples: every output, in each of several other ways; shapes as in ``exact``.
        reason: why the model was not computed in 64 bits; empty if it was.
        short: the precision that operands of the samples were rounded to; ``exact`` is the reference's then.
    """

    exact: Sequence[Array]
    samples: Sequence[Sequence[Array]]
    reason: str = ""
    short: str = ""

    @property
    def bound(self) -> str:
        """``fp64``, ``spread`` where there is no result in 64 bits, or the precision that operands are rounded to."""
        return self.short or ("spread" if self.reason else "fp64")

    def words(self, reference: str) -> str:
        """Describe the errors that are allowed besides t, for people; ``reference`` is the engine's name."""
        largest = max((_errors(*pair).largest for sample in self.samples for pair in self._pairs(sample)), default=0.0)
        if self.short:
            distance = f"that operands rounded to {self.short} make in {reference}, {largest:.2g}"
        elif self.reason:
            way = "without its optimiser on one thread" if len(self.samples) == 1 else "without rounded activations"
            distance = f"between {reference} as it is and {way}, {largest:.2g} (not in 64 bits: {self.reason})"
        else:
            distance = f"of {reference} and of other right roundings from 64-bit arithmetic, {largest:.2g}"
        return f"or {FACTOR:g} times the distance {distance}"

    def accepts(self, number: int, ours: Array) -> bool:
        """Return whether ``ours`` is as right as the samples.

        Args:
            number: of the output.
            ours: of the output's shape and type.
        """
        exact = self.exact[number]
        if not _comparable(exact, ours) or not all(_comparable(exact, sample[number]) for sample in self.samples):
            return False
        samples = [_errors(exact, sample[number], chance=True) for sample in self.samples]
        finite = [errors for errors in samples if math.isfinite(errors.largest)]
        worst = {name: max((float(getattr(errors, name)) for errors in finite), default=0.0) for name in WHOLE}
        mine, floors = _errors(exact, ours), _floors(exact)
        elements = np.maximum(fixed(exact), FACTOR * max((errors.largest for errors in finite), default=0.0))
        return bool(np.all(mine.absolute <= elements)) and all(
            getattr(mine, name) <= max(floors[name], factor * worst[name]) for name, factor in WHOLE.items()
        )

    def _pairs(self, sample: Sequence[Array]) -> list[tuple[Array, Array]]:
        return [(x, s) for x, s in zip(self.exact, sample, strict=True) if _comparable(x, s)]


@dataclass(frozen=True)
class _Errors:
    """Errors e of one output: |e| of every element, and the left sides of the module's docstring."""

    absolute: Doubles
    largest: float
    rms: float
    shift: float
    stretch: float


def fixed(exact: Array) -> Doubles:
    """t of every element: the fixed tolerance of floats, 0 of integers."""
    if exact.dtype.kind in "biu":
        return np.zeros(exact.shape)
    return np.asarray(ATOL + RTOL * np.abs(_finite(exact)))


def _floors(exact: Array) -> dict[str, float]:
    """Return the errors that t allows on the whole, by names of ``WHOLE``."""
    tolerance = fixed(exact)
    if not tolerance.any():
        return dict.fromkeys(WHOLE, 0.0)
    rms, mean = float(np.sqrt(np.mean(tolerance**2))), float(np.mean(tolerance))
    return dict(zip(WHOLE, (rms, mean, RTOL * _deviation(exact)), strict=True))


def _comparable(one: Array, other: Array) -> bool:
    """Return whether both are numbers, of the same shape."""
    return one.shape == other.shape and all(
        array.dtype.kind in "fbiu" or is_short_float(array.dtype) for array in (one, other)
    )


def _errors(exact: Array, other: Array, chance: bool = False) -> _Errors:
    """Errors of ``other``, an array of the same shape.

    Args:
        chance: whether shift and stretch are at least what errors without a sign add up to.
    """
    x, y = exact.astype(np.float64), other.astype(np.float64)
    e = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, math.inf)
    both = np.isfinite(x) & np.isfinite(y)
    e[both] = y[both] - x[both]
    if exact.dtype.kind in "biu" and exact.dtype.itemsize > ORDERED_BYTES:
        e = (exact != other).astype(np.float64)
    if not e.size or not np.all(np.isfinite(e)):
        worst = math.inf if e.size else 0.0
        return _Errors(np.abs(e), worst, worst, worst, worst)
    deviation, centred = _deviation(exact), _finite(exact) - np.mean(_finite(exact))
    stretched = e * centred / deviation if deviation else np.zeros_like(e)
    rms, shift, stretch = _rms(e), abs(float(e.mean())), abs(float(stretched.mean()))
    if chance:
        shift, stretch = max(shift, _rms(e) / math.sqrt(e.size)), max(stretch, _rms(stretched) / math.sqrt(e.size))
    return _Errors(np.abs(e), float(np.abs(e).max()), rms, shift, stretch)


def _rms(array: Doubles) -> float:
    return float(np.sqrt(np.mean(array * array)))


def _finite(array: Array) -> Doubles:
    """``array`` with 0 for what is not a number."""
    return np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _deviation(array: Array) -> float:
    return float(np.std(_finite(array)))
