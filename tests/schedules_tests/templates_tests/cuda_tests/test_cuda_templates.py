"""Every GPU template computes what NumPy says: its CUDA source runs on the CPU, for its best guess and others."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm.error import InternalError

from schedules.config import Config
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.programs import Case, inputs, shapes
from tests.schedules_tests.templates_tests.cuda_tests.cases import CASES, HALVES, OTHERS, PRODUCTS, WINDOWS
from tests.schedules_tests.templates_tests.cuda_tests.emulator import emulate

TARGET = Target.cuda("sm_90")

pytestmark = pytest.mark.slow  # a compiler run for every config
RANDOM, MANY = 2, 40


def check(case: Case, config: Config) -> None:
    arrays = inputs(case.func)
    poisoned = np.full(shapes(case.func)[-1], np.nan, np.float32)
    got = emulate(lower(case.func, config, TARGET), TARGET, arrays, poisoned)
    np.testing.assert_allclose(got, case.expected(*arrays), rtol=2e-4, atol=2e-5, err_msg=config.to_json())


@pytest.mark.parametrize("case", [*PRODUCTS, *WINDOWS, *OTHERS], ids=lambda case: case.name)
def test_claimed(case: Case) -> None:
    assert claim(case.func, TARGET).template == case.template


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_untuned(case: Case) -> None:
    check(case, BASELINE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_best_guess(case: Case) -> None:
    space = claim(case.func, TARGET).space
    if space.knobs:
        check(case, space.initial[0])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_configs(case: Case) -> None:
    claimed = claim(case.func, TARGET)
    if not claimed.space.knobs:
        return
    # TVM's own space is mostly launches that its check refuses, and some that it cannot generate code for.
    count = MANY if claimed.template == "cuda_generic" else RANDOM
    tried = 0
    for config in claimed.space.sample(count, np.random.default_rng(7)):
        try:
            check(case, config)
        except (ScheduleError, InternalError):
            assert claimed.template == "cuda_generic", config.to_json()
            continue
        tried += 1
    assert tried


@pytest.mark.parametrize("case", HALVES, ids=lambda case: case.name)
def test_tensor_cores(case: Case) -> None:
    """Products of 16-bit floats are summed in float32: as right as their operands."""
    claimed = claim(case.func, TARGET)
    assert claimed.template == case.template
    dtype = np.dtype(str(case.func.params[0].ty.dtype))
    arrays = [array.astype(dtype) for array in inputs(case.func)]
    want = case.expected(*(array.astype(np.float32) for array in arrays))
    precision = float(ml_dtypes.finfo(dtype).eps)
    for config in (claimed.space.initial[0], BASELINE, *claimed.space.sample(RANDOM, np.random.default_rng(7))):
        poisoned = np.full(shapes(case.func)[-1], np.nan, dtype)
        got = emulate(lower(case.func, config, TARGET), TARGET, arrays, poisoned).astype(np.float32)
        np.testing.assert_allclose(got, want, rtol=2 * precision, atol=precision, err_msg=config.to_json())
