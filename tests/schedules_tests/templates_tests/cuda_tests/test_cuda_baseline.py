"""The untuned GPU program: one kernel per stage, and a refusal of what no thread can run."""

from __future__ import annotations

import pytest

from schedules.lower import BASELINE, lower
from schedules.target import Target
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.templates_tests.cuda_tests.cases import PRODUCTS

TARGET = Target.cuda("sm_90")


def test_every_stage_is_bound_to_blocks_and_threads() -> None:
    program = str(lower(PRODUCTS[0].func, BASELINE, TARGET).mod.script())
    assert program.count('thread="blockIdx.x"') == program.count('thread="threadIdx.x"') > 0


def test_a_sum_of_everything_runs_in_one_thread() -> None:
    func = next(case.func for case in CASES if case.name == "generic_sum_all")
    assert 'thread="threadIdx.x"' in str(lower(func, BASELINE, TARGET).mod.script())
    with pytest.raises(ScheduleError, match="no template of this function"):
        lower(func, type(BASELINE)("rows/1", ()), TARGET)
