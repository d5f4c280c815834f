from __future__ import annotations

import numpy as np
import pytest

from costmodels.boosted import LEAST_STD, Boosted, BoostedRank
from costmodels.metrics import rank_correlation
from schedules.vocabulary.errors import UsageError


def surface(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    features = np.random.default_rng(seed).random((count, 4))
    return features, features[:, 0] - (features[:, 1] - 0.5) ** 2


def test_uncertainty_is_larger_with_fewer_rows() -> None:
    asked, _ = surface(100, 1)
    few, many = (Boosted(0).fit(*surface(count)).predict(asked).std for count in (8, 200))
    assert np.median(few) > 2 * np.median(many)
    assert many.min() >= LEAST_STD


def test_two_rows_are_enough_to_fit() -> None:
    prediction = Boosted(0).fit(np.array([[0.0], [1.0]]), np.array([1.0, 3.0])).predict(np.array([[0.5]]))
    assert 1.0 <= prediction.mean[0] <= 3.0
    assert prediction.std[0] > 0


def test_ranks_follow_throughput_and_failures_are_last() -> None:
    features, scores = surface(120)
    throughput = np.where(features[:, 2] > 0.8, 0.0, np.exp(scores))
    asked, truth = surface(60, 1)
    ranks = BoostedRank(0).fit(features, throughput).rank(asked)
    fails = asked[:, 2] > 0.8
    assert rank_correlation(ranks[~fails], truth[~fails]) > 0.8
    assert np.median(ranks[fails]) < np.median(ranks[~fails])
    with pytest.raises(UsageError, match="before fit"):
        BoostedRank(0).rank(asked)
