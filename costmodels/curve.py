"""Prediction of a task's best-so-far speed in trials to come, as in DynaTune.

Notation: x = trials so far (T,), y = best-so-far speed as a share of the last one (T,), in (0, 1];
K curves f_k with parameters θ_k and weights w_k, noise σ; one walker holds (ln w, θ, ln σ).

    y_t = Σ_k w_k·f_k(t | θ_k) + ε,   ε ~ N(0, σ²),   w on the simplex

The prior is flat within bounds and rejects curves that end below the last measurement ("no worse"), as in Domhan et
al. 2015 and DynaTune (ICLR 2021, section 3.2). The posterior is sampled by emcee's affine-invariant ensemble, all
walkers in one NumPy expression. Departures, for speed: the curve is thinned to at most 10 points, walkers start
from the best of random draws instead of a least-squares fit per curve, and continue from where the last fit left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import emcee
import numpy as np

from costmodels.cost_model import Floats
from costmodels.curve_functions import CURVES, Curve
from costmodels.single_thread import single_thread
from schedules.vocabulary.errors import UsageError

POINTS = 10
"""Most points of a curve that is fitted. This and the next three: set so that a fit takes no more than 50 ms, and
heuristic beyond that."""

STEPS, AGAIN, KEPT = 64, 32, 16
"""Steps of a first chain, of one that continues, and how many of the last steps are kept."""

ROUNDS, DRAWS = 6, 120
"""Rounds that look for a curve's start, and parameters tried in each."""

CROWD = 8
"""Combinations of parameters from which each walker's start is chosen."""

LOG_WEIGHT = 8.0
"""Bound of |ln w|. Heuristic, not measured."""

LOG_SIGMA = (np.log(1e-3), np.log(0.3))
"""Bounds of ln σ: noise from 0.1 % to 30 % of the speed. Heuristic, not measured."""

LEAST_STD = 1e-3
"""Least predicted standard deviation as a share of the speed. Heuristic, not measured."""

IMPOSSIBLE = -1e100
"""Log density of what the prior excludes: emcee subtracts densities, and −inf − (−inf) is not a number."""


def best_so_far(latencies_s: Sequence[float | None]) -> tuple[Floats, Floats]:
    """Trials (T,) from 1 and best speed so far (T,) in 1/s, from the first valid trial on."""
    latencies = np.array([np.inf if latency is None else latency for latency in latencies_s], dtype=np.float64)
    best = np.minimum.accumulate(latencies) if len(latencies) else latencies
    valid = np.isfinite(best)
    return np.flatnonzero(valid).astype(np.float64) + 1.0, 1.0 / best[valid]


def thinned(trials: Floats, speeds: Floats) -> tuple[Floats, Floats]:
    """At most ``POINTS`` points of a staircase, even in ln(trials), the first and the last among them."""
    if len(trials) <= POINTS:
        return trials, speeds
    wanted = np.geomspace(1.0, len(trials), POINTS)
    places = np.unique(np.round(wanted).astype(np.int64) - 1)
    return trials[places], speeds[places]


