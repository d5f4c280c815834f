"""The Matérn kernel of smoothness 5/2, in NumPy alone: SciPy's optimiser, which a Gaussian process needs, loads slowly.

Notation: n, m = rows, d = features.
"""

from __future__ import annotations

import numpy as np

from costmodels.cost_model import Floats


def distances(left: Floats, right: Floats) -> Floats:
    """(n, m) Euclidean distances between rows of ``left`` and ``right``."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2.0 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)), dtype=np.float64)


def matern52(distance: Floats) -> tuple[Floats, Floats]:
    """Matérn 5/2 at ``distance``, and −(dM52/dr)/r there."""
    scaled = np.sqrt(5.0) * distance
    fading = np.exp(-scaled)
    return (1.0 + scaled + scaled**2 / 3.0) * fading, (5.0 / 3.0) * (1.0 + scaled) * fading
