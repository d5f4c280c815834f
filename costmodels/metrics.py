"""How good a cost model is, on configs it was not fitted on.

Notation: n = number of configs, truth = measured scores (n,), larger is better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from costmodels.cost_model import Floats, Prediction
from schedules.vocabulary.errors import UsageError

LEVELS = (0.5, 0.8, 0.95)
"""Probabilities of the intervals whose coverage is told. Convention."""

TOP_LEVEL = 0.8
"""Probability of the interval that is judged at the top. Convention."""


def coverage(prediction: Prediction, truth: Floats, level: float) -> float:
    """Share of ``truth`` inside the central ``level`` interval of a normal with the predicted mean and deviation.

    Args:
        truth: (n,) as the prediction's mean.
        level: above 0 and below 1.

    Raises:
        UsageError: for another level.
    """
    if not 0.0 < level < 1.0:
        raise UsageError(f"level is {level}; an interval's level lies between 0 and 1")
    half = float(ndtri(0.5 + level / 2.0)) * prediction.std
    return float(np.mean(np.abs(truth - prediction.mean) <= half))


def rank_correlation(expected: Floats, truth: Floats) -> float:
    """Spearman's ρ, ties sharing their mean rank; 0 if either side is constant."""
    if not np.ptp(expected) or not np.ptp(truth):
        return 0.0
    from scipy.stats import spearmanr  # takes 0.8 s to load, which runs that only fit need not wait for

    return float(spearmanr(expected, truth).statistic)


def top_recall(expected: Floats, truth: Floats, count: int) -> float:
    """Share of the ``count`` truly best that are among the ``count`` expected to be best."""
    count = min(count, len(truth))
    best = np.argsort(-truth, kind="stable")[:count]
    chosen = np.argsort(-expected, kind="stable")[:count]
    return len(np.intersect1d(best, chosen)) / max(count, 1)


@dataclass(frozen=True)
class Quality:
    """One model on one held-out set.

    Attributes:
        coverage: share of the truth inside the interval of each of ``LEVELS``, in that order.
        rank_correlation: Spearman's ρ.
        top_recall: of the best tenth (at least five).
        top_coverage: share of the truth inside the ``TOP_LEVEL`` interval among the tenth that is expected to be best,
            where a search looks.
        doubt_rank: Spearman's ρ of |error| with the standard deviation: whether the model knows where it errs more.
        doubt_spread: standard deviation of the standard deviations over their mean; 0 where all doubt is equal.
        error: root mean square error, in scores (0.05 is 5 % of a latency).
    """

    coverage: tuple[float, ...]
    rank_correlation: float
    top_recall: float
    top_coverage: float
    doubt_rank: float
    doubt_spread: float
    error: float


def assess(prediction: Prediction, truth: Floats) -> Quality:
    """All of it at once; n ≥ 1."""
    count = max(5, len(truth) // 10)
    top = np.argsort(-prediction.mean, kind="stable")[:count]
    errors = truth - prediction.mean
    return Quality(
        tuple(coverage(prediction, truth, level) for level in LEVELS),
        rank_correlation(prediction.mean, truth),
        top_recall(prediction.mean, truth, count),
        coverage(Prediction(prediction.mean[top], prediction.std[top]), truth[top], TOP_LEVEL),
        rank_correlation(np.abs(errors), prediction.std),
        float(np.std(prediction.std) / max(float(np.mean(prediction.std)), 1e-12)),
        float(np.sqrt(np.mean(errors**2))),
    )
