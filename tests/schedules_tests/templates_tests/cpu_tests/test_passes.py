"""The passes for a CPU: small buffers lie on the stack, and arguments are trusted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.lower import BASELINE, claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import ALIGNMENT, STACKED, compiled, workspaces_of
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


def test_tensors_may_lie_where_allocators_put_them() -> None:
    x = te.placeholder((64,), name="x")
    sch = s_tir.Schedule(from_te(x, te.compute((64,), lambda i: x[i] * 2, name="y")))
    _, inner = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 8])
    sch.vectorize(inner)
    text = str(compiled(sch.mod["main"], "main", tvm_target(TARGET)).mod.inspect_source("ll"))
    vectors = re.findall(r"(?:load|store) <8 x float>.*, align (\d+)", text)
    assert vectors
    assert set(vectors) == {str(ALIGNMENT)}


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
    assert config.integer("vector") >= (8 if isa == "avx2" else 16)
    assert f"<{config.integer('vector')} x float>" in text


@pytest.mark.parametrize("kind", ["copy", "not", "choice"])
def test_truth_values_between_two_vectors_may_be_read_by_any_operator(kind: str) -> None:
    x = te.placeholder((4, 64), name="x")
    bits = te.compute((64,), lambda i: x[0, i] > 0, name="bits")
    read = {
        "copy": lambda i, j: bits[j],
        "not": lambda i, j: tirx.Not(bits[j]),
        "choice": lambda i, j: tirx.Select(bits[j], x[i, j] > 1, x[i, j] < -1),
    }[kind]
    wide = te.compute((4, 64), read, name="wide")
    y = te.compute((4, 64), lambda i, j: tirx.Select(wide[i, j], x[i, j], tirx.const(0.0)), name="y")
    data = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    first = data[:1] > 0
    chosen = {"copy": first, "not": ~first, "choice": np.where(first, data > 1, data < -1)}[kind]
    np.testing.assert_array_equal(_ran(from_te(x, y), data), np.where(chosen, data, 0))


@pytest.mark.parametrize("name", ["isnan", "erf"])
def test_a_vector_of_pairs_with_a_call_without_vector_form_is_right_in_every_lane(name: str) -> None:
    """TVM makes a loop of each half of such a pair, and reads the last lane's of both behind it."""
    x = te.placeholder((7, 40), name="x")
    expression = {"isnan": lambda v: tirx.Select(tirx.isnan(v), tirx.const(-9.0), v), "erf": tirx.erf}[name]

    def combine(a: Any, b: Any) -> Any:
        return tuple(tirx.Select(b[1] > a[1], ours, theirs) for theirs, ours in zip(a, b, strict=True))

    largest = te.comm_reducer(combine, lambda index, _: (tirx.const(0, index), tirx.const(-10.0)))
    r = te.reduce_axis((0, 40))
    place, _ = te.compute((7,), lambda i: largest((r.var, expression(x[i, r])), axis=r), name="pair")
    y = te.compute((7,), lambda i: place[i].astype("float32"), name="y")
    data = np.random.default_rng(0).standard_normal((7, 40)).astype(np.float32)
    np.testing.assert_array_equal(_ran(from_te(x, y), data), np.argmax(data, 1))


def _ran(func: tirx.PrimFunc, data: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the untuned build of ``func``, of fp32 to fp32, makes of ``data``."""
    scheduled = lower(func, BASELINE, TARGET).mod["main"]
    result = np.zeros([int(size) for size in func.params[-1].ty.shape], np.float32)
    out = tvm.runtime.tensor(result)
    compiled(scheduled, "main", tvm_target(TARGET))["main"](tvm.runtime.tensor(data), out)
    return np.asarray(out.numpy())
