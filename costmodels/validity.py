"""Failure model: how likely a config is to build and run, apart from how fast it is.

Notation: n = configs tried, m = configs asked about, d = features.

A kernel-weighted vote of the tried configs near by, with a prior of the overall rate: P = (r + Σ k·v) / (1 + Σ k),
where k fades with the squared distance in features scaled to unit range. Failures of kernels sit in corners of the
space (too much unrolling, tiles too large), which a vote finds from a handful of examples; it needs no fitting and
cannot diverge.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from costmodels.single_thread import single_thread

REACH = 0.01
"""Mean squared distance per feature, in ranges squared, at which a vote has faded to 1/e. Heuristic, not measured."""

STRENGTH = 6.0
"""Weight of a vote at distance 0, in units of the prior's. Heuristic, not measured."""

LEAST = 0.02
"""Least chance: votes of other configs prove nothing. Heuristic, not measured."""


class Validity:
    """P(valid) from what was tried."""

    def __init__(self) -> None:
        self._features = np.zeros((0, 0))
        self._votes = np.zeros(0)

    def fit(self, features: Floats, valid: NDArray[np.bool_]) -> Validity:
        """Learn from ``features`` (n, d) and whether each was ``valid`` (n,)."""
        self._features = features
        self._votes = valid.astype(np.float64)
        return self

    @single_thread
    def probability(self, features: Floats) -> Floats:
        """(m,) chance that each config is valid; 1 while no failure was seen."""
        if self._votes.all():
            return np.ones(len(features))
        spans = np.ptp(np.concatenate([features, self._features]), axis=0)
        unit = np.where(spans > 0, spans, 1.0) * np.sqrt(features.shape[1])
        asked, told = features / unit, self._features / unit
        squares = (asked**2).sum(axis=1)[:, None] + (told**2).sum(axis=1)[None, :] - 2.0 * asked @ told.T
        near = STRENGTH * np.exp(-np.maximum(squares, 0.0) / REACH)
        rate = (self._votes.sum() + 1.0) / (len(self._votes) + 1.0)
        chance = (rate + near @ self._votes) / (1.0 + near.sum(axis=1))
        return np.asarray(np.maximum(chance, LEAST), dtype=np.float64)
