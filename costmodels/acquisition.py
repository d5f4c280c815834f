"""Acquisition: how much it is worth to measure a config, from its expected score and uncertainty.

Notation: n = number of configs; y* = incumbent score, z = (μ − y*) / σ,
h(z) = φ(z) + z·Φ(z). Larger scores are better, and so are larger acquisitions.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from costmodels.cost_model import Floats, Prediction

_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z**2 - _LOG_SQRT_2PI), dtype=np.float64)


def expected_improvement(prediction: Prediction, incumbent: float) -> Floats:
    """(n,) EI = σ·h(z) (Jones et al. 1998, equation 15); σ = 0 gives max(μ − y*, 0)."""
    gain = prediction.mean - incumbent
    std = prediction.std
    z = gain / np.where(std > 0, std, 1.0)
    uncertain = np.maximum(gain * ndtr(z) + std * _density(z), 0.0)
    return np.where(std > 0, uncertain, np.maximum(gain, 0.0))


def upper_confidence_bound(prediction: Prediction, kappa: float | Floats) -> Floats:
    """(n,) μ + κσ (Srinivas et al. 2010)."""
    return prediction.mean + kappa * prediction.std
