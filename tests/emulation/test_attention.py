"""Attention in one kernel, and running sums, on other processors: vectors of 16 numbers are several of theirs."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.lower import BASELINE, lower, normalise
from schedules.target import Target
from schedules.templates.by_hand.plain_attention import PlainShape, plain_attention
from schedules.templates.by_hand.running import Running, running
from tests.emulation.kernels import Kernel, run_emulated
from tests.emulation.test_kernels import emulated
from tests.schedules_tests.templates_tests.by_hand_tests.test_plain_attention import arrays_of, expected

SHAPES = {
    "plain": PlainShape(1, 2, 41, 50, 32, 16, 0.3),
    "masked": PlainShape(2, 2, 33, 70, 16, 16, 0.3, (2, 1, 1, 70), by_head=(True, False, True, True)),
    "masked by row": PlainShape(1, 2, 40, 40, 16, 16, 0.3, (1, 1, 40, 40), zero_unseen=True),
}


@pytest.mark.parametrize("name", SHAPES)
@emulated("neoverse-n2", "rvv128", "rvv256")
def test_attention(target: Target, name: str) -> None:
    shape = SHAPES[name]
    arrays = arrays_of(shape, lambda b, h, row, column: np.where(column > row + 20, -np.inf, 0.25))
    func = lower(normalise(plain_attention(shape)), BASELINE, target).mod["main"]
    (output,) = run_emulated([Kernel(func, arrays)], target)
    np.testing.assert_allclose(output, expected(shape, *arrays), rtol=1e-4, atol=1e-5)


@emulated("neoverse-n2", "rvv128")
def test_running_sums(target: Target) -> None:
    x = np.random.default_rng(0).standard_normal((4, 9, 33)).astype(np.float32)
    func = lower(normalise(running(Running(4, 9, 33, "float32"))), BASELINE, target).mod["main"]
    (output,) = run_emulated([Kernel(func, [x])], target)
    np.testing.assert_allclose(output.reshape(x.shape), np.cumsum(x, 1), rtol=1e-5, atol=1e-5)
