from __future__ import annotations

import numpy as np
import pytest

from costmodels.boosted import Boosted
from costmodels.metrics import rank_correlation
from costmodels.surrogate import Surrogate, bend
from tests.conformance.cost_model_suite import surface


def test_bend_keeps_the_top_and_the_order() -> None:
    gaps = bend(np.array([3.0, 2.9, 2.5, 0.0]))
    assert gaps[:2].tolist() == pytest.approx([0.0, -0.1])
    assert -1.0 < gaps[3] < gaps[2] < gaps[1]


def test_before_any_measurement_it_says_what_is_expected() -> None:
    expected, deviation = np.array([-0.3, 0.0, -0.1]), np.array([0.1, 0.2, 0.3])
    prediction = Surrogate(lambda: Boosted(0)).predict(np.zeros((3, 6)), expected, deviation)
    assert np.array_equal(prediction.mean, expected)
    assert np.array_equal(prediction.std, deviation)


def test_what_is_expected_helps_where_it_is_right_and_is_ignored_where_it_is_not() -> None:
    features, scores = surface(12, 3)
    unseen, truth = surface(300, 4)
    ranked, betas = [], []
    for sign in (0.0, 1.0, -1.0):
        surrogate = Surrogate(lambda: Boosted(0)).fit(features, scores, sign * bend(scores))
        ranked.append(rank_correlation(surrogate.predict(unseen, sign * bend(truth), np.ones(300)).mean, truth))
        betas.append(surrogate.beta_)
    assert ranked[1] > ranked[0] + 0.1
    assert ranked[2] > ranked[0] - 0.2
    assert betas[1] > 0.9
    assert betas[2] < 0.2
