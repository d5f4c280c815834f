"""The eleven learning curves that DynaTune combines (from Domhan et al., IJCAI 2015).

Notation: x = trials (T,), θ = parameters (w, p) of w walkers, curve → (w, T). y rises with x.

Each curve has starting values of its parameters and their bounds, in the units of a curve that ends near 1.
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
        formula: x (T,) and each parameter as a column (w, 1) → (w, T).
        start: (p,) parameters to start from.
        low, high: (p,) bounds.
    """

    formula: Callable[..., Floats]
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def value(self, x: Floats, theta: Floats) -> Floats:
        """(w, T) the curve at ``x`` (T,) for every row of ``theta`` (w, p)."""
        return self.formula(x, *(theta[:, index : index + 1] for index in range(theta.shape[1])))


CURVES: dict[str, Curve] = {
    "pow3": Curve(
        lambda x, c, a, alpha: c - a * x**-alpha,
        (1.1, 0.5, 0.3), (0.0, 0.0, 0.01), (3.0, 3.0, 4.0),
    ),
    "pow4": Curve(
        lambda x, c, a, b, alpha: c - (a * x + b) ** -alpha,
        (1.1, 1.0, 1.0, 0.5), (0.0, 1e-3, 1e-3, 0.01), (3.0, 200.0, 20.0, 4.0),
    ),
    "log_power": Curve(
        lambda x, a, b, c: a / (1.0 + (x / np.exp(b)) ** c),
        (1.1, 0.5, -0.5), (0.0, -6.0, -5.0), (3.0, 8.0, -0.01),
    ),
    "weibull": Curve(
        lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) * np.exp(-((kappa * x) ** delta)),
        (1.05, 0.4, 0.1, 0.7), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 3.0),
    ),
    # Morgan, Mercer and Flodin
    "mmf": Curve(
        lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) / (1.0 + (kappa * x) ** delta),
        (1.1, 0.3, 0.1, 0.7), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 5.0),
    ),
    "janoschek": Curve(
        lambda x, a, beta, k, delta: a - (a - beta) * np.exp(-k * x**delta),
        (1.05, 0.4, 0.2, 0.5), (0.0, 0.0, 1e-4, 0.05), (3.0, 1.5, 5.0, 3.0),
    ),
    "hill3": Curve(
        lambda x, scale, eta, kappa: scale * x**eta / (kappa**eta + x**eta),
        (1.1, 0.6, 1.5), (0.0, 0.01, 1e-3), (3.0, 5.0, 100.0),
    ),
    "loglog_linear": Curve(
        lambda x, a, b: np.log(a * np.log(x) + b),
        (0.3, 1.8), (1e-3, 1.01), (5.0, 5.0),
    ),
    "exp4": Curve(
        lambda x, c, a, b, alpha: c - np.exp(-a * x**alpha + b),
        (1.05, 0.8, -0.4, 0.3), (0.0, 1e-3, -3.0, 0.05), (3.0, 5.0, 2.0, 3.0),
    ),
    # vapour pressure
    "vap": Curve(
        lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)),
        (0.0, -0.4, 0.01), (-4.0, -3.0, 0.0), (1.0, 0.5, 1.5),
    ),
    "ilog2": Curve(
        lambda x, c, a: c - a / np.log(1.0 + x),
        (1.2, 0.5), (0.0, 0.0), (3.0, 3.0),
    ),
}  # fmt: skip
"""By the released code's names."""
