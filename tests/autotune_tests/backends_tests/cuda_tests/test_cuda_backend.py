"""What the CUDA backend refuses."""

from __future__ import annotations

import pytest
import tvm

from autotune.backends.backend_catalog import backend_of
from autotune.options import Options
from schedules.target import Target
from schedules.vocabulary.errors import UsageError

TARGET = Target.cuda("sm_90")


@pytest.mark.skipif(tvm.cuda(0).exist, reason="this machine has a CUDA device")
def test_a_machine_without_a_device_is_told_how_to_build_for_one() -> None:
    with pytest.raises(UsageError, match="--no-device"):
        backend_of(TARGET).check_options(Options(target=TARGET))


def test_the_whole_device_is_one_lane() -> None:
    (lane,) = backend_of(TARGET).lanes(Options(target=TARGET), TARGET)
    assert (lane.threads, lane.device) == (TARGET.threads, "cuda:0")


def test_nothing_is_measured_without_a_device_or_from_the_log_alone() -> None:
    backend = backend_of(TARGET)
    assert not backend.measures(Options(target=TARGET, device=False))
    assert not backend.measures(Options(target=TARGET, frozen=True))
    assert backend.measures(Options(target=TARGET))


def test_the_roofline_is_the_data_sheet_s() -> None:
    assert backend_of(TARGET).roofline(TARGET).gflops > backend_of(TARGET).roofline(Target.cuda("sm_80")).gflops
