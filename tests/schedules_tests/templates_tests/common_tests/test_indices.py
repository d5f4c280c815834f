"""Quotients and remainders in indices, where TVM's simplifiers lose what is added or subtracted."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te, tirx
from tvm.script import tirx as T  # noqa: N812

from schedules.lower import BASELINE, claim
from schedules.target import Target
from schedules.templates.common.indices import both_sides, conditions_in_order, exact_indices
from schedules.templates.common.structure import nodes_below
from tests.schedules_tests.programs import from_te, inputs, run

ROWS, SHIFT = 8, 200
LONG = 420


def picked(width: int, factor: int, constant: int, divisor: int, remainder: bool) -> tirx.PrimFunc:
    """y[a, b] = x[(constant + factor · b) over or modulo divisor, + SHIFT], in one loop."""
    long, rows, columns = (tirx.IntImm("int64", size) for size in (LONG, ROWS, width))
    x = te.placeholder((long,), name="x")

    def element(_: tirx.Var, b: tirx.Var) -> tirx.Expr:
        at = tirx.IntImm("int64", constant) + b * tirx.IntImm("int64", factor)
        return x[(tirx.floormod if remainder else tirx.floordiv)(at, tirx.IntImm("int64", divisor)) + SHIFT]

    return te.create_prim_func([x, te.compute((rows, columns), element, name="y")])


def fused(func: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc:
    sch = s_tir.Schedule(func)
    loop = sch.fuse(*sch.get_loops(sch.get_sblock("y")))
    if lanes > 1:
        sch.vectorize(sch.split(loop, [None, lanes])[1])
    return sch.mod["main"]


def computed(func: tirx.PrimFunc, width: int) -> np.ndarray:
    x, y = (
        tvm.runtime.tensor(np.arange(LONG, dtype=np.float32)),
        tvm.runtime.tensor(np.zeros((ROWS, width), np.float32)),
    )
    tvm.compile(tvm.IRModule({"main": func}), target="llvm")(x, y)
    return y.numpy()


def expected(width: int, factor: int, constant: int, divisor: int, remainder: bool) -> np.ndarray:
    at = constant + factor * np.arange(width)
    row = (at % divisor if remainder else at // divisor) + SHIFT
    return np.broadcast_to(row, (ROWS, width)).astype(np.float32)


@settings(max_examples=60)
@given(
    st.sampled_from((3, 4, 13, 22)),
    st.sampled_from((-3, -2, -1, 1, 2)),
    st.integers(-30, 30),
    st.sampled_from((2, 3, 4, 13, 26)),
    st.booleans(),
    st.sampled_from((1, 1, 4)),
)
def test_indices_are_exact(width: int, factor: int, constant: int, divisor: int, remainder: bool, lanes: int) -> None:
    shape = (width, factor, constant, divisor, remainder)
    func = exact_indices(fused(picked(*shape), lanes))
    np.testing.assert_array_equal(computed(func, width), expected(*shape))


@pytest.mark.parametrize("shape", [(13, -1, 14, 13, True)])
def test_tvm_alone_is_wrong_here(shape: tuple[int, int, int, int, bool]) -> None:
    """Fails when TVM has mended it: then ``schedules/indices.py`` can go."""
    assert not np.array_equal(computed(fused(picked(*shape), 1), shape[0]), expected(*shape))


def test_indices_without_constants_stay_as_they_are() -> None:
    func = fused(picked(13, 2, 0, 4, True), 1)
    assert tvm_ffi.structural_equal(func, exact_indices(func))


@T.prim_func(s_tir=True)
def shuffled(x: T.Buffer((T.int64(64),), "float32"), y: T.Buffer((T.int64(4), T.int64(16)), "float32")):
    for a, b in T.grid(T.int64(4), T.int64(16)):
        with T.sblock("y"):
            v, w = T.axis.remap("SS", [a, b])
            y[v, w] = x[(v * T.int64(16) + w + T.int64(16)) // T.int64(16) + (v * T.int64(16) + w) % T.int64(16)]


def test_a_constant_that_divides_is_taken_out() -> None:
    text = exact_indices(shuffled).script()
    assert "//" not in text


def test_what_is_not_chosen_reads_within_its_tensor() -> None:
    """TVM takes i for i % 256 where i < 256 is chosen, and LLVM reads that for every i."""
    few, many = te.placeholder((256,), name="few"), te.placeholder((1024,), name="many")
    chosen = te.compute((1024,), lambda i: tirx.Select(i < 256, few[i % 256], many[i]), name="chosen")
    func, target = from_te(few, many, chosen), Target(kind="llvm", isa="avx2", threads=1)
    arrays = inputs(func)
    space = claim(func, target).space
    for config in (space.initial[0], *space.sample(3, np.random.default_rng(0))):
        result = run(func, config, target, arrays)  # ends the process where something else is read
        np.testing.assert_array_equal(result, np.r_[arrays[0], arrays[1][256:]])


def test_only_choices_that_say_something_about_indices_are_opaque() -> None:
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="y")
    at = te.placeholder((64,), "int32", name="at")
    conditions = {
        "index": lambda i: tirx.Select(i < 32, x[i], y[i]),
        "gather": lambda i: tirx.Select(at[i] > 0, x[at[i]], y[i]),
        "data": lambda i: tirx.Select(x[i] > 0.0, x[i], y[i]),
        "numbers": lambda i: x[i] + tirx.Select(i < 32, 1.0, 2.0),
    }
    opaque = set()
    for name, element in conditions.items():
        func = both_sides(from_te(x, y, at, te.compute((64,), element, name="z")))
        (choice,) = nodes_below(func, tirx.Select)
        if not isinstance(choice.condition, tirx.LT | tirx.GT):
            opaque.add(name)
    assert opaque == {"index", "gather"}


@pytest.mark.parametrize("kind", [tirx.And, tirx.Or])
def test_elements_in_conditions_are_read_where_the_rest_holds(kind: type) -> None:
    """TVM joins two conditions, one within the other, and LLVM would read x up to 640."""
    x = te.placeholder((400,), name="x")

    def element(i: tirx.Var) -> tirx.Expr:
        positive = tirx.if_then_else(x[i] > 0.5, 1.0, 2.0)
        if kind is tirx.And:
            return tirx.if_then_else(i < 400, positive, 2.0)
        return tirx.if_then_else(i >= 400, 1.0, positive)

    func, target = from_te(x, te.compute((640,), element, name="y")), Target(kind="llvm", isa="avx2", threads=1)
    (values,) = inputs(func)
    result = run(func, BASELINE, target, [values])  # ends the process where something else is read
    np.testing.assert_array_equal(result[:400], np.where(values > 0.5, 1, 2))
    np.testing.assert_array_equal(result[400:], 2 if kind is tirx.And else 1)


def test_statements_read_elements_of_their_conditions_in_order() -> None:
    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((10,), "float32"), y: T.Buffer((16,), "float32")) -> None:
        for i in range(16):
            if x[i] > T.float32(0.5) and i < 10:
                y[i] = T.float32(1)

    (outer, inner) = nodes_below(conditions_in_order(func), tirx.IfThenElse)
    outer, inner = (outer, inner) if nodes_below(outer, tirx.IfThenElse)[1:] else (inner, outer)
    assert isinstance(outer.condition, tirx.LT)
    assert isinstance(inner.condition, tirx.GT)
    assert outer.then_case.same_as(inner)
