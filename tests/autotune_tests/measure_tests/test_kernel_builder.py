"""One candidate from program to library: equal code has equal hashes, and failures are answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.host.machine import host_target
from autotune.measure.code_cache import CodeCache
from autotune.measure.kernel_builder import Builder, object_of
from autotune.measure.kernel_timing import load
from autotune.measure.messages import BuildJob, Built
from tests.autotune_tests.measure_tests import faults
from tests.autotune_tests.measure_tests.faults import candidate


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder(host_target(), faults)


def build(builder: Builder, kind: str, folder: Path) -> Built:
    each = candidate(kind)
    (folder / "program.json").write_text(each.program)
    library = str(folder / f"{kind}.so")
    symbol = f"tune_{each.task.key}"
    return builder.build(BuildJob(str(folder / "program.json"), each.config, library, symbol, timeout_s=9.0))


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


def test_code_that_was_compiled_before_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CodeCache(tmp_path / "cache")
    first = build(Builder(host_target(), faults, cache), "right", tmp_path)
    objects = (tmp_path / "right.o").read_bytes()
    (tmp_path / "other process").mkdir()
    again = Builder(host_target(), faults, cache)
    monkeypatch.setattr(again, "compile", None)  # whatever calls it fails
    found = build(again, "right", tmp_path / "other process")
    assert (found.code_hash, found.trace, found.error) == (first.code_hash, first.trace, None)
    assert (tmp_path / "other process" / "right.o").read_bytes() == objects
    assert load(str(tmp_path / "other process" / "right.so"), candidate("right").task) is not None
    assert build(again, "wrong", tmp_path).error is not None


def test_another_target_has_other_code(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    for target in (host_target(), replace(host_target(), isa="avx2", mcpu="haswell", features=())):
        assert build(Builder(target, faults, cache), "right", tmp_path).error is None
    assert len(list((tmp_path / "cache").glob("??/*"))) == 2


def test_failures_are_not_kept(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    for _ in range(2):
        assert build(Builder(host_target(), faults, cache), "illegal", tmp_path).error == "lower_error"
    assert not (tmp_path / "cache").exists()
