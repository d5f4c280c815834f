"""Every GPU template computes what NumPy says: its CUDA source runs on the CPU, for its best guess and others."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.config import Config
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from tests.schedules_tests.programs import Case, inputs, shapes
from tests.schedules_tests.templates_tests.cuda_tests.cases import (
    CASES,
    FEW,
    OTHERS,
    PRODUCTS,
    RECURRENT,
    TENSOR,
    WINDOWS,
)
from tests.schedules_tests.templates_tests.cuda_tests.emulator import emulate
from tests.schedules_tests.templates_tests.cuda_tests.tensor_checks import check_tensor

TARGET = Target.cuda("sm_90")

pytestmark = pytest.mark.slow  # a compiler run for every config
RANDOM = 2


def check(case: Case, config: Config) -> None:
    arrays = inputs(case.func)
    poisoned = np.full(shapes(case.func)[-1], np.nan, np.float32)
    got = emulate(lower(case.func, config, TARGET), TARGET, arrays, poisoned)
    np.testing.assert_allclose(got, case.expected(*arrays), rtol=2e-4, atol=2e-5, err_msg=config.to_json())


@pytest.mark.parametrize("case", [*PRODUCTS, *FEW, *WINDOWS, *OTHERS, *RECURRENT], ids=lambda case: case.name)
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
    for config in claimed.space.sample(RANDOM, np.random.default_rng(7)):
        check(case, config)


@pytest.mark.parametrize("case", TENSOR, ids=lambda case: case.name)
def test_tensor_cores(case: Case) -> None:
    """Products are as right as their operands, and of integers exact; no access to shared memory waits for another."""
    claimed = claim(case.func, TARGET)
    assert claimed.template == case.template
    tuned = (claimed.space.initial[0], *claimed.space.sample(RANDOM, np.random.default_rng(7)))
    for config in (BASELINE, *tuned):
        check_tensor(case, config, TARGET)
