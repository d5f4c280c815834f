"""Calibration of a model's standard deviations from errors on rows it did not see.

Notation: n = held-out rows.
"""

from __future__ import annotations

import numpy as np

from costmodels.cost_model import Floats

LEVEL = 0.8
"""Probability of the interval that is made right. Convention."""

LEVEL_Z = 1.2815515655446004
"""Half width of a standard normal's 80 % interval, in standard deviations."""

PRIOR_ROWS = 10.0
"""Held-out rows that weigh as much as the prior, a scale of 1. Heuristic, not measured."""

MOST = 4.0
"""Largest scale: beyond it the model itself is wrong. Heuristic, not measured."""


def conformal_scale(errors: Floats, stds: Floats) -> float:
    """Factor by which ``stds`` must grow so that 80 % intervals cover 80 % of ``errors``, both (n,).

    The 80 % quantile of |error| / std over a standard normal's: conformal prediction with normalised residuals
    (Papadopoulos et al. 2008). Departures: the plain quantile, as the guarantee's ⌈(n + 1)·0.8⌉-th smallest covers
    nine in ten at the n of a search; and drawn towards 1 with the weight of ``PRIOR_ROWS`` rows, within [1/4, 4].
    """
    if not len(errors):
        return 1.0
    half = float(np.quantile(np.abs(errors) / stds, LEVEL))
    scale = float(np.clip(half / LEVEL_Z, 1.0 / MOST, MOST))
    return float(np.exp(np.log(scale) * len(errors) / (len(errors) + PRIOR_ROWS)))
