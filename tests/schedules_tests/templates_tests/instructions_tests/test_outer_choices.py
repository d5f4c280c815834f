"""Choices of whole rows are made in front of them."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import s_tir, te, tirx
from tvm.ir import Call

from schedules.templates.common.structure import is_choice, nodes_below
from schedules.templates.instructions.outer_choices import APART, MOST_LOOPS, choices_in_front
from tests.schedules_tests.programs import from_te

Element = Callable[[te.Tensor, tirx.Var, tirx.Var], tirx.Expr]


def lowered(element: Element) -> tirx.PrimFunc:
    """Loops over (8, 16), of which the inner one is marked."""
    x = te.placeholder((8, 64), name="x")
    sch = s_tir.Schedule(from_te(x, te.compute((8, 16), lambda r, i: element(x, r, i), name="y")))
    sch.annotate(sch.get_loops("y")[-1], APART, 1)
    old = s_tir.transform
    steps = [old.ConvertBlocksToOpaque(), old.LowerOpaqueBlock(), tirx.transform.FlattenBuffer()]
    module: tvm.IRModule = tvm.transform.Sequential(steps)(sch.mod)
    return module["main"]


def loops(func: tirx.PrimFunc) -> list[tirx.For]:
    return [loop for loop in nodes_below(func.body, tirx.For) if isinstance(loop.body, tirx.BufferStore)]


def test_each_side_has_a_loop_of_its_own() -> None:
    func = choices_in_front(lowered(lambda x, r, i: tirx.if_then_else(r < 3, x[r, i * 2], x[r, i * 2 + 1])))
    assert len(loops(func)) == 2
    assert not any(map(is_choice, nodes_below(func.body, Call)))


def test_choices_by_lanes_are_left_to_llvm() -> None:
    def element(x: te.Tensor, r: tirx.Var, i: tirx.Var) -> tirx.Expr:
        return tirx.if_then_else(r < 3, tirx.if_then_else(i < 5, x[r, i], x[r, i + 1]), x[r, i + 2])

    assert len(loops(choices_in_front(lowered(element)))) == 1


def test_many_choices_stay_in_one_loop() -> None:
    def element(x: te.Tensor, r: tirx.Var, i: tirx.Var) -> tirx.Expr:
        value = x[r, i]
        for row in range(MOST_LOOPS):
            value = tirx.if_then_else(r < row + 1, x[r, i * 2 + row], value)
        return value

    assert len(loops(choices_in_front(lowered(element)))) == 1
