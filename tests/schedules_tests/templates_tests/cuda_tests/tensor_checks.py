"""Checks of every product on tensor cores, emulated."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from schedules.config import Config
from schedules.lower import BASELINE, lower
from schedules.target import Target
from tests.schedules_tests.programs import Array, Case, dtypes, inputs, shapes
from tests.schedules_tests.templates_tests.cuda_tests.emulator import Emulated

TF32_EPS = 2.0**-10


def assert_product(case: Case, arrays: list[Array], got: Array, config: Config) -> None:
    """Compare a product with NumPy's: integers exactly, others within two roundings of their operands' type."""
    if got.dtype.kind in "iu":
        want = case.expected(*(array.astype(np.int64) for array in arrays))
        np.testing.assert_array_equal(got, want, err_msg=config.to_json())
        return
    want = case.expected(*(array.astype(np.float32) for array in arrays))
    rounds = case.name.startswith("tf32")
    # The untuned program does not round the operands of TF32.
    eps = (TF32_EPS if config == BASELINE else 1e-5) if rounds else float(ml_dtypes.finfo(arrays[0].dtype).eps)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=2 * eps, atol=eps, err_msg=config.to_json())


def check_tensor(case: Case, config: Config, target: Target) -> None:
    """Compare with NumPy, and count the ways of accesses to shared memory."""
    arrays = inputs(case.func)
    poisoned = np.full(shapes(case.func)[-1], -77, dtypes(case.func)[-1])
    emulated = Emulated(lower(case.func, config, target), target)
    assert_product(case, arrays, emulated(arrays, poisoned), config)
    conflicts = emulated.conflicts()
    if config != BASELINE:
        assert conflicts["ldmatrix"][0] > 0
    assert all(ways <= 1 for _, ways in conflicts.values()), (conflicts, config.to_json())
