"""The passes for a CPU: small buffers lie on the stack, and arguments are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import s_tir, te, tirx

from schedules.lower import BASELINE, claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import STACKED, compiled, workspaces_of
from tests.schedules_tests.programs import from_te

TARGET = Target("llvm", isa="avx2")


def executable(size: int, parallel: bool = False) -> tvm.runtime.Module:
    x = te.placeholder((size,), name="x")
    first = te.compute((size,), lambda i: te.exp(x[i]), name="first")
    second = te.compute((size,), lambda i: first[i] + first[size - 1 - i], name="second")
    sch = s_tir.Schedule(from_te(x, second))
    if parallel:  # two jobs, each with all of the first function
        job, _ = sch.split(sch.get_loops(sch.get_sblock("second"))[0], [2, None])
        sch.compute_at(sch.get_sblock("first"), job)
        sch.parallel(job)
    return compiled(sch.mod["main"], "main", tvm_target(TARGET)).mod


def code(size: int) -> str:
    return str(executable(size).inspect_source("ll"))


@pytest.mark.parametrize("parallel", [False, True])
def test_code_tells_the_workspaces_that_it_asks_for(parallel: bool, tmp_path: Path) -> None:
    path, size = tmp_path / "code.o", STACKED // 4 + 1
    executable(size, parallel).write_to_file(str(path))
    told = workspaces_of(path.read_bytes(), "main")
    bytes_asked = -(-4 * size // 64) * 64
    assert told == ((0, bytes_asked) if parallel else (bytes_asked, 0))
    assert workspaces_of(path.read_bytes(), "other") == (0, 0)
    executable(64).write_to_file(str(path))
    assert workspaces_of(path.read_bytes(), "main") == (0, 0)


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


TRUTHS = {
    "less": lambda x, y: x < y,
    "negated": lambda x, y: tirx.Cast("uint8", x < y) == tirx.const(0, "uint8"),
    "both": lambda x, y: tirx.all(x < y, y > 0),
    "whole numbers": lambda x, y: x.astype("int32") == y.astype("int32"),
}
USES = {
    "exp": te.exp,
    "tanh": te.tanh,
    "erf": te.erf,
    "beside others": lambda number: te.exp(te.exp(number * 2 + 1) - number),
}


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("truth", TRUTHS)
def test_truth_values_are_numbers_in_vectors(truth: str, use: str, isa: str) -> None:
    """Functions bind their argument to a variable, whose bounds LLVM's writer asks for."""
    target = Target("llvm", isa=isa)
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="y")
    number = te.compute((64,), lambda i: TRUTHS[truth](x[i], y[i]).astype("float32"), name="number")
    func = from_te(x, y, te.compute((64,), lambda i: USES[use](number[i]), name="out"))
    config = claim(func, target).space.initial[0]
    text = str(compiled(lower(func, config, target).mod["main"], "main", tvm_target(target)).mod.inspect_source("ll"))
    assert f"<{8 if isa == 'avx2' else 16} x float>" in text
