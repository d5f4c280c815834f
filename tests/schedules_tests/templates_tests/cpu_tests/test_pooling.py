"""Pooling: a space without a filter, and no padded copy's place where nothing is padded."""

from __future__ import annotations

from schedules.lower import claim
from schedules.target import Target
from tests.schedules_tests.cases import CASES

TARGET = Target("llvm", isa="avx512", threads=2)


def test_where_padding_happens_is_a_knob_only_where_something_is_padded() -> None:
    choices = {}
    for case in (case for case in CASES if case.template == "pool"):
        knobs = {knob.name: knob.choices for knob in claim(case.func, TARGET).space.knobs}
        assert sorted(knobs) == ["pad", "rows", "tw"]
        choices[case.name] = knobs["pad"]
    assert choices["pool_max"] == (0, 1)
    assert choices["pool_average"] == (0,)
