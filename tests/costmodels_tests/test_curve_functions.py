from __future__ import annotations

import numpy as np
import pytest

from costmodels.curve_functions import CURVES


@pytest.mark.parametrize("name", CURVES)
def test_curves_rise_from_their_start_and_end_near_one(name: str) -> None:
    curve = CURVES[name]
    start, low, high = (np.array(part) for part in (curve.start, curve.low, curve.high))
    assert ((low < start) & (start < high)).all()
    value = curve.value(np.geomspace(1.0, 200.0, 50), start[None, :])[0]
    assert np.isfinite(value).all()
    assert (np.diff(value) >= -1e-12).all()
    assert 0.5 < value[-1] < 1.5
