from __future__ import annotations

import numpy as np
import pytest

from costmodels.forest import Forest


@pytest.mark.parametrize("extra", [False, True])
def test_calibration_changes_the_deviation_and_not_the_mean(extra: bool) -> None:
    rng = np.random.default_rng(0)
    features = rng.random((80, 3))
    scores = features[:, 0] + 0.3 * rng.standard_normal(80)
    plain = Forest(0, extra=extra, calibrated=False).fit(features, scores)
    scaled = Forest(0, extra=extra).fit(features, scores)
    assert plain.scale_ == 1.0 != scaled.scale_
    asked = rng.random((20, 3))
    np.testing.assert_array_equal(plain.predict(asked).mean, scaled.predict(asked).mean)
    np.testing.assert_allclose(plain.predict(asked).std * scaled.scale_, scaled.predict(asked).std)
