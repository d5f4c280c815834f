"""The arithmetic replacements are as exact as they say, everywhere, and vanish into what surrounds them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.passes import compiled
from tests.schedules_tests.programs import Array, from_te

REFERENCES: dict[str, tuple[Callable[[te.Tensor], tirx.Expr], Callable[[float], float], float]] = {
    "exp": (te.exp, math.exp, 2e-7),
    "log": (te.log, math.log, 2e-7),
    "erf": (te.erf, math.erf, 5e-7),
    "tanh": (te.tanh, math.tanh, 5e-7),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + math.exp(-x)), 3e-7),
    "atan": (te.atan, math.atan, 3e-7),
    "sin": (te.sin, math.sin, 3e-7),
    "cos": (te.cos, math.cos, 3e-7),
    "tan": (te.tan, math.tan, 5e-7),
    "asin": (te.asin, math.asin, 4e-7),
    "acos": (te.acos, math.acos, 4e-7),
    "asinh": (te.asinh, math.asinh, 5e-7),
    "acosh": (te.acosh, math.acosh, 5e-7),
    "atanh": (te.atanh, math.atanh, 5e-7),
}
SPECIAL = np.array([0.0, -0.0, math.inf, -math.inf, math.nan], np.float32)

every_function = pytest.mark.parametrize("name", REFERENCES)


def program(name: str, size: int, dtype: str = "float32") -> tirx.PrimFunc:
    x = te.placeholder((size,), dtype, name="x")
    return from_te(x, te.compute((size,), lambda i: REFERENCES[name][0](x[i]), name="y"))


def evaluate(name: str, x: Array) -> Array:
    module = tvm.compile(vector_math(program(name, x.size)), target="llvm")
    y = tvm.runtime.tensor(np.zeros_like(x))
    module(tvm.runtime.tensor(x), y)
    return y.numpy()


def arguments(name: str) -> Array:
    if name in ("asin", "acos", "atanh"):
        within = np.concatenate([np.geomspace(1e-30, 0.999999, 20_001), np.linspace(0.4, 0.999999, 20_001)])
        return np.concatenate([within, -within]).astype(np.float32)
    if name == "acosh":
        return (1 + np.geomspace(1e-6, 3e38, 40_001)).astype(np.float32)
    if name == "asinh":
        sizes = np.geomspace(1e-30, 3e38, 40_001)
        return np.concatenate([sizes, -sizes]).astype(np.float32)
    spread = np.concatenate([np.linspace(-87, 88, 20_001), np.linspace(-9, 9, 20_001), np.geomspace(1e-30, 1, 999)])
    return np.exp(np.linspace(-80, 80, 40_001)).astype(np.float32) if name == "log" else spread.astype(np.float32)


@every_function
def test_relative_error(name: str) -> None:
    _, reference, bound = REFERENCES[name]
    x = arguments(name)
    exact = np.array([reference(float(value)) for value in x])
    sizable = (np.abs(exact) > 1e-6) | (name != "log")  # near log 1 = 0 only the absolute error is small
    error = np.abs(evaluate(name, x) - exact) / np.where(sizable & (exact != 0), np.abs(exact), 1.0)
    assert error.max() < bound


@every_function
def test_infinities_and_nan_are_kept(name: str) -> None:
    expected = {
        "exp": [1, 1, math.inf, 0, math.nan],
        "log": [-math.inf, -math.inf, math.inf, math.nan, math.nan],
        "erf": [0, -0.0, 1, -1, math.nan],
        "tanh": [0, -0.0, 1, -1, math.nan],
        "sigmoid": [0.5, 0.5, 1, 0, math.nan],
        "atan": [0, -0.0, math.pi / 2, -math.pi / 2, math.nan],
        "sin": [0, 0, math.nan, math.nan, math.nan],
        "cos": [1, 1, math.nan, math.nan, math.nan],
        "tan": [0, 0, math.nan, math.nan, math.nan],
        "asin": [0, -0.0, math.nan, math.nan, math.nan],
        "acos": [math.pi / 2, math.pi / 2, math.nan, math.nan, math.nan],
        "asinh": [0, -0.0, math.inf, -math.inf, math.nan],
        "acosh": [math.nan, math.nan, math.inf, math.nan, math.nan],
        "atanh": [0, -0.0, math.nan, math.nan, math.nan],
    }
    np.testing.assert_allclose(evaluate(name, SPECIAL), expected[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("asin", [math.pi / 2, -math.pi / 2, math.nan]),
        ("acos", [0, math.pi, math.nan]),
        ("atanh", [math.inf, -math.inf, math.nan]),
        ("acosh", [0, math.nan, 0.9624237]),
    ],
)
def test_ends_of_inverse_functions(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(evaluate(name, np.array([1, -1, 1.5], np.float32)), expected, rtol=1e-6)


def test_exp_over_and_underflows_to_infinity_and_zero() -> None:
    assert evaluate("exp", np.array([89, 1e30, -104, -1e30], np.float32)).tolist() == [math.inf, math.inf, 0, 0]


@every_function
def test_no_call_is_left(name: str) -> None:
    assert f"T.{name}(" in program(name, 8).script()
    assert f"T.{name}(" not in vector_math(program(name, 8)).script()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_any_size_are_reduced(name: str) -> None:
    """Up to the largest number, and near the multiples of a quarter turn, where sine or cosine is almost zero."""
    quarters = np.arange(1, 40_001) * (math.pi / 2)
    x = np.concatenate([np.geomspace(1, 3.4e38, 20_001), quarters, [2.0**120]]).astype(np.float32)
    exact = np.array([REFERENCES[name][1](float(value)) for value in np.concatenate([x, -x])])
    np.testing.assert_allclose(evaluate(name, np.concatenate([x, -x])), exact, rtol=3e-7, atol=1e-30)


EXPONENTS = (0.0, 0.75, 1.0, -0.5, 2.0, 3.0, -1.0)


def test_powers() -> None:
    size = 2000
    base, exponent = te.placeholder((size,), name="base"), te.placeholder((1,), name="exponent")
    func = from_te(base, exponent, te.compute((size,), lambda i: te.power(base[i], exponent[0]), name="y"))
    module = tvm.compile(vector_math(func), target="llvm")
    for y in EXPONENTS:
        x = np.concatenate([np.geomspace(1e-3, 1e3, size - 4), [0, math.inf, math.nan, 1]]).astype(np.float32)
        x[::2] *= -1 if y == round(y) else 1
        out = tvm.runtime.tensor(np.zeros_like(x))
        module(tvm.runtime.tensor(x), tvm.runtime.tensor(np.array([y], np.float32)), out)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(np.abs(out.numpy()), np.abs(x.astype(float) ** y), rtol=3e-6)
            assert np.array_equal(np.signbit(out.numpy())[:-4], np.signbit(x.astype(float) ** y)[:-4])


def test_a_negative_base_with_a_broken_exponent_is_no_number() -> None:
    base = te.placeholder((4,), name="base")
    func = from_te(base, te.compute((4,), lambda i: te.power(base[i], tirx.const(0.75, "float32")), name="y"))
    out = tvm.runtime.tensor(np.zeros(4, np.float32))
    tvm.compile(vector_math(func), target="llvm")(tvm.runtime.tensor(np.array([-2, -0.5, 0, 16], np.float32)), out)
    np.testing.assert_allclose(out.numpy(), [math.nan, math.nan, 0, 8], rtol=1e-6)


def test_a_power_stays_a_vector() -> None:
    """What hides its logarithm from the simplifier is no instruction, and no reason to compute lane by lane."""
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="y")
    sch = s_tir.Schedule(vector_math(from_te(x, y, te.compute((64,), lambda i: te.power(x[i], y[i]), name="z"))))
    _, lane = sch.split(sch.get_loops(sch.get_sblock("z"))[0], [None, 16])
    sch.vectorize(lane)
    target = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512")
    text = str(compiled(sch.mod["main"], "main", tvm_target(target)).mod.inspect_source("asm"))
    assert len(re.findall(r"vfmadd\d+ps.*zmm", text)) > 10
    assert not re.search(r"vfmadd\d+ss|powf", text)


def test_calls_inside_calls_are_replaced() -> None:
    x = te.placeholder((8,), name="x")
    func = from_te(x, te.compute((8,), lambda i: te.exp(te.tanh(te.exp(x[i]))), name="y"))
    text = vector_math(func).script()
    assert "T.exp(" not in text
    assert "T.tanh(" not in text


def test_double_precision_is_left_alone() -> None:
    func = program("exp", 8, "float64")
    assert "T.exp(" in vector_math(func).script()


def test_a_step_to_bytes_stays_a_vector() -> None:
    """Halves go to even, and no loop over scalars is left."""
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: tirx.nearbyint(x[i]).astype("uint8"), name="y")
    sch = s_tir.Schedule(vector_math(from_te(x, y)))
    _, lane = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 16])
    sch.vectorize(lane)
    target = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512")
    text = str(compiled(sch.mod["main"], "main", tvm_target(target)).mod.inspect_source("asm"))
    assert re.search(r"vrndscaleps.*zmm", text)
    assert re.search(r"vpmovdb\s+%zmm", text)
    numbers = np.arange(64, dtype=np.float32) + 0.5
    result = tvm.runtime.tensor(np.zeros(64, np.uint8))
    tvm.compile(vector_math(from_te(x, y)), target="llvm")(tvm.runtime.tensor(numbers), result)
    np.testing.assert_array_equal(result.numpy(), np.round(numbers).astype(np.uint8))


def test_a_rounded_stage_may_be_inlined_twice() -> None:
    """As a hard swish between quantisers reads it."""
    x = te.placeholder((64,), "float32", name="x")
    y = te.compute((64,), lambda i: te.nearbyint(x[i] * 2.0), name="y")
    z = te.compute((64,), lambda i: y[i] * te.nearbyint(y[i] * 0.3), name="z")
    sch = s_tir.Schedule(vector_math(from_te(x, z)))
    sch.compute_inline("y")
    sch.vectorize(sch.get_loops("z")[0])
    module = compiled(sch.mod["main"], "main", tvm_target(Target(kind="llvm", isa="generic")))
    values, result = np.linspace(-9, 9, 64).astype(np.float32), tvm.runtime.tensor(np.zeros(64, np.float32))
    module.mod["main"](tvm.runtime.tensor(values), result)
    twice = np.round(values * np.float32(2))
    np.testing.assert_allclose(result.numpy(), twice * np.round(twice * np.float32(0.3)))


def test_powers_at_the_ends_are_the_c_librarys() -> None:
    """Zeros and infinities of both signs, one, NaN and denormals, to odd, even, broken and infinite exponents."""
    bases = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-40, -2.0, 3.0]
    exponents = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1.5, math.inf, -math.inf, math.nan]
    x, y = (np.array(grid, np.float32).reshape(-1) for grid in np.meshgrid(bases, exponents))
    base, exponent = (te.placeholder(x.shape, name=name) for name in ("base", "exponent"))
    func = from_te(base, exponent, te.compute(x.shape, lambda i: te.power(base[i], exponent[i]), name="y"))
    out = tvm.runtime.tensor(np.zeros_like(x))
    tvm.compile(vector_math(func), target="llvm")(tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=np.finfo(np.float32).tiny)
    assert np.array_equal(np.signbit(out.numpy()[expected == 0]), np.signbit(expected[expected == 0]))


def test_exp_and_log_reach_the_largest_and_the_least_numbers() -> None:
    x = np.array([88.4, 88.7, -87.3, 1e-45, 1e-40, 1.17e-38, 3.4e38], np.float32)
    np.testing.assert_allclose(evaluate("exp", x[:3]), np.exp(x[:3].astype(float)), rtol=1e-5)
    np.testing.assert_allclose(evaluate("log", x[3:]), np.log(x[3:].astype(float)), rtol=1e-6)


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_what_saturates_is_exactly_one(name: str) -> None:
    """A Gelu of a large negative number is that number times 1 − 1."""
    x = np.array([10, 1e4, 1e30, math.inf], np.float32)
    assert evaluate(name, np.concatenate([x, -x])).tolist() == [1.0] * 4 + [-1.0] * 4


def test_the_question_for_a_number_is_a_comparison_of_bits() -> None:
    x = te.placeholder((6,), name="x")
    func = vector_math(from_te(x, te.compute((6,), lambda i: tirx.isnan(x[i]).astype("uint8"), name="y")))
    assert "isnan" not in func.script()
    values = np.array([math.nan, -math.nan, math.inf, -math.inf, 0, 3e38], np.float32)
    result = tvm.runtime.tensor(np.zeros(6, np.uint8))
    tvm.compile(func, target="llvm")(tvm.runtime.tensor(values), result)
    assert result.numpy().tolist() == [1, 1, 0, 0, 0, 0]
