"""Doubt on configs that the models did not see, on made-up kernels."""

from __future__ import annotations

import numpy as np
import pytest

from costmodels.cost_model_catalog import COST_MODELS, make_cost_model
from costmodels.metrics import assess
from tests.search_tests.synthetic import BENCHES, NOISE


@pytest.mark.endurance
@pytest.mark.parametrize("name", COST_MODELS)
def test_the_80_percent_interval_covers_70_to_90_percent(name: str) -> None:
    covered, ranked = [], []
    for bench in ("conv3x3-28", "conv3x3-14", "conv1x1-28"):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            features, scores = BENCHES[bench].scored(rng)
            scores = scores + NOISE * rng.standard_normal(len(scores))
            order = rng.permutation(len(scores))
            model = make_cost_model(name, seed).fit(features[order[:60]], scores[order[:60]])
            quality = assess(model.predict(features[order[60:800]]), scores[order[60:800]])
            covered.append(quality.coverage[1])
            ranked.append(quality.rank_correlation)
    assert 0.7 <= np.mean(covered) <= 0.9
    assert np.mean(ranked) > 0.85
