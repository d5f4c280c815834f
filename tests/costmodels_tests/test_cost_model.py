from __future__ import annotations

import numpy as np
import pytest

from costmodels.cost_model import Prediction
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(("mean", "std"), [((3,), (2,)), ((3, 1), (3, 1))], ids=["lengths differ", "matrix"])
def test_a_prediction_checks_its_shapes(mean: tuple[int, ...], std: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="one-dimensional and alike"):
        Prediction(np.zeros(mean), np.ones(std))
