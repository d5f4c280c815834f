"""Integers that wrap around: what becomes a call, and what is left to TVM."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.templates.cpu.baseline import baseline
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.wrapped import OPERATOR, wrapped
from tests.schedules_tests.programs import from_te

NAMES = {OPERATOR.format(kind) for kind in ("add", "sub", "mul")}


def calls(func):
    """Names of the calls of ``wrapped`` in a function."""
    calls = []
    tvm_ffi.structural_walk(func, (tvm.ir.Call, calls.append))
    return sorted(name for call in calls if (name := str(getattr(call.op, "name", ""))) in NAMES)


def scheduled(value, *inputs):
    return baseline(from_te(*inputs, value), host_target(1)).mod["main"]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("length", [1, 7, 64])
def test_arithmetic_wraps_around_for_every_length_of_vectors(dtype, length):
    x, z = (te.placeholder((length,), dtype, name) for name in "xz")
    value = te.compute(x.shape, lambda i: (x[i] - z[i]) * x[i] + z[i], "y")
    func = scheduled(value, x, z)
    kernel = compiled(func, "wraps", tvm_target(host_target(1)))
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, length, dtype, endpoint=True) for _ in range(2))
    out = tvm.runtime.tensor(np.zeros(length, dtype))
    kernel["wraps"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    assert np.array_equal(out.numpy(), (a - b) * a + b)
    assert calls(wrapped(func)) == sorted(NAMES)


def test_constants_are_folded_within_their_type():
    buffer = tirx.decl_buffer((1,), "uint8", "x")
    at = [tirx.const(0, "int32")]
    zero, eight = tirx.const(0, "uint8"), tirx.const(8, "uint8")
    store = wrapped(tirx.BufferStore(tirx.decl_buffer((1,), "uint8", "y"), tirx.Sub(zero, eight), at))
    assert int(store.value.value) == 248
    store = wrapped(tirx.BufferStore(store.buffer, tirx.Mul(tirx.BufferLoad(buffer, at), tirx.Sub(zero, eight)), at))
    assert calls(store) == [OPERATOR.format("mul")]
    assert int(store.value.args[1].value) == 248


def test_indices_and_sums_of_a_loop_stay():
    x, table = te.placeholder((4, 8), "int32", "x"), te.placeholder((9,), "float32", "t")
    total = topi.sum(x, [1])
    assert calls(wrapped(scheduled(total, x))) == []
    rows = te.placeholder((4,), "int32", "rows")
    taken = te.compute((4,), lambda i: table[rows[i] + 1], "taken")
    assert calls(wrapped(scheduled(taken, table, rows))) == []


def test_floats_stay():
    x = te.placeholder((8,), "float32", "x")
    func = scheduled(te.compute(x.shape, lambda i: x[i] * x[i] + x[i], "y"), x)
    assert calls(wrapped(func)) == []
