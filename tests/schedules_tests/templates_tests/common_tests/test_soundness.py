"""What TVM's schedule steps do without complaint, and what is found of it."""

from __future__ import annotations

from tvm import s_tir, te

from schedules.templates.common.soundness import repeated_sum, unwritten
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te


def padded_relu() -> object:
    x = te.placeholder((4, 8), name="x")
    relu = te.compute((4, 8), lambda i, j: te.max(x[i, j], 0.0), name="relu")
    zero = te.compute((1,), lambda _: 0.0, name="zero")
    padded = te.compute((4, 12), lambda i, j: te.if_then_else(j < 8, relu[i, te.min(j, 7)], zero[0]), name="padded")
    return from_te(x, padded)


def test_sound_programs_have_neither() -> None:
    for case in CASES:
        assert unwritten(case.func) is None, case.name
        assert repeated_sum(case.func) is None, case.name


def test_a_result_whose_loop_is_cut_short_is_found() -> None:
    sch = s_tir.Schedule(padded_relu())
    loop = sch.get_loops(sch.get_sblock("padded"))[-1]
    old = sch.get(loop)
    short = type(old)(old.loop_var, old.min, old.extent - 4, old.kind, old.body, None, old.annotations)
    sch.state.replace(sch.get_sref(loop), short, {})
    assert unwritten(sch.mod["main"]) == "padded"
