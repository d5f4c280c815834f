"""What every CostModel owes. Subclass, and give a ``cost_model_name`` fixture with the names to test."""

from __future__ import annotations

import numpy as np
import pytest

from costmodels.cost_model import CostModel, Floats
from costmodels.cost_model_catalog import make_cost_model
from schedules.vocabulary.errors import UsageError


def surface(count: int, seed: int) -> tuple[Floats, Floats]:
    """(count, 6) features and (count,) scores of a function with an interaction and 1 % noise."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 6, size=(count, 6)).astype(np.float64)
    scores = 8.0 - 0.1 * (features[:, 0] - 3) ** 2 - 0.2 * np.abs(features[:, 1] - features[:, 2])
    return features, scores + 0.01 * rng.standard_normal(count)


class CostModelSuite:
    """The protocol's promises, down to one measurement and constant scores."""

    def test_is_a_cost_model_and_fit_returns_it(self, cost_model_name: str) -> None:
        model = make_cost_model(cost_model_name, 0)
        assert isinstance(model, CostModel)
        assert model.fit(*surface(20, 0)) is model

    def test_predict_before_fit_says_so(self, cost_model_name: str) -> None:
        with pytest.raises(UsageError, match="before fit"):
            make_cost_model(cost_model_name, 0).predict(np.zeros((1, 6)))

    def test_learns(self, cost_model_name: str) -> None:
        features, scores = surface(300, 1)
        unseen, truth = surface(400, 2)
        prediction = make_cost_model(cost_model_name, 0).fit(features, scores).predict(unseen)
        assert np.corrcoef(prediction.mean, truth)[0, 1] > 0.9

    @pytest.mark.parametrize("count", [1, 2, 3, 5])
    def test_few_measurements(self, cost_model_name: str, count: int) -> None:
        features, scores = surface(count, 3)
        prediction = make_cost_model(cost_model_name, 0).fit(features, scores).predict(surface(50, 4)[0])
        assert np.isfinite(prediction.mean).all()
        assert np.isfinite(prediction.std).all()
        assert (prediction.std > 0).all()

    def test_constant_scores(self, cost_model_name: str) -> None:
        features, _ = surface(30, 5)
        prediction = make_cost_model(cost_model_name, 0).fit(features, np.full(30, 7.5)).predict(surface(50, 6)[0])
        assert np.allclose(prediction.mean, 7.5, atol=0.05)
        assert np.isfinite(prediction.std).all()

    def test_constant_and_repeated_features(self, cost_model_name: str) -> None:
        features = np.repeat(np.array([[1.0, 5.0], [1.0, 6.0]]), 10, axis=0)
        scores = features[:, 1] + np.tile([-0.1, 0.1], 10)
        prediction = make_cost_model(cost_model_name, 0).fit(features, scores).predict(features)
        assert prediction.mean[-1] > prediction.mean[0]
        assert np.isfinite(prediction.std).all()

    def test_same_seed_same_predictions(self, cost_model_name: str) -> None:
        runs = [make_cost_model(cost_model_name, 7).fit(*surface(60, 7)).predict(surface(40, 8)[0]) for _ in range(2)]
        assert np.array_equal(runs[0].mean, runs[1].mean)
        assert np.array_equal(runs[0].std, runs[1].std)

    def test_fit_forgets(self, cost_model_name: str) -> None:
        features, scores = surface(60, 9)
        again = (
            make_cost_model(cost_model_name, 1).fit(features, scores + 100.0).fit(features, scores).predict(features)
        )
        fresh = make_cost_model(cost_model_name, 1).fit(features, scores).predict(features)
        assert np.allclose(again.mean, fresh.mean)
        assert np.allclose(again.std, fresh.std)

    def test_inputs_are_left_alone(self, cost_model_name: str) -> None:
        features, scores = surface(30, 10)
        kept = features.copy(), scores.copy()
        make_cost_model(cost_model_name, 0).fit(features, scores).predict(features)
        assert np.array_equal(features, kept[0])
        assert np.array_equal(scores, kept[1])
