"""The eleven learning curves that DynaTune combines (from Domhan et al., IJCAI 2015).

Notation: x = trials (T,), θ = parameters (w, p) of w walkers, curve → (w, T). y rises with x.

Each curve carries the start of its parameters and their bounds, in the units of a curve that ends near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.cost_model import Floats


@dataclass(frozen=True)
class Curve:
    """One family of curves.

    Attributes:
        name: as in the released code.
        value: (x (T,), θ (w, p)) → (w, T).
        start: (p,) parameters to start from.
        low, high: (p,) bounds.
    """

    name: str
    value: Callable[[Floats, Floats], Floats]
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def _columns(theta: Floats) -> list[Floats]:
    """Each parameter as a column (w, 1)."""
    return [theta[:, index : index + 1] for index in range(theta.shape[1])]


def pow3(x: Floats, theta: Floats) -> Floats:
    """C − a·x^−α."""
    c, a, alpha = _columns(theta)
    return c - a * x**-alpha


def pow4(x: Floats, theta: Floats) -> Floats:
    """C − (a·x + b)^−α."""
    c, a, b, alpha = _columns(theta)
    return c - (a * x + b) ** -alpha


def log_power(x: Floats, theta: Floats) -> Floats:
    """A / (1 + (x / e^b)^c), c < 0."""
    a, b, c = _columns(theta)
    return a / (1.0 + (x / np.exp(b)) ** c)


def weibull(x: Floats, theta: Floats) -> Floats:
    """Α − (α − β)·e^−(κx)^δ."""
    alpha, beta, kappa, delta = _columns(theta)
    return alpha - (alpha - beta) * np.exp(-((kappa * x) ** delta))


def mmf(x: Floats, theta: Floats) -> Floats:
    """Morgan, Mercer and Flodin: α − (α − β) / (1 + (κx)^δ)."""
    alpha, beta, kappa, delta = _columns(theta)
    return alpha - (alpha - beta) / (1.0 + (kappa * x) ** delta)


def janoschek(x: Floats, theta: Floats) -> Floats:
    """A − (a − β)·e^(−k·x^δ)."""
    a, beta, k, delta = _columns(theta)
    return a - (a - beta) * np.exp(-k * x**delta)


def hill3(x: Floats, theta: Floats) -> Floats:
    """Θ·x^η / (κ^η + x^η)."""
    scale, eta, kappa = _columns(theta)
    return scale * x**eta / (kappa**eta + x**eta)


def loglog_linear(x: Floats, theta: Floats) -> Floats:
    """Ln(a·ln x + b)."""
    a, b = _columns(theta)
    return np.log(a * np.log(x) + b)


def exp4(x: Floats, theta: Floats) -> Floats:
    """C − e^(−a·x^α + b)."""
    c, a, b, alpha = _columns(theta)
    return c - np.exp(-a * x**alpha + b)


def vapor_pressure(x: Floats, theta: Floats) -> Floats:
    """E^(a + b/x + c·ln x)."""
    a, b, c = _columns(theta)
    return np.exp(a + b / x + c * np.log(x))


def ilog2(x: Floats, theta: Floats) -> Floats:
    """C − a / ln(1 + x)."""
    c, a = _columns(theta)
    return c - a / np.log(1.0 + x)


CURVES: tuple[Curve, ...] = (
    Curve("pow3", pow3, (1.1, 0.5, 0.3), (0.0, 0.0, 0.01), (3.0, 3.0, 4.0)),
    Curve("pow4", pow4, (1.1, 1.0, 1.0, 0.5), (0.0, 1e-3, 1e-3, 0.01), (3.0, 200.0, 20.0, 4.0)),
    Curve("log_power", log_power, (1.1, 0.5, -0.5), (0.0, -6.0, -5.0), (3.0, 8.0, -0.01)),
    Curve("weibull", weibull, (1.05, 0.4, 0.1, 0.7), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 3.0)),
    Curve("mmf", mmf, (1.1, 0.3, 0.1, 0.7), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 5.0)),
    Curve("janoschek", janoschek, (1.05, 0.4, 0.2, 0.5), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 3.0)),
    Curve("hill3", hill3, (1.1, 0.6, 1.5), (0.0, 0.01, 1e-3), (3.0, 5.0, 100.0)),
    Curve("loglog_linear", loglog_linear, (0.3, 1.8), (1e-3, 1.01), (5.0, 5.0)),
    Curve("exp4", exp4, (1.05, 0.8, -0.4, 0.3), (0.0, 1e-3, -3.0, 0.05), (3.0, 5.0, 2.0, 3.0)),
    Curve("vap", vapor_pressure, (0.0, -0.4, 0.01), (-4.0, -3.0, 0.0), (1.0, 0.5, 1.5)),
    Curve("ilog2", ilog2, (1.2, 0.5), (0.0, 0.0), (3.0, 3.0)),
)

BY_NAME: dict[str, Curve] = {curve.name: curve for curve in CURVES}
