"""Chains of stages without a reduction."""

from __future__ import annotations

import numpy as np
from tvm import te

from schedules.lower import claim, lower
from schedules.target import Target
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, run

WIDE = Target(kind="llvm", isa="avx512", threads=2)


def test_what_would_grow_is_not_inlined() -> None:
    case = next(case for case in CASES if case.name == "elementwise_growing")
    space = claim(case.func, WIDE).space
    assert len(str(lower(case.func, space.initial[0], WIDE).mod)) < 20_000


def test_a_small_tensor_stays_on_one_thread_at_first() -> None:
    case = next(case for case in CASES if case.name == "elementwise_chain")
    space = claim(case.func, WIDE).space
    assert space.initial[0].integer("chunks") == 1
    assert {config.integer("chunks") for config in map(space.config, space.rows)} == {1, 2, 8, 32}


def test_a_tensor_of_one_number_has_a_kernel() -> None:
    """Every config of a scale that is computed when a model runs, whose stages may have no loop at all."""
    x = te.placeholder((), "float32", name="x")
    func = from_te(x, te.compute((), lambda: x() * 3.0, name="y"))
    space = claim(func, WIDE).space
    for config in map(space.config, space.rows):
        assert run(func, config, WIDE, [np.array(2, np.float32)]) == 6
