"""Long sums of fp32: digits that a running sum loses, and loops that must stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.templates.cpu.baseline import baseline
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions import blocked_sums
from tests.schedules_tests.programs import from_te


def made(function, shape):
    """What the untuned kernel of ``function`` makes of numbers near 3, and they."""
    x = te.placeholder(shape, "float32", "x")
    y = function(x)
    scheduled = baseline(from_te(x, y), host_target(1)).mod["main"]
    kernel = compiled(scheduled, "sums", tvm_target(host_target(1)))
    data = (3 + np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    out = tvm.runtime.tensor(np.zeros([int(size) for size in y.shape], np.float32))
    kernel["sums"](tvm.runtime.tensor(data), out)
    return out.numpy(), data.astype(np.float64)


def error(ours, exact):
    return float(np.abs(ours / exact.reshape(ours.shape) - 1).max())


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 100_003), (1,)), ((3, 256, 256), (1, 2)), ((70_000, 16), (0,)), ((2, 5, 30_000), (1, 2))]
)
def test_a_long_sum_keeps_its_digits(shape, axes):
    ours, data = made(lambda x: topi.sum(x, list(axes)), shape)
    assert error(ours, data.sum(axes)) < 1e-6
    ours, data = made(lambda x: topi.sum(x * x, list(axes)), shape)
    assert error(ours, (data * data).sum(axes)) < 1e-6


def test_a_running_sum_would_lose_them(monkeypatch):
    monkeypatch.setattr(blocked_sums, "LONGEST", 1 << 60)
    ours, data = made(lambda x: topi.sum(x, [1]), (2, 100_003))
    assert error(ours, data.sum(1)) > 1e-6


def loops(value, length, dtype="float32"):
    """s[0] = s[0] + value(x, z, k) over ``length``, as a kernel."""
    x, z, s = (tirx.decl_buffer((length,), dtype, name) for name in "xzs")
    k = tirx.Var("k", "int32")
    zero = tirx.const(0, "int32")
    store = tirx.BufferStore(
        s, tirx.BufferLoad(s, [zero]) + value(tirx.BufferLoad(x, [k]), tirx.BufferLoad(z, [k])), [zero]
    )
    body = tirx.For(k, zero, tirx.const(length, "int32"), tirx.ForKind.SERIAL, store)
    return body, blocked_sums._blocked(body)


@pytest.mark.parametrize(
    ("value", "length", "dtype", "changes"),
    [
        (lambda x, _z: x, 5000, "float32", True),
        (lambda x, _z: x * x, 5000, "float32", True),
        (lambda x, z: x + z, 5000, "float32", True),
        (lambda x, _z: x, 2048, "float32", False),
        (lambda x, z: x * z, 5000, "float32", False),
        (lambda x, _z: x, 5000, "int32", False),
    ],
)
def test_only_long_sums_of_fp32_that_are_no_products_change(value, length, dtype, changes):
    before, after = loops(value, length, dtype)
    assert (not after.same_as(before)) == changes
