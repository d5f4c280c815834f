"""Choices that are the same for a whole loop, in front of it.

    for k: y[k] = a[2·k] if c < 3 else b[2·k]    →    if c < 3: for k: y[k] = a[2·k]
                                                       else: for k: y[k] = b[2·k]

LLVM makes one loop of such a choice, which chooses an address for every lane and gathers from there.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from schedules.templates.common.structure import is_choice, nodes_below

APART = "tune.apart"
"""Annotation of loops whose choices are to stand in front of them."""

MOST_LOOPS = 6
"""Loops that one becomes. Heuristic: the compiler sees each of them."""


def choices_in_front(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, lowered to loops, with choices in front of the loops that are marked."""

    def apart(loop: tirx.For) -> tirx.Stmt:
        if APART not in loop.annotations or not isinstance(loop.body, tirx.BufferStore):
            return loop
        store, annotations = loop.body, {k: v for k, v in loop.annotations.items() if k != APART}

        def row(value: tirx.Expr) -> tirx.Stmt:
            body = tirx.BufferStore(store.buffer, value, store.indices)
            return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, annotations)

        conditions = _conditions(store.value, loop.loop_var)
        return _chosen(store.value, conditions, row) if len(conditions) < MOST_LOOPS else row(store.value)

    return tvm_ffi.structural_map(func, (tirx.For, apart), order="post")


def _conditions(value: tirx.Expr, var: tirx.Var) -> list[tirx.Expr]:
    """Different conditions of choices in ``value``; none if one of them depends on ``var``: LLVM masks lanes then."""
    different: list[tirx.Expr] = []
    for call in filter(is_choice, nodes_below(value, Call)):
        if any(name.same_as(var) for name in nodes_below(call.args[0], tirx.Var)):
            return []
        if not any(tvm_ffi.structural_equal(call.args[0], other) for other in different):
            different.append(call.args[0])
    return different


def _chosen(value: tirx.Expr, conditions: list[tirx.Expr], row: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
    """The loops of ``value`` below its first condition that is left, outermost choices first."""
    for position, condition in enumerate(conditions):
        sides = [_with(value, condition, index) for index in (1, 2)]
        if not any(tvm_ffi.structural_equal(side, value) for side in sides):
            rest = conditions[position + 1 :]
            return tirx.IfThenElse(condition, *(_chosen(side, rest, row) for side in sides))
    return row(value)


def _with(value: tirx.Expr, condition: tirx.Expr, index: int) -> tirx.Expr:
    """``value`` with the argument ``index`` of every choice by ``condition``."""

    def side(call: Call) -> tirx.Expr:
        return call.args[index] if is_choice(call) and tvm_ffi.structural_equal(call.args[0], condition) else call

    return tvm_ffi.structural_map(value, (Call, side), order="post")
