"""Concatenation as a kernel: its numbers, and by what it is recognised."""

from __future__ import annotations

import numpy as np
from tvm import te

from schedules.lower import BASELINE
from schedules.target import Target
from schedules.templates.common.concat import concat, concat_axis
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, inputs, run

SIZES = ((2, 3, 4), (2, 1, 4), (2, 5, 4))


def joined() -> object:
    parts = [te.placeholder(size, name=f"p{index}") for index, size in enumerate(SIZES)]
    return from_te(*parts, concat(parts, 1))


def test_parts_lie_one_after_the_other() -> None:
    given = inputs(joined())
    found = run(joined(), BASELINE, Target("llvm", isa="avx2"), given)
    np.testing.assert_array_equal(found, np.concatenate(given, 1))


def test_only_a_concatenation_has_an_axis() -> None:
    assert concat_axis(joined()) == 1
    assert all(concat_axis(case.func) is None for case in CASES[:3])
