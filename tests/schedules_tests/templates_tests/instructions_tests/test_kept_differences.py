"""Differences of floats are rounded as they are written, infinities and NaN among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.kept_differences import differences_kept
from tests.schedules_tests.programs import Array, from_relax, from_te

MAGIC = np.float32(1.5 * 2.0**23)
X = np.array([0.3, -1.7, 2.5, 3.5, 1e9, -7e8, np.nan, np.inf, -np.inf, 1, 0, -0.0, 3e38, 1e-45, 5, 6], np.float32)
Y = np.array([1e9, 3e7, 0.1, np.inf, np.inf, 1, 1, 0, -np.inf, np.nan, 0, 0, 3e38, 1, -5, 1e30], np.float32)

CASES: dict[str, Callable[..., Any]] = {
    "rounded": lambda x, c, _: (x + c) - c,
    "rounded from the left": lambda x, c, _: (c + x) - c,
    "without the number": lambda x, c, _: (x + c) - x,
    "a product": lambda x, y, c, _: x * y - x * y,
    "a choice": lambda x, y, c, choose: choose(x < y, x, x) - x,
    "left": lambda x, y, c, _: (x + y) - y,
    "right": lambda x, y, c, _: x - (x + y),
    "the error of a sum": lambda x, y, c, _: (x - ((x + y) - ((x + y) - x))) + (y - ((x + y) - x)),
}


def inlined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with all stages in its last one, as templates have them."""
    sch = s_tir.Schedule(func)
    *stages, _ = sch.get_child_blocks(sch.get_sblock("root"))
    for stage in stages:
        sch.compute_inline(stage)
    return sch.mod["main"]


def result(func: tirx.PrimFunc, *arrays: Array) -> Array:
    out = tvm.runtime.tensor(np.zeros_like(arrays[0]))
    module = compiled(func, "main", tvm_target(Target(kind="llvm", isa="generic")))
    module["main"](*map(tvm.runtime.tensor, arrays), out)
    return np.asarray(out.numpy())


@pytest.mark.parametrize("name", CASES)
def test_differences_have_the_bits_of_ieee_arithmetic(name: str) -> None:
    def choice(condition: relax.Expr, *sides: relax.Expr) -> relax.Expr:
        return relax.op.where(condition, *sides)

    case = CASES[name]
    arrays = (X, Y)[: case.__code__.co_argcount - 2]
    func = from_relax(lambda *values: case(*values, relax.const(MAGIC), choice), *(array.shape for array in arrays))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = case(*arrays, MAGIC, np.where)
    np.testing.assert_array_equal(result(inlined(func), *arrays), expected)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_differences_of_unrelated_values_stay(dtype: str) -> None:
    x, y = (te.placeholder(X.shape, dtype, name=name) for name in "xy")
    func = from_te(x, y, te.compute(X.shape, lambda i: x[i] * 2 - y[i], name="z"))
    assert tvm_ffi.structural_equal(differences_kept(func), func)
