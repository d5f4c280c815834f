"""ln of the expected improvement, which ranks configs where the improvement itself underflows to zero.

Notation: y* = incumbent score, z = (μ − y*) / σ, h(z) = φ(z) + z·Φ(z), so that EI = σ·h(z).
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, ndtr

from costmodels.cost_model import Floats, Prediction

_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_LOG_HALF_PI_ROOT = 0.5 * float(np.log(np.pi / 2.0))
_FAR = -1e3
"""Below this z the middle branch's difference has lost its digits, and the power law is exact to 3/z²."""


def log_h(z: Floats) -> Floats:
    """(n,) ln(φ(z) + z·Φ(z)), accurate from z = −1e150 to 1e150 (Ament et al. 2023, equation 9).

    Three branches: direct above −1; ln φ + ln(1 + z·Φ/φ) by erfcx below; the power law −z²/2 − 2·ln|z| far below.
    """
    z = np.asarray(z, dtype=np.float64)
    near = np.maximum(z, -1.0)
    direct = np.log(np.exp(-0.5 * near**2 - _LOG_SQRT_2PI) + near * ndtr(near))
    middle = np.clip(z, _FAR, -1.0)
    # 1 + z·Φ(z)/φ(z) = 1 − |z|·√(π/2)·erfcx(|z|/√2), in (0, 1); the difference cancels, so it is taken in logs
    log_ratio = np.log(-middle) + _LOG_HALF_PI_ROOT + np.log(erfcx(-middle / np.sqrt(2.0)))
    tail = -0.5 * middle**2 - _LOG_SQRT_2PI + np.log(-np.expm1(np.minimum(log_ratio, -1e-300)))
    beyond = np.minimum(z, _FAR)
    far = -0.5 * beyond**2 - _LOG_SQRT_2PI - 2.0 * np.log(-beyond)
    return np.where(z > -1.0, direct, np.where(z > _FAR, tail, far))


def log_expected_improvement(prediction: Prediction, incumbent: float) -> Floats:
    """(n,) ln EI = ln σ + ln h(z): ranks configs where EI itself underflows to zero."""
    std = np.maximum(prediction.std, 1e-12)
    return np.log(std) + log_h((prediction.mean - incumbent) / std)
