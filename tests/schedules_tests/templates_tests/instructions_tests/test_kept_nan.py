"""Maxima and minima keep NaN where ONNX Runtime does, and for no more instructions where one side is a constant."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.kept_nan import nan_kept
from tests.schedules_tests.programs import Array, from_te

NAN, INF = np.nan, np.inf
X = np.array([NAN, NAN, 1, NAN, INF, -INF, -0.0, 3e38, -3e38, 1e-45, -1, 2, 0, NAN, -2, 0.5], np.float32)
Y = np.array([NAN, 1, NAN, -INF, NAN, 0, 0, 1, -INF, 0, -2, 2, 0, INF, NAN, -0.5], np.float32)

with np.errstate(invalid="ignore"):
    PRODUCT = X * Y

ZERO, SIX = tirx.const(0, "float32"), tirx.const(6, "float32")

Expression = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


def kernel(expression: Expression, dtype: str = "float32") -> tirx.PrimFunc:
    x, y = (te.placeholder(X.shape, name=name) for name in "xy")
    return from_te(x, y, te.compute(X.shape, lambda i: expression(x[i], y[i]).astype(dtype), name="z"))


def result(func: tirx.PrimFunc, *arrays: Array) -> Array:
    target = tvm_target(Target(kind="llvm", isa="generic"))
    param = func.params[-1].ty
    out = tvm.runtime.tensor(np.zeros([int(extent) for extent in param.shape], str(param.dtype)))
    compiled(func, "main", target)["main"](*map(tvm.runtime.tensor, arrays), out)
    return np.asarray(out.numpy())


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda x, y: tirx.max(x, ZERO), np.maximum(X, 0)),
        (lambda x, y: tirx.max(ZERO, x), np.maximum(X, 0)),
        (lambda x, y: tirx.min(x, SIX), np.minimum(X, 6)),
        (lambda x, y: tirx.min(tirx.max(x, ZERO), SIX), np.clip(X, 0, 6)),
        (lambda x, y: tirx.max(tirx.min(x * y, SIX), ZERO), np.clip(PRODUCT, 0, 6)),
        (lambda x, y: tirx.max(x, y), np.maximum(X, Y)),
        (lambda x, y: tirx.min(x + ZERO, y), np.minimum(X, Y)),
        (lambda x, y: tirx.max(tirx.max(x, y), tirx.min(y, x)), np.maximum(np.maximum(X, Y), np.minimum(X, Y))),
        (lambda x, y: tirx.max(x, tirx.const(NAN, "float32")), X * NAN),
        (lambda x, y: tirx.max(tirx.const(NAN, "float32"), x), X * NAN),
    ],
)
def test_either_nan_is_the_result(expression: Expression, expected: Array) -> None:
    np.testing.assert_array_equal(result(kernel(expression), X, Y), expected)


def test_negative_zero_passes_a_relu() -> None:
    """As in ONNX Runtime."""
    relu = result(kernel(lambda x, y: tirx.max(x, ZERO)), X, Y)
    assert np.signbit(relu[X == 0]).tolist() == [True, False]


def test_what_becomes_an_integer_takes_the_limit() -> None:
    def limited(x: tirx.Expr, _: tirx.Expr) -> tirx.Expr:
        return tirx.max(tirx.min(x, tirx.const(255, "float32")), tirx.const(3, "float32"))

    assert result(kernel(limited, "int32"), X, Y)[np.isnan(X)].tolist() == [3, 3, 3, 3]


def test_two_stages_take_the_limit_too() -> None:
    x = te.placeholder(X.shape, name="x")
    held = te.compute(X.shape, lambda i: tirx.max(tirx.min(x[i], SIX), ZERO), name="held")
    func = from_te(x, te.compute(X.shape, lambda i: held[i].astype("uint8"), name="z"))
    assert result(func, X)[np.isnan(X)].tolist() == [0, 0, 0, 0]


def test_a_reduction_is_left_as_it_is() -> None:
    x = te.placeholder((4, 16), name="x")
    axis = te.reduce_axis((0, 4), name="k")
    func = from_te(x, te.compute((16,), lambda i: te.max(x[axis, i], axis=axis), name="z"))
    assert nan_kept(func).script() == func.script()


def test_integers_are_left_as_they_are() -> None:
    x, y = (te.placeholder((16,), "int32", name=name) for name in "xy")
    func = from_te(x, y, te.compute((16,), lambda i: tirx.max(tirx.min(x[i], 5), y[i]), name="z"))
    assert nan_kept(func).script() == func.script()


@pytest.mark.parametrize(
    ("expression", "more"),
    [
        (lambda x, y: tirx.max(x, ZERO), 0),
        (lambda x, y: tirx.min(tirx.max(x + y, ZERO), SIX), 0),
        (lambda x, y: tirx.max(x, y), 1),
    ],
)
def test_instructions_of_a_vector(expression: Expression, more: int) -> None:
    """A comparison for two variables, whose mask the maximum takes; none for a constant."""
    sch = s_tir.Schedule(kernel(expression))
    sch.vectorize(sch.get_loops("z")[0])
    target = tvm_target(Target(kind="llvm", isa="avx512", mcpu="skylake-avx512"))
    text = str(compiled(sch.mod["main"], "main", target).mod.inspect_source("asm"))
    extremes = len(re.findall(r"\bv(?:max|min)ps\b", text))
    assert extremes == str(sch.mod["main"].script()).count("T.max(") + str(sch.mod["main"].script()).count("T.min(")
    assert len(re.findall(r"\bvcmp\w*ps\b|\bvblendm\w*|\bvmov\w+\t%zmm\d+, %zmm\d+ \{%k", text)) == more
