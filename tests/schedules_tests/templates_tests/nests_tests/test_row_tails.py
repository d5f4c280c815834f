"""Rows that no vector divides: split in two stages, they compute the same."""

from __future__ import annotations

import numpy as np
import tvm

from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.common.row_analysis import rows_of
from schedules.templates.common.structure import blocks_in_order
from schedules.templates.cpu.passes import compiled
from schedules.templates.nests.row_tails import split_tails
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import inputs, shapes

CASE = next(case for case in CASES if case.name == "rows_sum")
TARGET = tvm_target(Target("llvm", isa="avx2"))


def test_a_sum_over_fifty_is_a_sum_over_forty_eight_and_a_rest() -> None:
    assert rows_of(CASE.func).splits
    halves = split_tails(CASE.func, 8)
    assert len(blocks_in_order(halves)) == 2
    arrays = inputs(CASE.func)
    output = tvm.runtime.tensor(np.full(shapes(CASE.func)[-1], np.nan, np.float32))
    compiled(halves, "main", TARGET)(*map(tvm.runtime.tensor, arrays), output)
    np.testing.assert_allclose(output.numpy(), CASE.expected(*arrays), rtol=1e-5)


def test_rows_that_a_vector_divides_stay_whole() -> None:
    func = next(case.func for case in CASES if case.name == "rows_softmax_prime")  # rows of 37
    assert len(blocks_in_order(split_tails(func, 37))) == len(blocks_in_order(func))
    assert len(blocks_in_order(split_tails(func, 8))) == len(blocks_in_order(func)) + 2
