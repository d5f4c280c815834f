from __future__ import annotations

import numpy as np
import pytest

from costmodels.curve import POINTS, CurveEnsemble, LeastSquaresCurve, best_so_far, thinned
from costmodels.curve_functions import CURVES
from schedules.errors import UsageError


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


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_curves_rise_from_their_start_and_end_near_one(curve) -> None:  # type: ignore[no-untyped-def]
    start, low, high = (np.array(part) for part in (curve.start, curve.low, curve.high))
    assert ((low < start) & (start < high)).all()
    value = curve.value(np.geomspace(1.0, 200.0, 50), start[None, :])[0]
    assert np.isfinite(value).all()
    assert (np.diff(value) >= -1e-12).all()
    assert 0.5 < value[-1] < 1.5


def test_ensemble_expects_no_less_than_there_is_and_doubts_the_far_future_more() -> None:
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


@pytest.mark.parametrize("name", [curve.name for curve in CURVES])
def test_least_squares_meets_a_curve_of_its_own_family(name: str) -> None:
    curve = next(curve for curve in CURVES if curve.name == name)
    x = np.arange(1.0, 11.0)
    truth = curve.value(np.append(x, 16.0), np.array(curve.start)[None, :])[0]
    fitted = LeastSquaresCurve(name).fit(x, truth[:-1] * 300.0)
    assert fitted.predict(16.0)[0] == pytest.approx(truth[-1] * 300.0, rel=0.05)


def test_errors() -> None:
    with pytest.raises(UsageError, match="before fit"):
        CurveEnsemble(0).predict(8)
    with pytest.raises(UsageError, match="before fit"):
        LeastSquaresCurve().predict(8)
    with pytest.raises(UsageError, match="choose one of"):
        LeastSquaresCurve("pow9")
