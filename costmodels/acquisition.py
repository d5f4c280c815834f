"""Acquisition: how much it is worth to measure a config, from its expected score and uncertainty.

Notation: n = number of configs; y* = incumbent score, z = (μ − y*) / σ,
h(z) = φ(z) + z·Φ(z). Larger scores are better, and so are larger acquisitions.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, ndtr

from costmodels.cost_model import Floats, Prediction

_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_LOG_HALF_PI_ROOT = 0.5 * float(np.log(np.pi / 2.0))
GAIN_TRIALS = np.array([1, 2, 4, 8, 16, 32, 64, 128])
"""Trials ahead of which ``expected_best_gains`` speaks."""

GAIN_POINTS = 32
"""Points of its integral: 48 and 400 differ by less than 1 % of a gain, 16 by 2 %."""

_FAR = -1e3
"""Below this z the middle branch's difference has lost its digits, and the power law is exact to 3/z²."""


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z**2 - _LOG_SQRT_2PI), dtype=np.float64)


def expected_improvement(prediction: Prediction, incumbent: float) -> Floats:
    """(n,) EI = σ·h(z) (Jones et al. 1998, equation 15); σ = 0 gives max(μ − y*, 0).

    Underflows to 0 beyond z ≈ −38: use ``log_expected_improvement`` to rank.
    """
    gain = prediction.mean - incumbent
    std = prediction.std
    z = gain / np.where(std > 0, std, 1.0)
    uncertain = np.maximum(gain * ndtr(z) + std * _density(z), 0.0)
    return np.where(std > 0, uncertain, np.maximum(gain, 0.0))


def log_h(z: Floats) -> Floats:
    """(n,) ln(φ(z) + z·Φ(z)), accurate from z = −1e150 to 1e150 (Ament et al. 2023, equation 9).

    Three branches: direct above −1; ln φ + ln(1 + z·Φ/φ) by erfcx below; the power law −z²/2 − 2·ln|z| far below.
    """
    z = np.asarray(z, dtype=np.float64)
    near = np.maximum(z, -1.0)
    direct = np.log(_density(near) + near * ndtr(near))
    middle = np.clip(z, _FAR, -1.0)
    # 1 + z·Φ(z)/φ(z) = 1 − |z|·√(π/2)·erfcx(|z|/√2), in (0, 1); the difference cancels, so it is taken in logs
    log_ratio = np.log(-middle) + _LOG_HALF_PI_ROOT + np.log(erfcx(-middle / np.sqrt(2.0)))
    tail = -0.5 * middle**2 - _LOG_SQRT_2PI + np.log(-np.expm1(np.minimum(log_ratio, -1e-300)))
    beyond = np.minimum(z, _FAR)
    far = -0.5 * beyond**2 - _LOG_SQRT_2PI - 2.0 * np.log(-beyond)
    return np.where(z > -1.0, direct, np.where(z > _FAR, tail, far))


def expected_best_gains(prediction: Prediction, chance: Floats) -> Floats:
    """(len(GAIN_TRIALS),) E[max(0, s₁ … s_m)] of the first m configs, for each m of ``GAIN_TRIALS``.

    E[max(0, s)] = ∫₀^∞ P(max s > x) dx with scores that are normal, independent and there if the config is valid, so
    P(max s ≤ x) = Π (1 − pᵢ·(1 − Φ((x − μᵢ) / σᵢ))).

    Args:
        prediction: scores above the incumbent's, of n ≥ 1 configs in the order in which they would be measured.
        chance: (n,) pᵢ.
    """
    most = GAIN_TRIALS[-1]
    mean, std, chance = prediction.mean[:most], np.maximum(prediction.std[:most], 1e-12), chance[:most]
    top = max(float(np.max(mean + 4.0 * std)), 0.0)
    step = top / GAIN_POINTS
    at = (np.arange(GAIN_POINTS) + 0.5)[:, None] * step
    below = np.cumprod(1.0 - chance * ndtr((mean - at) / std), axis=1)
    return np.asarray((1.0 - below).sum(axis=0)[np.minimum(GAIN_TRIALS, len(mean)) - 1] * step)


def log_expected_improvement(prediction: Prediction, incumbent: float) -> Floats:
    """(n,) ln EI = ln σ + ln h(z): ranks configs where EI itself underflows to zero."""
    std = np.maximum(prediction.std, 1e-12)
    return np.log(std) + log_h((prediction.mean - incumbent) / std)


def upper_confidence_bound(prediction: Prediction, kappa: float | Floats) -> Floats:
    """(n,) μ + κσ (Srinivas et al. 2010)."""
    return prediction.mean + kappa * prediction.std
