from __future__ import annotations

import numpy as np
import pytest

from costmodels.curve import POINTS, CurveEnsemble, best_so_far, thinned
from schedules.vocabulary.errors import UsageError


def staircase(trials: int, seed: int = 0) -> list[float | None]:
    """Latencies of a made-up search, the first of them failed."""
    rng = np.random.default_rng(seed)
    return [None, *(1e-3 * (1.0 + rng.exponential(size=trials - 1) / np.sqrt(np.arange(1, trials)))).tolist()]


def test_best_so_far_starts_at_the_first_success() -> None:
    trials, speeds = best_so_far([None, 4e-3, 5e-3, 2e-3, None])
    assert trials.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert speeds.tolist() == [250.0, 250.0, 500.0, 500.0]
    assert [len(part) for part in best_so_far([None, None])] == [0, 0]
    assert [len(part) for part in best_so_far([])] == [0, 0]


def test_thinning_keeps_both_ends() -> None:
    trials, speeds = thinned(np.arange(1.0, 201.0), np.arange(1.0, 201.0))
    assert len(trials) <= POINTS
    assert (trials[0], trials[-1]) == (1.0, 200.0)
    assert (trials == speeds).all()


def test_ensemble_expects_no_less_than_there_is_and_is_less_certain_of_the_far_future() -> None:
    trials, speeds = best_so_far(staircase(24))
    ensemble = CurveEnsemble(0).fit(trials, speeds)
    near, near_std = ensemble.predict(32)
    far, far_std = ensemble.predict(300)
    assert speeds[-1] <= near <= far < 2.0 * speeds[-1]
    assert 0.0 < near_std < far_std


def test_ensemble_follows_a_steep_curve_more_than_a_flat_one() -> None:
    trials = np.arange(1.0, 17.0)
    steep = CurveEnsemble(0).fit(trials, trials**0.7).predict(24)[0] / 16**0.7
    flat = CurveEnsemble(0).fit(trials, np.full(16, 5.0)).predict(24)[0] / 5.0
    assert steep > flat + 0.03


def test_ensemble_is_deterministic_and_survives_one_point() -> None:
    runs = [CurveEnsemble(3).fit(np.array([1.0]), np.array([10.0])).predict(9) for _ in range(2)]
    assert runs[0] == runs[1]
    assert np.isfinite(runs[0]).all()


def test_refits_continue_the_chain() -> None:
    latencies = staircase(40)
    ensemble = CurveEnsemble(0)
    for count in (8, 16, 24, 32, 40):
        trials, speeds = best_so_far(latencies[:count])
        ensemble.fit(trials, speeds)
        assert speeds[-1] <= ensemble.predict(count + 8)[0] < 1.6 * speeds[-1]


def test_errors() -> None:
    with pytest.raises(UsageError, match="before fit"):
        CurveEnsemble(0).predict(8)
