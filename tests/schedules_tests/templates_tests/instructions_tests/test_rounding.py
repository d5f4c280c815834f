"""Roundings to bytes against NumPy's, over ties, ends and numbers far beyond them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx, topi

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.baseline import baseline
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.rounding import rounded_in_bits
from tests.schedules_tests.programs import from_te

LANES = 16


def numbers() -> NDArray[np.float32]:
    """All halves around the ends of a byte, their neighbours, and some that no byte holds."""
    halves = np.arange(-600, 600, dtype=np.float32) / 2
    near = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    far = np.array([1e5, 4194304, 4194305, 1e9, 3e9, 3e38, np.inf], np.float32)
    every = np.concatenate([halves, *near, far, -far])
    return np.pad(every, (0, -len(every) % LANES))


def byte(x: tirx.Expr, zero: tirx.Expr | None, dtype: str) -> tirx.Expr:
    limits = np.iinfo(dtype)
    whole = tirx.nearbyint(x)
    whole = whole if zero is None else whole + zero
    clipped = tirx.max(
        tirx.min(whole, tirx.const(float(limits.max), "float32")), tirx.const(float(limits.min), "float32")
    )
    return clipped.astype(dtype)


def run(compute: te.Tensor, operands: list[te.Tensor], arrays: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    target = host_target(1)
    func = vector_math(from_te(*operands, compute))
    module = compiled(baseline(func, target).mod["main"], "main", tvm_target(target))
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    out = tvm.runtime.tensor(np.zeros(arrays[0].shape, str(compute.dtype)))
    module["main"](*tensors, out)
    return out.numpy()


def expected(x: NDArray[np.float32], zero: float, dtype: str) -> NDArray[np.float32]:
    limits = np.iinfo(dtype)
    return np.trunc(np.clip(np.round(x) + np.float32(zero), limits.min, limits.max)).astype(dtype)


CASES = [("uint8", None), ("uint8", 0.0), ("uint8", 3.0), ("uint8", 128.0), ("uint8", 255.0), ("uint8", 0.5)]
CASES += [("uint8", -7.25), ("int8", None), ("int8", 0.0), ("int8", -5.0), ("int8", 2.5)]


@pytest.mark.parametrize(("dtype", "zero"), CASES)
@pytest.mark.parametrize("computed", [False, True])
def test_bytes_are_those_of_numpy(dtype: str, zero: float | None, computed: bool) -> None:
    """``computed``: the zero point is known when the kernel runs."""
    data = numbers()
    x, z = te.placeholder(data.shape, name="x"), te.placeholder((1,), name="z")
    point = None if zero is None else z[0] if computed else tirx.const(zero, "float32")
    rounded = te.compute(data.shape, lambda i: byte(x[i], point, dtype), name="made")
    got = run(rounded, [x, z], [data, np.array([zero or 0], np.float32)])
    np.testing.assert_array_equal(got, expected(data, zero or 0, dtype))


@pytest.mark.parametrize(("dtype", "zero"), CASES)
@pytest.mark.parametrize(("computed", "less"), [(False, None), (False, 3.0), (False, 0.25), (True, None), (True, 3.0)])
def test_bytes_that_are_read_again_never_become_integers(
    dtype: str, zero: float | None, computed: bool, less: float | None
) -> None:
    data = numbers()
    x, z = te.placeholder(data.shape, name="x"), te.placeholder((2,), name="z")
    point = None if zero is None else z[0] if computed else tirx.const(zero, "float32")

    def element(i: tirx.Var) -> tirx.Expr:
        number = byte(x[i], point, dtype).astype("float32")
        away = None if less is None else z[1] if computed else tirx.const(less, "float32")
        return (number if away is None else number - away) * tirx.const(0.5, "float32")

    rounded = te.compute(data.shape, element, name="made")
    got = run(rounded, [x, z], [data, np.array([zero or 0, less or 0], np.float32)])
    want = (expected(data, zero or 0, dtype).astype(np.float32) - np.float32(less or 0)) * np.float32(0.5)
    np.testing.assert_array_equal(got, want)


def test_what_is_no_rounding_stays() -> None:
    x = te.placeholder((LANES,), name="x")
    for truncated in (
        te.compute((LANES,), lambda i: topi.clip(x, 0.0, 255.0)[i].astype("uint8"), name="truncated"),
        te.compute((LANES,), lambda i: tirx.max(tirx.min(tirx.nearbyint(x[i]), 200.0), 0.0).astype("uint8")),
    ):
        func = vector_math(from_te(x, truncated))
        assert rounded_in_bits(func).script() == func.script()


def test_the_passes_leave_no_rounding_instruction() -> None:
    x = te.placeholder((LANES,), name="x")
    rounded = te.compute((LANES,), lambda i: byte(x[i], tirx.const(7.0, "float32"), "uint8"), name="made")
    func = vector_math(from_te(x, rounded))
    assert "nearbyint" in func.script()
    assert "nearbyint" not in rounded_in_bits(func).script()
