"""The passes for a CPU: small buffers lie on the stack, and arguments are trusted."""

from __future__ import annotations

from tvm import te

from schedules.lower import BASELINE, claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import STACKED, compiled
from tests.schedules_tests.programs import from_te

TARGET = Target("llvm", isa="avx2")


def code(size: int) -> str:
    x = te.placeholder((size,), name="x")
    first = te.compute((size,), lambda i: te.exp(x[i]), name="first")
    second = te.compute((size,), lambda i: first[i] + first[size - 1 - i], name="second")
    func = lower(from_te(x, second), BASELINE, TARGET).mod["main"]
    return str(compiled(func, "main", tvm_target(TARGET)).mod.inspect_source("ll"))


def test_only_large_buffers_come_from_the_runtime() -> None:
    assert "TVMBackendAllocWorkspace" not in code(STACKED // 4)
    assert "TVMBackendAllocWorkspace" in code(STACKED // 4 + 64)


def test_code_has_one_entry() -> None:
    x = te.placeholder((16,), name="x")
    func = lower(from_te(x, te.compute((16,), lambda i: x[i] * 2, name="y")), BASELINE, TARGET).mod["main"]
    text = str(compiled(func, "tune_it", tvm_target(TARGET)).mod.inspect_source("ll"))
    assert "@__tvm_ffi_tune_it(" in text
    assert "@__tvm_ffi_main(" not in text


def test_a_function_that_is_read_twice_is_a_vector_in_both_places() -> None:
    """Each reader gets a copy of the exponential, with variables of its own."""
    x = te.placeholder((64,), name="x")
    exp = te.compute((64,), lambda i: te.exp(x[i]) + 1, name="exp")
    func = from_te(x, te.compute((64,), lambda i: exp[i] * exp[i], name="square"))
    config = claim(func, TARGET).space.initial[0]
    text = str(compiled(lower(func, config, TARGET).mod["main"], "main", tvm_target(TARGET)).mod.inspect_source("ll"))
    assert "@expf" not in text
    assert "<8 x float>" in text
