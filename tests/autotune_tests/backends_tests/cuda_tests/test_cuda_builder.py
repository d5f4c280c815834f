"""Kernels become a library in a worker, by the first of their configs that compiles without local memory."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.backends.cuda.cuda_builder import Wanted, build_kernels
from autotune.host.worker_pool import Lost, WorkerPool
from schedules.config import Config
from schedules.lower import BASELINE, claim, program_of
from schedules.target import Target
from schedules.vocabulary.errors import MeasureError
from tests.schedules_tests.templates_tests.cuda_tests.cases import PRODUCTS


def test_a_library_is_built_in_a_worker(tmp_path):
    func, target = PRODUCTS[0].func, Target.cuda("sm_80")
    wrong = Config("cuda_gemm/1", (("tm", 3),))
    good = claim(func, target).space.initial[0]
    library = tmp_path / "model.so"
    chosen = build_kernels([Wanted("tune_a", program_of(func), (wrong, good))], target, library)["tune_a"]
    assert chosen.config == good
    assert {kernel.arch for kernel in chosen.kernels} == {"sm_80"}
    assert chosen.local_bytes == 0
    assert library.stat().st_size > 0


def test_kernels_that_were_compiled_apart_are_one_library(tmp_path):
    target, library = Target.cuda("sm_90"), tmp_path / "model.so"
    wanted = [
        Wanted(f"tune_{case.name}", program_of(case.func), (claim(case.func, target).space.initial[0],))
        for case in PRODUCTS[:4]
    ]
    chosen = build_kernels(wanted, target, library)
    assert list(chosen) == [kernel.symbol for kernel in wanted]
    for symbol, choice in chosen.items():  # threads keep apart what they compile
        assert {kernel.name.startswith(f"{symbol}_kernel") for kernel in choice.kernels} == {True}
    text = library.read_bytes()
    assert all(f"__tvm_ffi_{kernel.symbol}".encode() in text for kernel in wanted)
    assert all(f"{kernel.symbol}_kernel".encode() in text for kernel in wanted)


def test_a_kernel_without_a_config_is_an_error(tmp_path):
    wrong = Config("cuda_gemm/1", (("tm", 3),))
    with pytest.raises(MeasureError, match="none of 1 configs"):
        build_kernels([Wanted("tune_a", program_of(PRODUCTS[0].func), (wrong,))], Target.cuda("sm_90"), None)


def test_the_untuned_program_always_compiles():
    chosen = build_kernels([Wanted("tune_a", program_of(PRODUCTS[1].func), (BASELINE,))], Target.cuda("sm_90"), None)
    assert chosen["tune_a"].config == BASELINE


@pytest.mark.parametrize(
    ("error", "words"), [("timeout", "took more than 60 s and was stopped"), ("worker_died", "died: of SIGSEGV")]
)
def test_a_worker_that_hangs_or_dies_is_one_line(monkeypatch, error, words):
    monkeypatch.setattr(WorkerPool, "run", lambda *_: [Lost(error, "of SIGSEGV", 1.0)])
    with pytest.raises(MeasureError, match=words):
        build_kernels([Wanted("tune_a", program_of(PRODUCTS[0].func), (BASELINE,))], Target.cuda("sm_90"), None)