class CurveEnsemble:
    """The weighted combination of curves; deterministic for a seed and a sequence of fits."""

    def __init__(self, seed: int, curves: Iterable[Curve] = tuple(CURVES.values())) -> None:
        self._rng = np.random.default_rng(seed)
        self._curves = tuple(curves)
        widths = [len(curve.start) for curve in self._curves]
        self._parts = np.cumsum([len(widths), *widths])
        size = int(self._parts[-1]) + 1
        self._walkers = 2 * size + 2
        bounds = [(-LOG_WEIGHT, LOG_WEIGHT)] * len(widths)
        bounds += [pair for curve in self._curves for pair in zip(curve.low, curve.high, strict=True)]
        self._low, self._high = np.array([*bounds, LOG_SIGMA]).T
        self._at: Floats | None = None
        self.samples_: Floats | None = None
        self.unit_ = 1.0

    @single_thread
    def fit(self, trials: Floats, speeds: Floats) -> CurveEnsemble:
        """Learn from best-so-far ``speeds`` (T,) after ``trials`` (T,), T ≥ 1."""
        self.unit_ = float(speeds[-1])
        x, y = thinned(np.asarray(trials, dtype=np.float64), np.asarray(speeds, dtype=np.float64) / self.unit_)

        def density(walkers: Floats) -> Floats:
            return self._log_posterior(walkers, x, y)

        start, steps = self._at, AGAIN
        if start is None or not (density(start) > IMPOSSIBLE).all():
            start, steps = self._start(x, y), STEPS
        sampler = emcee.EnsembleSampler(self._walkers, len(self._low), density, vectorize=True)
        sampler.random_state = np.random.RandomState(int(self._rng.integers(2**31))).get_state()
        sampler.run_mcmc(start, steps, skip_initial_state_check=True)
        chain = sampler.get_chain()
        self._at = chain[-1]
        self.samples_ = chain[-KEPT:].reshape(-1, len(self._low))
        return self

    def predict(self, trial: float) -> tuple[float, float]:
        """Mean and standard deviation of the best speed after ``trial`` trials, in the speeds' unit.

        Raises:
            UsageError: before ``fit``.
        """
        if self.samples_ is None:
            raise UsageError("CurveEnsemble.predict was called before fit; fit it on at least one trial")
        values = self._mixture(self.samples_, np.array([float(trial)]))[:, 0]
        # Best-so-far cannot fall: values below the last one, from noise and short chains, count as no change.
        values = np.maximum(np.where(np.isfinite(values), values, 1.0), 1.0)
        return float(values.mean()) * self.unit_, max(float(values.std()), LEAST_STD) * self.unit_

    def _mixture(self, walkers: Floats, x: Floats) -> Floats:
        """(w, T) combined curves; NaN or infinite where a curve is not defined."""
        raw = np.exp(np.clip(walkers[:, : self._parts[0]], -LOG_WEIGHT, LOG_WEIGHT))
        weights = raw / raw.sum(axis=1, keepdims=True)
        total = np.zeros((len(walkers), len(x)))
        with np.errstate(all="ignore"):  # the caller rejects parameters for which a curve is not defined
            for index, curve in enumerate(self._curves):
                theta = walkers[:, self._parts[index] : self._parts[index + 1]]
                total += weights[:, index : index + 1] * curve.value(x, theta)
        return total

    def _log_posterior(self, walkers: Floats, x: Floats, y: Floats) -> Floats:
        """(w,) log density up to a constant; IMPOSSIBLE out of bounds and for curves that end below the last value."""
        inside = np.all((walkers >= self._low) & (walkers <= self._high), axis=1)
        clipped = np.clip(walkers, self._low, self._high)
        curve = self._mixture(clipped, x)
        sigma = np.exp(clipped[:, -1])
        allowed = inside & np.isfinite(curve).all(axis=1) & (curve[:, -1] >= y[-1] - sigma)
        squares = np.where(allowed[:, None], (curve - y) ** 2, 0.0).sum(axis=1)
        # Weights are known up to a constant: a wide normal keeps ln w bounded.
        ridge = 0.125 * (clipped[:, : self._parts[0]] ** 2).sum(axis=1)
        return np.where(allowed, -0.5 * squares / sigma**2 - len(y) * np.log(sigma) - ridge, IMPOSSIBLE)

    def _start(self, x: Floats, y: Floats) -> Floats:
        """(w, size) walkers: the densest of many combinations of parameters that suit each curve on its own."""
        count = CROWD * self._walkers
        columns = [self._rng.normal(0.0, 2.5, size=(count, len(self._curves)))]
        for curve in self._curves:
            good = self._suited(curve, x, y)
            chosen = good[self._rng.integers(len(good), size=count)]
            low, high = np.array(curve.low), np.array(curve.high)
            jitter = self._rng.normal(0.0, 1e-4, size=chosen.shape) * (high - low)
            columns.append(np.clip(chosen + jitter, low + 1e-9, high - 1e-9))
        walkers = np.concatenate([*columns, np.zeros((count, 1))], axis=1)
        misfit = np.nan_to_num(((self._mixture(walkers, x) - y) ** 2).mean(axis=1), nan=1.0, posinf=1.0)
        spread = self._rng.normal(0.0, 0.2, size=count)
        walkers[:, -1] = np.clip(0.5 * np.log(misfit + 1e-6) + spread, LOG_SIGMA[0] + 1e-9, LOG_SIGMA[1] - 1e-9)
        return walkers[np.argsort(-self._log_posterior(walkers, x, y), kind="stable")[: self._walkers]]

    def _suited(self, curve: Curve, x: Floats, y: Floats) -> Floats:
        """(n, p) parameters of ``curve`` with small misfits, by the cross-entropy method (Rubinstein 1999)."""
        low, high = np.array(curve.low), np.array(curve.high)
        centre, width = np.array(curve.start), np.maximum(np.abs(np.array(curve.start)), 0.5)
        best = centre[None, :]
        for _ in range(ROUNDS):
            drawn = np.clip(centre + width * self._rng.standard_normal((DRAWS, len(low))), low, high)
            drawn = np.concatenate([best, drawn])
            with np.errstate(all="ignore"):  # where a curve is not defined its misfit is infinite
                value = curve.value(x, drawn)
                misfit = ((value - y) ** 2).sum(axis=1) + 10.0 * np.maximum(y[-1] - value[:, -1], 0.0) ** 2
            best = drawn[np.argsort(np.nan_to_num(misfit, nan=np.inf), kind="stable")[: DRAWS // 10]]
            centre, width = best.mean(axis=0), best.std(axis=0) + 1e-4
        return best
