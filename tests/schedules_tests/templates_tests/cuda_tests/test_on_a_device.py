"""Every GPU template computes on the device of this machine what NumPy says; skipped where there is none.

The same cases run everywhere with the emulator; what hardware adds is told here: alignment, races, limits of a launch.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir

from autotune.backends.cuda.device import device_target
from autotune.backends.cuda.nvrtc import compile_kernels
from schedules.config import Config
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from tests.schedules_tests.programs import Array, Case, dtypes, inputs, shapes
from tests.schedules_tests.templates_tests.cuda_tests.cases import CASES, TENSOR
from tests.schedules_tests.templates_tests.cuda_tests.tensor_checks import assert_product

pytestmark = pytest.mark.gpu
RANDOM = 12


@pytest.fixture(scope="module")
def target() -> Target:
    return device_target()


def run(sch: s_tir.Schedule, target: Target, arrays: list[Array], output: Array) -> Array:
    """``output`` after running the schedule on the device."""
    kernel = compile_kernels({"kernel": sch.mod["main"]}, target)[0]["kernel"]
    arguments = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in (*arrays, output)]
    kernel(*arguments)
    return arguments[-1].numpy()


def configs(case: Case, target: Target) -> list[Config]:
    space = claim(case.func, target).space
    return (
        [BASELINE, *space.initial[:1], *space.sample(RANDOM, np.random.default_rng(7))] if space.knobs else [BASELINE]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_float32(case: Case, target: Target) -> None:
    arrays = inputs(case.func)
    want = case.expected(*arrays)
    for config in configs(case, target):
        poisoned = np.full(shapes(case.func)[-1], np.nan, np.float32)
        got = run(lower(case.func, config, target), target, arrays, poisoned)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=config.to_json())


@pytest.mark.parametrize("case", TENSOR, ids=lambda case: case.name)
def test_tensor_cores(case: Case, target: Target) -> None:
    arrays = inputs(case.func)
    for config in configs(case, target):
        poisoned = np.full(shapes(case.func)[-1], -77, dtypes(case.func)[-1])
        got = run(lower(case.func, config, target), target, arrays, poisoned)
        assert_product(case, arrays, got, config)
