"""The untuned program: parallel outside, vectors inside, and what resists left alone."""

from __future__ import annotations

from schedules.target import Target
from schedules.templates.cpu.baseline import baseline
from tests.schedules_tests.cases import CASES

TARGET = Target("llvm", isa="avx2", threads=2)


def text(name: str) -> str:
    return str(baseline(next(case.func for case in CASES if case.name == name), TARGET).mod.script())


def test_outer_axes_run_in_parallel_and_the_inner_one_as_vectors() -> None:
    program = text("conv2d_1x1")
    assert "T.parallel(" in program
    assert "T.vectorized(" in program


def test_a_sum_of_everything_has_no_axis_to_share() -> None:
    assert "T.parallel(" not in text("generic_sum_all")
