from __future__ import annotations

import numpy as np
import pytest

from costmodels.calibration import conformal_scale
from costmodels.cost_model import Prediction
from costmodels.metrics import assess, coverage, rank_correlation, top_recall
from schedules.vocabulary.errors import UsageError


def test_coverage_of_a_right_model_is_the_level() -> None:
    truth = np.random.default_rng(0).normal(2.0, 0.5, size=20_000)
    right = Prediction(np.full(20_000, 2.0), np.full(20_000, 0.5))
    for level in (0.5, 0.8, 0.95):
        assert coverage(right, truth, level) == pytest.approx(level, abs=0.01)
    with pytest.raises(UsageError, match="between 0 and 1"):
        coverage(right, truth, 80.0)


def test_rank_correlation() -> None:
    truth = np.arange(10.0)
    assert rank_correlation(np.exp(truth), truth) == pytest.approx(1.0)
    assert rank_correlation(-truth, truth) == pytest.approx(-1.0)
    assert rank_correlation(np.zeros(10), truth) == 0.0
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(np.sqrt(0.75))


def test_top_recall() -> None:
    truth = np.arange(10.0)
    assert top_recall(truth, truth, 3) == 1.0
    assert top_recall(-truth, truth, 3) == 0.0
    assert top_recall(np.roll(truth, 1), truth, 4) == 0.75
    assert top_recall(truth, truth, 100) == 1.0


def test_assess_gives_everything() -> None:
    truth = np.linspace(0, 1, 50)
    quality = assess(Prediction(truth + 0.1, np.full(50, 0.01)), truth)
    assert quality.coverage == (0.0, 0.0, 0.0)
    assert quality.rank_correlation == pytest.approx(1.0)
    assert quality.top_recall == 1.0
    assert quality.error == pytest.approx(0.1)


def test_scale_repairs_over_and_underconfidence() -> None:
    errors = np.random.default_rng(1).normal(size=20_000)
    assert conformal_scale(errors, np.full(20_000, 1.0)) == pytest.approx(1.0, abs=0.1)
    assert conformal_scale(errors, np.full(20_000, 0.5)) == pytest.approx(2.0, abs=0.2)
    assert conformal_scale(errors, np.full(20_000, 2.0)) == pytest.approx(0.5, abs=0.1)


def test_scale_trusts_few_rows_little() -> None:
    assert conformal_scale(np.zeros(0), np.zeros(0)) == 1.0
    assert 1.0 < conformal_scale(np.full(2, 100.0), np.ones(2)) < 1.5


def test_doubt_is_judged_where_a_search_looks_and_by_whether_it_knows_where_it_errs() -> None:
    rng = np.random.default_rng(5)
    mean = rng.standard_normal(400)
    doubt = np.where(mean > np.quantile(mean, 0.9), 0.02, rng.uniform(0.1, 0.5, 400))  # far too sure of the top
    truth = mean + np.where(doubt < 0.1, 0.3, doubt) * rng.standard_normal(400)
    quality = assess(Prediction(mean, doubt), truth)
    assert quality.coverage[1] > 0.6 > 0.3 > quality.top_coverage
    assert quality.doubt_rank > 0.1
    assert quality.doubt_spread > 0.3
    flat = assess(Prediction(mean, np.full(400, 0.3)), truth)
    assert (flat.doubt_rank, flat.doubt_spread) == pytest.approx((0.0, 0.0))
