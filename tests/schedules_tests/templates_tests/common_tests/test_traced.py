"""Schedules as traces: one that leads somewhere is replayed, one that does not is refused."""

from __future__ import annotations

import json

import pytest
import tvm_ffi
from tvm import s_tir

from schedules.lower import claim, lower, normalise
from schedules.target import Target
from schedules.templates.common.traced import replayed, trace_of, whole_trace
from schedules.traces import checked_trace
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import CASES

FUNC = next(case.func for case in CASES if case.name == "elementwise_transpose")


def scheduled() -> s_tir.Schedule:
    sch = s_tir.Schedule(FUNC)
    block = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    sch.parallel(sch.get_loops(block)[0])
    return sch


def test_a_trace_leads_from_the_function_to_the_schedule() -> None:
    sch = scheduled()
    trace = whole_trace(FUNC, sch)
    assert trace == trace_of(sch)
    assert tvm_ffi.structural_equal(replayed(FUNC, trace).mod["main"], sch.mod["main"])


@pytest.mark.parametrize("trace", ["", "[]", "{}", '[[["GetSBlock", [], ["magic", "main"], ["b0"]]], []]'])
def test_text_that_is_no_trace_of_the_function_is_refused(trace: str) -> None:
    with pytest.raises(ScheduleError, match="the trace"):
        replayed(FUNC, trace)


TARGET = Target.cpu("znver4", 2)
CLAIMED = {claim(normalise(case.func), TARGET).template: normalise(case.func) for case in CASES}


@pytest.mark.parametrize("template", CLAIMED)
def test_what_templates_write_down_is_accepted(template: str) -> None:
    space = claim(CLAIMED[template], TARGET).space
    if space.knobs:
        text = trace_of(lower(CLAIMED[template], space.initial[0], TARGET))
        assert checked_trace(text) == json.loads(text)
