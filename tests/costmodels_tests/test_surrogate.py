from __future__ import annotations

import numpy as np
import pytest

from costmodels.boosted import Boosted
from costmodels.cost_model import Floats
from costmodels.metrics import rank_correlation
from costmodels.surrogate import Surrogate, bend
from tests.conformance.cost_model_suite import surface


def test_bend_keeps_the_top_and_the_order() -> None:
    gaps = bend(np.array([3.0, 2.9, 2.5, 0.0]))
    assert gaps[:2].tolist() == pytest.approx([0.0, -0.1])
    assert -1.0 < gaps[3] < gaps[2] < gaps[1]


def nothing(features: Floats) -> Floats:
    """What is expected of configs that nothing is known of."""
    return np.zeros(len(features))


def test_before_any_measurement_it_says_what_is_expected() -> None:
    expected = np.array([-0.3, 0.0, -0.1])
    prediction = Surrogate(lambda: Boosted(0)).predict(np.zeros((3, 6)), expected)
    assert np.array_equal(prediction.mean, expected)
    assert (prediction.std > 0).all()


def test_other_tasks_rank_before_any_own_measurement() -> None:
    features, scores = surface(200, 1)
    surrogate = Surrogate(lambda: Boosted(0), [(features, scores - 3.0)])
    unseen, truth = surface(200, 2)
    assert rank_correlation(surrogate.predict(unseen, nothing(unseen)).mean, truth) > 0.8


def test_what_is_expected_helps_where_it_is_right_and_is_ignored_where_it_is_not() -> None:
    features, scores = surface(12, 3)
    unseen, truth = surface(300, 4)
    ranked, betas = [], []
    for sign in (0.0, 1.0, -1.0):
        surrogate = Surrogate(lambda: Boosted(0)).fit(features, scores, sign * bend(scores))
        ranked.append(rank_correlation(surrogate.predict(unseen, sign * bend(truth)).mean, truth))
        betas.append(surrogate.beta_)
    assert ranked[1] > ranked[0] + 0.1
    assert ranked[2] > ranked[0] - 0.2
    assert betas[1] > 0.9
    assert betas[2] < 0.2


def test_alike_tasks_help_and_unlike_ones_are_ignored() -> None:
    features, scores = surface(12, 3)
    unseen, truth = surface(300, 4)
    known, other = surface(200, 5), surface(200, 6)
    alone = Surrogate(lambda: Boosted(0)).fit(features, scores, nothing(features))
    alike = Surrogate(lambda: Boosted(0), [known]).fit(features, scores, nothing(features))
    unlike = Surrogate(lambda: Boosted(0), [(other[0], -other[1])])
    unlike.fit(features, scores, nothing(features))
    searched = (alone, alike, unlike)
    ranked = [rank_correlation(each.predict(unseen, nothing(unseen)).mean, truth) for each in searched]
    assert ranked[1] > ranked[0] + 0.1
    assert ranked[2] > ranked[0] - 0.2
    assert alike.beta_ > 0.5
    assert unlike.beta_ < 0.2
