"""Source becomes machine code for our target's architecture, and the machine code says what it needs."""

from __future__ import annotations

import pytest
from tvm import te

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.backends.cuda import nvrtc
from autotune.backends.cuda.cubin import inspect
from autotune.backends.cuda.cuda_builder import Wanted, build_kernels
from autotune.backends.cuda.nvrtc import compile_cuda
from autotune.backends.cuda.source import cuda_program
from schedules.lower import BASELINE, claim, lower, program_of
from schedules.target import CUDA_ARCHS, Target
from schedules.vocabulary.errors import ArtifactError, ScheduleError
from tests.schedules_tests.programs import from_te

PLAIN = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
SHARED = """extern "C" __global__ void turn(float *x) {
  __shared__ float t[256];
  t[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = t[255 - threadIdx.x];
}"""
INDEXED = """extern "C" __global__ void pick(float *x, int *i) {
  volatile float t[64];
  for (int k = 0; k < 64; ++k) t[k] = x[k] * x[k + 1];
  x[0] = t[i[0]] + t[i[1]];
}"""


@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_the_arch_is_ours(arch):
    assert inspect(compile_cuda(PLAIN, arch))["twice"].arch == arch


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_cubin_says_what_a_kernel_needs(arch):
    plain, shared, indexed = (
        inspect(compile_cuda(source, arch))[name]
        for source, name in ((PLAIN, "twice"), (SHARED, "turn"), (INDEXED, "pick"))
    )
    assert (plain.shared_bytes, plain.local_bytes) == (0, 0)
    assert 0 < plain.registers <= 32
    assert shared.shared_bytes == 1024
    assert indexed.local_bytes >= 256


def test_what_does_not_compile_is_a_failed_candidate():
    with pytest.raises(ScheduleError, match="nonsense"):
        compile_cuda('extern "C" __global__ void f() { nonsense(); }', "sm_90")


def test_other_files_are_no_cubins():
    with pytest.raises(ArtifactError, match="not a cubin"):
        inspect(b"\x7fELF" + bytes(100))


def test_names_of_a_model_are_no_names_in_c():
    x, y = te.placeholder((8, 32), name="gpu_0/data 0"), te.placeholder((8, 32), name="gpu_0 data/0")
    func = from_te(x, y, te.compute((8, 32), lambda i, j: x[i, j] - y[i, j], name="1.sum"))
    chosen = build_kernels([Wanted("tune_a", program_of(func), (BASELINE,))], Target.cuda("sm_90"), None)
    assert chosen["tune_a"].config == BASELINE
    launches = cuda_program(lower(func, BASELINE, Target.cuda("sm_90")), Target.cuda("sm_90")).launches
    assert set(launches[0].arguments) == {"gpu_0_data_0", "gpu_0_data_0_2", "_1_sum"}


@pytest.mark.parametrize("word", ["half", "float", "threadIdx", "tanhf"])
def test_names_of_a_model_may_be_words_of_cuda(word):
    """What is read and what is kept between two loops; TVM makes other names of both."""
    target, along = Target.cuda("sm_90"), te.reduce_axis((0, 64))
    x = te.placeholder((64, 64), name=word)
    total = te.compute((64,), lambda i: te.sum(x[i, along], axis=along), name=word)
    func = from_te(x, te.compute((64, 64), lambda i, j: te.tanh(x[i, j]) - total[i], name="y"))
    for config in (claim(func, target).space.initial[0], BASELINE):
        assert inspect(compile_cuda(cuda_program(lower(func, config, target), target).source, "sm_90"))


def test_what_was_compiled_before_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(nvrtc, "user_cache", lambda: tmp_path)
    cubin, other = compile_cuda(PLAIN, "sm_80"), compile_cuda(PLAIN, "sm_90")
    ptx = nvrtc.compile_ptx(PLAIN, "sm_80")
    monkeypatch.setattr(nvrtc, "_compiled", None)  # whatever calls it fails
    assert [compile_cuda(PLAIN, arch) for arch in ("sm_80", "sm_90")] == [cubin, other]
    assert cubin != other
    assert nvrtc.compile_ptx(PLAIN, "sm_80") == ptx
    monkeypatch.setattr(nvrtc, "_identity", lambda _: ("another compiler",))
    with pytest.raises(TypeError):
        compile_cuda(PLAIN, "sm_80")
