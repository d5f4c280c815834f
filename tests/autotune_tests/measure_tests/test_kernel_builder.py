"""One candidate from program to library: equal code has equal hashes, and failures are answers."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.measure import kernel_builder
from autotune.measure.code_cache import CodeCache
from autotune.measure.kernel_builder import Builder, can_assemble, object_of
from autotune.measure.kernel_timing import load
from autotune.measure.messages import BuildJob, Built
from schedules import lower
from schedules.lower import claim, program_of
from schedules.target import Target
from schedules.vocabulary.errors import CompileError, MeasureError
from tests.autotune_tests.measure_tests import faults
from tests.autotune_tests.measure_tests.faults import candidate
from tests.models.catalog import cached
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Array, inputs, shapes


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder(host_target(), faults)


def build(builder: Builder, kind: str, folder: Path) -> Built:
    built = candidate(kind)
    (folder / "program.json").write_text(built.program)
    library = str(folder / f"{kind}.so")
    symbol = f"tune_{built.task.key}"
    return builder.build(BuildJob(str(folder / "program.json"), built.config, library, symbol, timeout_s=9.0))


def test_a_library_holds_the_kernel_and_its_object_lies_beside_it(builder: Builder, tmp_path: Path) -> None:
    built = build(builder, "right", tmp_path)
    library = str(tmp_path / "right.so")
    assert (built.error, built.message) == (None, "")
    assert built.compile_s > 0
    assert Path(object_of(library)).read_bytes().startswith(b"\x7fELF")
    assert load(library, candidate("right").task) is not None


def test_equal_code_has_equal_hashes_wherever_it_is_written(builder: Builder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    first, again = build(builder, "right", tmp_path), build(builder, "right", tmp_path / "elsewhere")
    assert first.code_hash == again.code_hash
    assert build(builder, "wrong", tmp_path).code_hash != first.code_hash


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("illegal", "lower_error", "choose a divisor"),
        ("broken template", "lower_error", "IndexError"),
        ("unknown intrinsic", "compile_error", "intrinsic"),
    ],
)
def test_failures_are_answers(builder: Builder, tmp_path: Path, kind: str, error: str, words: str) -> None:
    built = build(builder, kind, tmp_path)
    assert (built.error, built.code_hash) == (error, "")
    assert words in built.message
    assert "\n" not in built.message


def test_a_full_disk_is_no_fault_of_a_candidate(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(MeasureError, match=r"no kernel can be written to .* \(No space left on device\)") as refusal:
        build(builder, "unknown intrinsic", tmp_path)
    assert not isinstance(refusal.value, CompileError)
    assert build(builder, "right", tmp_path).error is None


def test_code_that_was_compiled_before_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CodeCache(tmp_path / "cache")
    first = build(Builder(host_target(), faults, cache), "right", tmp_path)
    objects = (tmp_path / "right.o").read_bytes()
    (tmp_path / "other process").mkdir()
    again = Builder(host_target(), faults, cache)
    monkeypatch.setattr(again, "compile", None)  # whatever calls it fails
    again_built = build(again, "right", tmp_path / "other process")
    assert (again_built.code_hash, again_built.trace, again_built.error) == (first.code_hash, first.trace, None)
    assert (tmp_path / "other process" / "right.o").read_bytes() == objects
    assert load(str(tmp_path / "other process" / "right.so"), candidate("right").task) is not None
    assert build(again, "wrong", tmp_path).error is not None


def test_another_target_has_other_code(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    for target in (host_target(), replace(host_target(), isa="avx2", mcpu="haswell", features=())):
        assert build(Builder(target, faults, cache), "right", tmp_path).error is None
    assert len(list((tmp_path / "cache").glob("??/*"))) == 2


def test_another_builder_has_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel_builder.surroundings(host_target())
    changed = tmp_path / "kernel_builder.py"
    changed.write_text(Path(kernel_builder.__file__).read_text() + "FLAGS = ()\n")
    monkeypatch.setattr(kernel_builder, "__file__", str(changed))
    assert kernel_builder.surroundings(host_target()) != before


def test_failures_are_not_kept(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    for _ in range(2):
        assert build(Builder(host_target(), faults, cache), "illegal", tmp_path).error == "lower_error"
    assert not (tmp_path / "cache").exists()


# -- kernels in assembly -----------------------------------------------------------------------------------------------

PRODUCT = next(case for case in CASES if case.name == "matmul_rows")
WIDE = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512", threads=2)


def build_product(folder: Path, builder: Builder) -> Built:
    """The first config of a product of vectors of 16 columns, which has a kernel in assembly."""
    (folder / "program.json").write_text(program_of(PRODUCT.func))
    config = claim(PRODUCT.func, WIDE).space.initial[0]
    job = BuildJob(str(folder / "program.json"), config, str(folder / "k.so"), "tune_product", timeout_s=9.0)
    return builder.build(job)


def without(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that lacks a tool."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if name == tool else which(name, *rest))


def result_of(library: str) -> Array:
    arguments = [tvm.runtime.tensor(array) for array in inputs(PRODUCT.func)]
    result = tvm.runtime.tensor(np.full(shapes(PRODUCT.func)[-1], np.nan, np.float32))
    tvm.runtime.load_module(library)["tune_product"](*arguments, result)
    return result.numpy()


@pytest.mark.isa("avx512")
@pytest.mark.skipif(shutil.which("as") is None, reason="no assembler (binutils)")
def test_an_assembler_makes_what_the_compiler_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one, nothing is compiled; where there is none, nothing is assembled. The numbers are the same."""
    folders = [tmp_path / name for name in ("assembled", "compiled")]
    for folder in folders:
        folder.mkdir()
    first = Builder(WIDE, lower)
    with monkeypatch.context() as patched:
        patched.setattr(first, "compile", None)  # whatever calls it fails
        assembled = build_product(folders[0], first)
    without("as", monkeypatch)
    second = Builder(WIDE, lower)
    monkeypatch.setattr(second, "assemble", None)
    compiled = build_product(folders[1], second)
    assert (assembled.error, assembled.message) == (compiled.error, compiled.message) == (None, "")
    assert assembled.code_hash != compiled.code_hash
    results = [result_of(str(folder / "k.so")) for folder in folders]
    np.testing.assert_allclose(*results, rtol=1e-6)
    np.testing.assert_allclose(results[0], PRODUCT.expected(*inputs(PRODUCT.func)), rtol=1e-5)


