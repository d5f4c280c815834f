"""Maxima and minima of CUDA sources keep NaN: C's ``max`` would return the other operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from tests.schedules_tests.programs import Array, from_te
from tests.schedules_tests.templates_tests.cuda_tests.emulator import emulate

TARGET = Target.cuda("sm_90")
X = np.array([np.nan, 1, np.nan, -np.inf, np.inf, -2, 0, 7, 5, np.inf] * 16, np.float32)
Y = np.array([1, np.nan, np.nan, 3, 8, np.inf, -1, 2, 5, np.inf] * 16, np.float32)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda x, y: tirx.max(x, tirx.const(0, "float32")), np.maximum(X, 0)),
        (lambda x, y: tirx.min(tirx.max(x, tirx.const(0, "float32")), tirx.const(6, "float32")), np.clip(X, 0, 6)),
        (lambda x, y: tirx.max(x, y), np.maximum(X, Y)),
        (lambda x, y: tirx.min(x, y), np.minimum(X, Y)),
    ],
)
@pytest.mark.parametrize("tuned", [False, True])
def test_either_nan_is_the_result(expression: Callable[..., tirx.Expr], expected: Array, tuned: bool) -> None:
    x, y = (te.placeholder(X.shape, name=name) for name in "xy")
    func = from_te(x, y, te.compute(X.shape, lambda i: expression(x[i], y[i]), name="z"))
    config = claim(func, TARGET).space.initial[0] if tuned else BASELINE
    result = emulate(lower(func, config, TARGET), TARGET, [X, Y], np.full_like(X, -5))
    np.testing.assert_array_equal(result, expected)
