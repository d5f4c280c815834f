"""Boosted trees with an uncertainty: a bagged ensemble of small XGBoost models.

Notation: n = number of configs, d = number of features, m = number of members.

Each member is fitted on its own bootstrap (Poisson weights), so members disagree where data are few. The rows that a
member did not see give unbiased residuals. Their excess over the members' disagreement is added to the variance, so
that it covers noise and bias too. The whole is scaled until 80 % intervals cover 80 % of the residuals.
"""

from __future__ import annotations

import numpy as np
import xgboost
from numpy.typing import NDArray

from costmodels.calibration import conformal_scale
from costmodels.cost_model import CostModel, Floats, Prediction
from costmodels.single_thread import single_thread
from schedules.vocabulary.errors import UsageError

MEMBERS = 4
"""Members of the ensemble: a row is then unseen by at least one with probability 1 − (1 − 1/e)⁴ = 0.84. With five
members of 20 rounds searches need as many trials (docs/lab: search) and their fits two and a half times the time."""

ROUNDS = 10
"""Boosting rounds of a member. With two members of eight searches need up to 8 % more trials (docs/lab: search)."""

RATE = 0.5
"""Learning rate: the rounds above are few. Heuristic, not measured."""

RANK_ROUNDS = 60
"""Boosting rounds of ``BoostedRank``, about where TVM's training stops. Heuristic, not measured."""

DEPTH = 4
"""Most levels of a member's trees. Heuristic, not measured."""

BINS = 32
"""Bins of a feature: knobs have few distinct values, and bins are most of the time of a fit this small. Heuristic."""

LEAST_STD = 1e-3
"""Least standard deviation in scores, 0.1 % of a latency. Heuristic: no timing is better than that."""


class Boosted(CostModel):
    """A ``CostModel`` of m boosters on one thread: some 10 ms to fit 500 × 40, 3 ms for 4,096 predictions."""

    def __init__(self, seed: int, members: int = MEMBERS, rounds: int = ROUNDS, rate: float = RATE) -> None:
        self._seed, self._members, self._rounds = seed, members, rounds
        self._parameters = {
            "tree_method": "hist",
            "max_bin": BINS,
            "max_depth": DEPTH,
            "eta": rate,
            "min_child_weight": 1.0,
            "colsample_bytree": 0.7,
            "base_score": 0.0,
            "nthread": 1,
            "seed": seed,
            "verbosity": 0,
        }
        self.booster_: xgboost.Booster | None = None
        self.offset_ = 0.0
        self.extra_variance_ = 0.0
        self.scale_ = 1.0

    @single_thread
    def fit(self, features: Floats, scores: Floats) -> Boosted:
        """Learn from ``features`` (n, d) and ``scores`` (n,); rows of equal features may differ in score."""
        rng = np.random.default_rng(self._seed)
        self.offset_ = float(np.mean(scores))
        centred = scores - self.offset_
        weights = rng.poisson(1.0, size=(len(scores), self._members)).astype(np.float32)
        weights[:, weights.sum(axis=0) == 0] = 1.0  # an empty bootstrap, which one row may give, takes every row
        targets = np.repeat(centred[:, None], self._members, axis=1).astype(np.float32)

        def loss(expected: NDArray[np.float32], _: xgboost.DMatrix) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            """(n, m) slopes and curvatures of each member's weighted squares."""
            return weights * (expected - targets), weights

        data = xgboost.QuantileDMatrix(features, targets, nthread=1, max_bin=BINS)
        # One training of m outputs, each with weights of its own, spares m − 1 times what surrounds the trees.
        self.booster_ = xgboost.train(self._parameters, data, self._rounds, obj=loss)
        self._calibrate(self._raw(self.booster_, features), centred, (weights == 0).T)
        return self

    @staticmethod
    def _raw(booster: xgboost.Booster, features: Floats) -> Floats:
        """(m, n) each member's expectation of the centred score."""
        return np.ascontiguousarray(booster.inplace_predict(features).T, dtype=np.float64)

    def _calibrate(self, raw: Floats, centred: Floats, unseen: NDArray[np.bool_]) -> None:
        """Set the excess variance and the scale by rows that members did not see; ``raw`` (m, n) is what they say."""
        rows = unseen.any(axis=0)
        if rows.sum() < 3:
            self.extra_variance_ = float(np.var(centred)) if len(centred) > 1 else 1.0
            self.scale_ = 1.0
            return
        spread = raw.var(axis=0, ddof=1)[rows]
        voters = unseen.sum(axis=0)[rows]
        errors = np.where(unseen, raw, 0.0).sum(axis=0)[rows] / voters - centred[rows]
        self.extra_variance_ = max(float(np.mean(errors**2 - spread / voters)), LEAST_STD**2)
        # The mean of the few members that did not see a row errs more than the mean of all m will.
        shrink = np.sqrt((spread / self._members + self.extra_variance_) / (spread / voters + self.extra_variance_))
        self.scale_ = conformal_scale(errors * shrink, np.sqrt(spread + self.extra_variance_))

    @single_thread
    def predict(self, features: Floats) -> Prediction:
        """Mean over members; scaled root of the members' variance and what unseen rows showed beyond it.

        Raises:
            UsageError: before ``fit``.
        """
        if self.booster_ is None:
            raise UsageError("Boosted.predict was called before fit; fit it on at least one measurement")
        raw = self._raw(self.booster_, features)
        variance = raw.var(axis=0, ddof=1) + self.extra_variance_
        return Prediction(raw.mean(axis=0) + self.offset_, np.maximum(self.scale_ * np.sqrt(variance), LEAST_STD))


class BoostedRank:
    """AutoTVM's cost model: one XGBoost model on pairwise ranks, which says which config is better and no more.

    Parameters as in TVM's ``xgboost_cost_model.py``, except that it trains a fixed number of rounds: TVM allows 8,000
    and stops when the recall on its own training rows has not grown for 20, which is at some tens of rounds.
    """

    def __init__(self, seed: int) -> None:
        self._parameters = {
            "objective": "rank:pairwise",
            "max_depth": 3,
            "gamma": 1e-4,
            "min_child_weight": 1,
            "subsample": 1.0,
            "eta": 0.3,
            "lambda": 1.0,
            "alpha": 0.0,
            "nthread": 1,
            "verbosity": 0,
            "seed": seed,
        }
        self.booster_: xgboost.Booster | None = None

    @single_thread
    def fit(self, features: Floats, throughput: Floats) -> BoostedRank:
        """Learn from ``features`` (n, d) and ``throughput`` (n,), a failure's being 0; n ≥ 1."""
        data = xgboost.DMatrix(features, throughput / max(float(throughput.max()), 1e-30), nthread=1)
        data.set_group([len(throughput)])
        self.booster_ = xgboost.train(self._parameters, data, RANK_ROUNDS)
        return self

    @single_thread
    def rank(self, features: Floats) -> Floats:
        """(n,) larger for the better of two; the unit means nothing.

        Raises:
            UsageError: before ``fit``.
        """
        if self.booster_ is None:
            raise UsageError("BoostedRank.rank was called before fit; fit it on at least one measurement")
        return np.asarray(self.booster_.predict(xgboost.DMatrix(features, nthread=1)), dtype=np.float64)