@pytest.mark.skipif(shutil.which("as") is None, reason="no assembler (binutils)")
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'x.s: Assembler messages:' >&2; echo 'x.s:7: Error: no such instruction' >&2; exit 1", "no such instr"),
        ("exit 9", "9"),
    ],
    ids=["told", "silent"],
)
def test_an_assembler_that_fails_is_an_answer_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    tool = tmp_path / "as"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    builder = Builder(WIDE, lower)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    built = build_product(tmp_path, builder)
    assert (built.error, built.code_hash) == ("compile_error", "")
    assert "the assembler refused a kernel" in built.message
    assert message in built.message
    assert "\n" not in built.message


@pytest.mark.skipif(shutil.which("as") is None, reason="no assembler (binutils)")
def test_an_assembler_that_does_not_know_the_instructions_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_assemble(WIDE)
    tool = tmp_path / "as"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not can_assemble(WIDE)
    assert build_product(tmp_path, Builder(WIDE, lower)).error is None


@pytest.mark.parametrize("name", ["tiny_branches", "tiny_encoder", "tiny_gated", "tiny_odd", "tiny_unet", "shufflenet"])
def test_every_kernel_is_assembled_or_left_to_the_compiler(name: str) -> None:
    """A writer that fails on a kernel that it should leave costs the model all its guesses."""
    _, program = import_model(cached(name), {}, WIDE)
    written = [
        lower.assembly(lower.load_program(program.programs[key]), config, WIDE, "kernel")
        for key, space in program.spaces.items()
        for config in space.initial[:2]
    ]
    assert any(written)


def test_kernels_of_another_architecture_are_compiled() -> None:
    """This machine's assembler does not know their instructions."""
    foreign = "neon" if host_target().architecture == "x86_64" else "avx512"
    assert not can_assemble(Target(kind="llvm", isa=foreign))
