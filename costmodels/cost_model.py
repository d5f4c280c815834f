"""CostModel: what we expect of a config before measuring it.

Notation: n = number of configs, d = number of features.
A model is fitted on scores y, larger is better; the searchers use y = ln(1 / latency in seconds), so that a
difference of 0.05 is a speed ratio of 5 % on every task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schedules.vocabulary.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Expected score and its standard deviation.

    Attributes:
        mean: (n,).
        std: (n,), never negative.
    """

    mean: Floats
    std: Floats

    def __post_init__(self) -> None:
        if self.mean.shape != self.std.shape or self.mean.ndim != 1:
            raise UsageError(f"mean {self.mean.shape} and std {self.std.shape} must be one-dimensional and alike")


@runtime_checkable
class CostModel(Protocol):
    """A regression with an uncertainty. Follows scikit-learn: ``fit`` returns self, fitted attributes end in ``_``."""

    def fit(self, features: Floats, scores: Floats) -> Self:
        """Learn from ``features`` (n, d) and ``scores`` (n,), n ≥ 1; earlier fits are forgotten."""
        ...

    def predict(self, features: Floats) -> Prediction:
        """Expect for ``features`` (n, d).

        Raises:
            UsageError: before ``fit``.
        """
        ...
