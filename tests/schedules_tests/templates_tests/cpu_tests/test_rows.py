"""The space of ``rows``: vectors that fit a row, and threads only where there are several rows."""

from __future__ import annotations

from schedules.lower import claim
from schedules.target import Target
from tests.schedules_tests.cases import CASES

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
