from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodels.acquisition import expected_improvement
from costmodels.cost_model import Prediction
from research.log_improvement import log_expected_improvement, log_h


def at(mean: float, std: float) -> Prediction:
    return Prediction(np.array([mean]), np.array([std]))


@pytest.mark.parametrize(
    ("z", "expected"),
    [  # from mpmath with 60 digits
        (5.0, 1.6094379231264313),
        (0.0, -0.9189385332046728),
        (-0.999, -2.4832171154475855),
        (-1.001, -2.4870256579553893),
        (-5.0, -16.74430116266099),
        (-30.0, -457.724653760598),
        (-100.0, -5010.12957880025),
        (-900.0, -405014.52373176353),
    ],
)
def test_log_h_against_many_digits(z: float, expected: float) -> None:
    assert log_h(np.array([z]))[0] == pytest.approx(expected, rel=1e-12)


def test_log_h_is_finite_and_rising_through_all_branches() -> None:
    z = np.concatenate([-np.logspace(150, -6, 4000), np.logspace(-6, 150, 4000)])
    values = log_h(z)
    assert np.isfinite(values).all()
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("seam", [-1.0, -1e3])
def test_log_h_has_no_step_where_branches_meet(seam: float) -> None:
    below, above = log_h(np.array([np.nextafter(seam, -np.inf), np.nextafter(seam, np.inf)]))
    assert above - below == pytest.approx(0.0, abs=1e-5)


@given(mean=st.floats(-3, 3), std=st.floats(0.2, 3), incumbent=st.floats(-3, 3))
def test_log_improvement_is_the_logarithm_of_improvement(mean: float, std: float, incumbent: float) -> None:
    plain = expected_improvement(at(mean, std), incumbent)[0]
    logged = log_expected_improvement(at(mean, std), incumbent)[0]
    if plain > 1e-250:
        assert logged == pytest.approx(math.log(plain), rel=1e-6, abs=1e-6)


def test_log_improvement_ranks_where_improvement_is_zero() -> None:
    prediction = Prediction(np.array([-50.0, -60.0]), np.array([1.0, 1.0]))
    assert (expected_improvement(prediction, 0.0) == 0.0).all()
    better, worse = log_expected_improvement(prediction, 0.0)
    assert better > worse


def test_log_improvement_without_doubt_is_finite() -> None:
    assert np.isfinite(log_expected_improvement(at(0.5, 0.0), 1.0)[0])
