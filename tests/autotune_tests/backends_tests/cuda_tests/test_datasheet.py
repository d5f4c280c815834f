"""Every architecture that kernels are built for has a roofline."""

import pytest

from autotune.backends.cuda.cuda_backend import L2_PER_MEMORY, PEAKS, datasheet_roofline
from schedules.target import CUDA_ARCHS, Target


@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_every_architecture_has_a_roofline(arch):
    roofline = datasheet_roofline(Target.cuda(arch))
    assert (roofline.gflops, roofline.memory_gb_s, roofline.tf32_gflops) == PEAKS[arch]
    assert roofline.l2_gb_s == L2_PER_MEMORY * roofline.memory_gb_s
    assert roofline.l2_bytes == Target.cuda(arch).l2_bytes


def test_tensor_cores_bound_what_they_multiply():
    roofline = datasheet_roofline(Target.cuda("sm_80"))
    words, halves, numbers = ("float32",) * 3, ("float16",) * 3, ("uint8", "int8", "int32")
    peaks = [roofline.peak(dtypes) for dtypes in (words, ("tf32",) * 3, halves, ("bfloat16",) * 3, numbers)]
    assert peaks == [19.5e3, 156e3, 312e3, 312e3, 624e3]
