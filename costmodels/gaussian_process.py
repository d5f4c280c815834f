"""Gaussian process for small data.

Notation: n = training rows, m = predicted rows, d = features; a, b index rows.

    k(a, b) = s² · M52(r_ab) + c² + σ²·[a = b],   r² = Σ_j (x_aj − x_bj)² / ℓ_j²

M52 is the Matérn kernel of smoothness 5/2, x_j feature j over its range, and c² the prior variance of the mean. Scores
are ln(1 / latency), so the priors of s and σ are in shares of a latency: s about 0.5, σ about 2 %. ln ℓ, ln s and ln σ
have normal priors and are set to their posterior mode by L-BFGS with analytic gradients (Rasmussen and Williams 2006,
equation 5.9).

scikit-learn's regressor takes half a second for 200 × 20: it builds (n, n, d) arrays.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from costmodels.calibration import conformal_scale
from costmodels.cost_model import CostModel, Floats, Prediction
from costmodels.matern import distances, matern52
from costmodels.single_thread import single_thread
from schedules.vocabulary.errors import UsageError

LEVEL_VARIANCE = 0.1
"""c² in scores². Heuristic: the mean of a few configs is off by about a third."""

SIGNAL, NOISE = 0.5, 0.02
"""Centres of the priors of s and σ, in scores. Heuristic, not measured."""

MOST_ROWS = 400
"""Rows kept in the posterior. Heuristic: a Cholesky factor of more costs more than a trial."""

SEARCH_ROWS = 160
"""Rows on which the hyperparameters are set. Heuristic, not measured."""

STEPS = 25
"""Steps of L-BFGS. Heuristic: a fit of 200 × 20 then takes 40 ms."""

OPTIMISM = 4.0
"""Rows by which ``fit`` corrects errors that are too small; set on held-out rows of made-up kernels."""

_JITTER = 1e-8
"""Share of 1 + s² added to the diagonal for a stable Cholesky factor: rounding errors of the kernel grow with s², and
the search for the hyperparameters tries large s with small σ."""


def _diagonal(signal: float, noise: float) -> float:
    """Return the addend of the kernel's diagonal: σ² and what keeps its Cholesky factor stable."""
    return noise + _JITTER * (1.0 + signal)


def _prior(width: int) -> tuple[Floats, Floats]:
    """Centres and standard deviations (d + 2,) of ln ℓ, ln s, ln σ; distances grow with √d, and so do the scales."""
    centre = np.concatenate([np.full(width, np.log(0.6 * np.sqrt(width))), np.log([SIGNAL, NOISE])])
    return centre, np.concatenate([np.full(width, 1.0), [0.6, 0.6]])


def negative_log_posterior(vector: Floats, inputs: Floats, scores: Floats) -> tuple[float, Floats]:
    """Return the value for the hyperparameters ``vector`` (d + 2,): ln ℓ, ln s, ln σ; and its gradient (d + 2,).

    Args:
        vector: the hyperparameters.
        inputs: (n, d) features in units of their ranges.
        scores: (n,) centred.
    """
    count = len(scores)
    signal, noise = np.exp(2.0 * vector[-2:])
    scaled = inputs / np.exp(vector[:-2])
    matern, slope = matern52(distances(scaled, scaled))
    factor = np.linalg.cholesky(signal * matern + LEVEL_VARIANCE + _diagonal(signal, noise) * np.eye(count))
    inverse = cho_solve((factor, True), np.eye(count), check_finite=False)
    weights = inverse @ scores
    push = np.outer(weights, weights) - inverse
    bent = push * slope * signal
    by_scale = (scaled**2 * bent.sum(axis=1)[:, None]).sum(axis=0) - (scaled * (bent @ scaled)).sum(axis=0)
    gradient = np.concatenate([by_scale, [float((push * matern).sum()) * signal, float(np.trace(push)) * noise]])
    fit = 0.5 * float(scores @ weights) + float(np.log(np.diag(factor)).sum())
    centre, widths = _prior(inputs.shape[1])
    pull = (vector - centre) / widths
    return fit + 0.5 * float(pull @ pull), pull / widths - gradient


class GaussianProcess(CostModel):
    """The process as a ``CostModel``: 40 ms to fit 200 × 20. Beyond ``MOST_ROWS`` rows a random part is used."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.hyperparameters_: Floats | None = None
        self.scale_ = 1.0

    @single_thread
    def fit(self, features: Floats, scores: Floats) -> GaussianProcess:
        """Learn from ``features`` (n, d) and ``scores`` (n,)."""
        kept = np.random.default_rng(self._seed).permutation(len(scores))[:MOST_ROWS]
        self._low = features.min(axis=0)
        spans = np.ptp(features, axis=0)
        self._spans = np.where(spans > 0, spans, 1.0)
        self._offset = float(np.mean(scores[kept]))
        inputs, centred = (features[kept] - self._low) / self._spans, scores[kept] - self._offset
        mode = self._mode(inputs[:SEARCH_ROWS], centred[:SEARCH_ROWS])
        self.hyperparameters_ = mode
        self._scaled = inputs / np.exp(mode[:-2])
        self._signal, self._noise = np.exp(2.0 * mode[-2:])
        matern, _ = matern52(distances(self._scaled, self._scaled))
        kernel = self._signal * matern + LEVEL_VARIANCE + _diagonal(self._signal, self._noise) * np.eye(len(kept))
        self._factor = np.linalg.cholesky(kernel)
        inverse = cho_solve((self._factor, True), np.eye(len(kept)), check_finite=False)
        self._weights = inverse @ centred
        # Leaving one row out has a closed form (Rasmussen and Williams 2006, equations 5.10 to 5.12)
        precision = np.diag(inverse)
        scale = conformal_scale(self._weights / precision, 1.0 / np.sqrt(precision))
        # The row left out has still taken part in setting the hyperparameters, so its error is too small.
        self.scale_ = scale * (1.0 + OPTIMISM / len(kept))
        return self

    @staticmethod
    def _mode(inputs: Floats, centred: Floats) -> Floats:
        centre, _ = _prior(inputs.shape[1])
        bounds = [(low - 5.0, low + 5.0) for low in centre]
        optimum = minimize(
            negative_log_posterior,
            centre,
            args=(inputs, centred),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": STEPS, "maxfun": STEPS + 5},
        )
        return np.asarray(optimum.x, dtype=np.float64)

    @single_thread
    def predict(self, features: Floats) -> Prediction:
        """Mean, and the standard deviation of a measurement: uncertainty and noise together.

        Raises:
            UsageError: before ``fit``.
        """
        if self.hyperparameters_ is None:
            raise UsageError("GaussianProcess.predict was called before fit; fit it on at least one measurement")
        scaled = (features - self._low) / self._spans / np.exp(self.hyperparameters_[:-2])
        matern, _ = matern52(distances(self._scaled, scaled))
        cross = self._signal * matern + LEVEL_VARIANCE
        solved = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        variance = self._signal + LEVEL_VARIANCE + self._noise - (solved**2).sum(axis=0)
        std = self.scale_ * np.sqrt(np.maximum(variance, self._noise))
        return Prediction(cross.T @ self._weights + self._offset, std)
