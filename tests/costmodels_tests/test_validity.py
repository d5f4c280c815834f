from __future__ import annotations

import numpy as np

from costmodels.validity import Validity


def test_a_corner_of_failures_is_learned_and_without_failures_all_is_valid() -> None:
    rng = np.random.default_rng(0)
    features = rng.integers(0, 8, size=(40, 3)).astype(np.float64)
    valid = features[:, 0] * features[:, 1] < 25
    unseen = rng.integers(0, 8, size=(300, 3)).astype(np.float64)
    broken = unseen[:, 0] * unseen[:, 1] >= 25
    assert (Validity().fit(features, np.ones(40, dtype=np.bool_)).probability(unseen) == 1.0).all()
    chance = Validity().fit(features, valid).probability(unseen)
    assert ((chance > 0) & (chance <= 1)).all()
    assert chance[broken].mean() < 0.5 < 0.8 < chance[~broken].mean()


def test_when_all_failed_the_chance_is_low_and_not_zero() -> None:
    chance = Validity().fit(np.zeros((5, 2)), np.zeros(5, dtype=np.bool_)).probability(np.zeros((3, 2)))
    assert ((chance > 0) & (chance < 0.2)).all()
