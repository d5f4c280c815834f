"""The untuned program: parallel outside, vectors inside, and what resists left alone."""

from __future__ import annotations

from tvm import te

from schedules.target import Target
from schedules.templates.cpu.baseline import LEAST_PARALLEL, baseline
from tests.schedules_tests.cases import CASES

TARGET = Target("llvm", isa="avx2", threads=2)


def text(name: str) -> str:
    return str(baseline(next(case.func for case in CASES if case.name == name), TARGET).mod.script())


def test_outer_axes_run_in_parallel_and_the_inner_one_as_vectors() -> None:
    program = text("conv2d_1x1")
    assert "T.parallel(" in program
    assert "T.vectorized(" in program


def test_one_thread_runs_what_takes_it_no_longer_than_waking_another() -> None:
    def rows(count: int) -> str:
        x = te.placeholder((count, 8), "float32", name="x")
        func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")])
        return str(baseline(func, TARGET).mod.script())

    assert "T.parallel(" not in rows(LEAST_PARALLEL // 8 - 1)
    assert "T.parallel(" in rows(LEAST_PARALLEL // 8)


def test_a_sum_of_everything_has_no_axis_to_share() -> None:
    assert "T.parallel(" not in text("generic_sum_all")
