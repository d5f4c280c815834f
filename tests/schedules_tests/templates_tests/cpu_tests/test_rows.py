"""The space of ``rows``: vectors that fit a row, and threads only where there are several rows."""

from __future__ import annotations

import numpy as np
from tvm import te

from schedules.lower import claim
from schedules.target import Target
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, inputs, run

TARGET = Target(kind="llvm", isa="avx512", threads=2)


def choices(name: str) -> dict[str, tuple]:
    func = next(case.func for case in CASES if case.name == name)
    return {knob.name: knob.choices for knob in claim(func, TARGET).space.knobs}


def test_vectors_divide_a_row_where_any_does() -> None:
    assert choices("rows_softmax")["vector"] == (8, 16)  # rows of 48
    assert choices("rows_softmax_prime")["vector"] == (8, 16, 32)  # rows of 37, their ends apart


def test_rows_are_reduced_together_only_along_a_kept_axis() -> None:
    assert choices("rows_softmax")["tile"] == (1,)
    assert max(choices("rows_blocked_mean")["tile"]) > 1


def test_a_row_that_half_a_register_divides_is_several_halves_at_once() -> None:
    x, z, k = te.placeholder((1, 30), name="x"), te.placeholder((30, 200), name="z"), te.reduce_axis((0, 30), "k")
    func = from_te(x, z, te.compute((1, 200), lambda i, j: te.sum(x[i, k] * z[k, j], k), name="y"))
    space, arrays = claim(func, TARGET).space, inputs(func)
    assert space.initial[0].integer("vector") == 40
    for config in map(space.config, space.rows):
        assert np.allclose(run(func, config, TARGET, arrays), arrays[0] @ arrays[1], rtol=1e-5)
