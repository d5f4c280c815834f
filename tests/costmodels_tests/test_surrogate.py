from __future__ import annotations

import numpy as np
import pytest

from costmodels.boosted import Boosted
from costmodels.metrics import rank_correlation
from costmodels.surrogate import Surrogate, bend
from schedules.errors import UsageError
from tests.conformance.cost_model_suite import surface


def test_bend_keeps_the_top_and_the_order() -> None:
    gaps = bend(np.array([3.0, 2.9, 2.5, 0.0]))
    assert gaps[:2].tolist() == pytest.approx([0.0, -0.1])
    assert -1.0 < gaps[3] < gaps[2] < gaps[1]


def test_without_anything_it_says_so() -> None:
    surrogate = Surrogate(lambda: Boosted(0))
    assert not surrogate.ready
    with pytest.raises(UsageError, match="fit it first"):
        surrogate.predict(np.zeros((1, 6)))


def test_other_tasks_rank_before_any_own_measurement() -> None:
    features, scores = surface(200, 1)
    surrogate = Surrogate(lambda: Boosted(0), [(features, scores - 3.0)])
    unseen, truth = surface(200, 2)
    assert surrogate.ready
    assert rank_correlation(surrogate.predict(unseen).mean, truth) > 0.8


def test_alike_tasks_help_and_unlike_ones_are_ignored() -> None:
    features, scores = surface(12, 3)
    unseen, truth = surface(300, 4)
    alone = Surrogate(lambda: Boosted(0)).fit(features, scores)
    alike = Surrogate(lambda: Boosted(0), [surface(200, 5)]).fit(features, scores)
    other_features, other_scores = surface(200, 6)
    unlike = Surrogate(lambda: Boosted(0), [(other_features, -other_scores)]).fit(features, scores)
    ranked = [rank_correlation(surrogate.predict(unseen).mean, truth) for surrogate in (alone, alike, unlike)]
    assert ranked[1] > ranked[0] + 0.1
    assert ranked[2] > ranked[0] - 0.2
    assert alike.beta_ > 0.5
    assert unlike.beta_ < 0.2
