"""Values are bound once, and long chains of bindings are kept in buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir.expr import TensorLoad

from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.common.structure import blocks_in_order, nodes_below
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.bindings import bound_in_memory, read_once
from tests.schedules_tests.programs import from_te

WIDE = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512")
FUNCTIONS: dict[str, tuple[Callable[[tirx.Expr], tirx.Expr], Callable[[np.ndarray], np.ndarray]]] = {
    "tanh": (te.tanh, np.tanh),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
}


def chain(name: str, count: int, size: int = 64) -> tirx.PrimFunc:
    x = te.placeholder((size,), name="x")

    def element(i: tirx.Var) -> tirx.Expr:
        value = x[i]
        for _ in range(count):
            value = FUNCTIONS[name][0](value)
        return value

    return vector_math(from_te(x, te.compute((size,), element, name="y")))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_seven_functions_in_a_row_are_compiled_and_right(name: str) -> None:
    """What is written out would be 24⁷ names long."""
    sch = s_tir.Schedule(chain(name, 7))
    _, lanes = sch.split(sch.get_loops("y")[0], [None, 16])
    sch.vectorize(lanes)
    text = str(compiled(sch.mod["main"], "main", tvm_target(WIDE)).mod.inspect_source("asm"))
    assert "zmm" in text
    host = Target(kind="llvm", isa="generic")
    values, result = np.linspace(-4, 4, 64).astype(np.float32), tvm.runtime.tensor(np.zeros(64, np.float32))
    compiled(chain(name, 7), "main", tvm_target(host))["main"](tvm.runtime.tensor(values), result)
    expected = values.astype(np.float64)
    for _ in range(7):
        expected = FUNCTIONS[name][1](expected)
    np.testing.assert_allclose(result.numpy(), expected, rtol=3e-6)


def test_one_function_is_left_as_it_is() -> None:
    func = chain("tanh", 1)
    assert tvm_ffi.structural_equal(bound_in_memory(func), func)
    assert not nodes_below(bound_in_memory(func), tirx.AllocBuffer)
    assert nodes_below(bound_in_memory(chain("tanh", 4)), tirx.AllocBuffer)


def test_what_a_choice_binds_stays_there() -> None:
    """The other side may read outside of its tensor."""
    x = te.placeholder((8,), name="x")
    deep = chain("tanh", 4).body
    values = nodes_below(deep, tirx.BufferStore)[0].value
    assert isinstance(values, tirx.Let)

    def element(i: tirx.Var) -> tirx.Expr:
        value: tirx.Expr = tirx.if_then_else(i < 4, te.exp(x[i + 4]), tirx.const(0, "float32"))
        for _ in range(4):
            value = te.tanh(value)
        return value

    func = vector_math(from_te(x, te.compute((8,), element, name="y")))
    array, result = np.linspace(-1, 1, 8).astype(np.float32), tvm.runtime.tensor(np.zeros(8, np.float32))
    module = compiled(func, "main", tvm_target(Target(kind="llvm", isa="generic")))
    module["main"](tvm.runtime.tensor(array), result)
    expected = np.concatenate([np.exp(array[4:].astype(np.float64)), np.zeros(4)])
    for _ in range(4):
        expected = np.tanh(expected)
    np.testing.assert_allclose(result.numpy(), expected, rtol=3e-6, atol=1e-7)


def test_a_stages_result_is_read_once() -> None:
    x = te.placeholder((8,), name="x")
    s = te.compute((8,), lambda i: x[i] + 1.0, name="s")
    y = te.compute((8,), lambda i: s[i] * s[i] + s[7 - i] * x[i] * x[i], name="y")
    *_, last = blocks_in_order(read_once(from_te(x, y)))
    names = [load.source.name for load in nodes_below(last.body.value, TensorLoad)]
    assert sorted(names) == ["s", "s", "x", "x"]


def test_what_only_one_side_of_a_choice_reads_is_not_bound() -> None:
    x = te.placeholder((8,), name="x")
    s = te.compute((8,), lambda i: x[i] + 1.0, name="s")
    y = te.compute((8,), lambda i: tirx.if_then_else(i < 4, s[i + 4] * s[i + 4], x[i]), name="y")
    func = from_te(x, y)
    assert tvm_ffi.structural_equal(read_once(func), func)
