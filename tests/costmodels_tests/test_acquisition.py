from __future__ import annotations

import numpy as np
import pytest

from costmodels.acquisition import expected_improvement, upper_confidence_bound
from costmodels.cost_model import Prediction


def at(mean: float, std: float) -> Prediction:
    return Prediction(np.array([mean]), np.array([std]))


def test_improvement_without_doubt_is_the_gain() -> None:
    assert expected_improvement(at(1.5, 0.0), 1.0)[0] == 0.5
    assert expected_improvement(at(0.5, 0.0), 1.0)[0] == 0.0


def test_improvement_against_sampling() -> None:
    draws = np.random.default_rng(0).normal(0.3, 0.8, size=400_000)
    sampled = np.maximum(draws - 1.0, 0.0).mean()
    assert expected_improvement(at(0.3, 0.8), 1.0)[0] == pytest.approx(sampled, rel=0.02)


def test_bound() -> None:
    prediction = Prediction(np.array([1.0, 2.0]), np.array([0.5, 0.0]))
    assert upper_confidence_bound(prediction, 2.0).tolist() == [2.0, 2.0]
