"""Every architecture that kernels are built for has a roofline."""

import pytest

from autotune.backends.cuda.datasheet import L2_PER_MEMORY, PEAKS, datasheet_roofline
from schedules.target import CUDA_ARCHS, Target


@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_every_architecture_has_a_roofline(arch):
    roofline = datasheet_roofline(Target.cuda(arch))
    assert (roofline.gflops, roofline.memory_gb_s) == PEAKS[arch]
    assert roofline.l2_gb_s == L2_PER_MEMORY * roofline.memory_gb_s
    assert roofline.l2_bytes == Target.cuda(arch).l2_bytes
