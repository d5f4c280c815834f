"""The CUDA devices of a machine by name and as targets. There are none here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tvm

from autotune.backends.backend_catalog import backend_of
from autotune.backends.cuda import cuda_backend, device
from autotune.backends.cuda.cuda_executor import check_device
from autotune.options import Options
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError, UsageError

MACHINE = [Target.cuda("sm_90", 132), Target.cuda("sm_90", 132), Target.cuda("sm_80", 108)]


@pytest.fixture
def machine(monkeypatch):
    """Let this machine have the devices of ``MACHINE``."""

    def driver(ordinal=0):
        target = MACHINE[ordinal]
        return SimpleNamespace(arch=target.arch, attribute=lambda _name: target.threads)

    monkeypatch.setattr(device, "Driver", driver)
    monkeypatch.setattr(device, "cuda_devices", lambda: [SimpleNamespace()] * len(MACHINE))
    monkeypatch.setattr(tvm, "cuda", lambda ordinal: SimpleNamespace(exist=ordinal < len(MACHINE)))
    monkeypatch.setattr(cuda_backend, "check_nvrtc", lambda: None)


@pytest.mark.usefixtures("machine")
def test_each_device_has_its_own_target():
    names = ("cuda:0", "cuda:2")
    assert device.device_targets("cpu,cuda:0,cuda:2", names) == (MACHINE[0], MACHINE[2])
    assert device.device_targets("cpu,cuda:0", names[:1]) == (MACHINE[0],)


@pytest.mark.usefixtures("machine")
def test_a_device_that_the_machine_lacks_is_refused_with_those_that_it_has():
    told = "--lanes cpu,cuda:0,cuda:3: this machine has no cuda:3, it has cuda:0, cuda:1, cuda:2; name one of"
    with pytest.raises(UsageError, match=told):
        device.device_targets("cpu,cuda:0,cuda:3", ("cuda:0", "cuda:3"))
    with pytest.raises(UsageError, match=told):  # the target was given
        backend_of(MACHINE[0]).check_options(Options(lanes="cpu,cuda:0,cuda:3", target=MACHINE[0]))
    backend_of(MACHINE[0]).check_options(Options(lanes="cpu,cuda:0,cuda:2", target=MACHINE[0]))
    with pytest.raises(ArtifactError, match="is for cuda:3 and this machine has cuda:0, cuda:1, cuda:2"):
        check_device(3)
    check_device(2)


@pytest.mark.usefixtures("machine")
def test_kernels_are_measured_on_a_device_that_they_are_for():
    assert [device.measuring_device(target) for target in MACHINE] == ["cuda:0", "cuda:0", "cuda:2"]
    assert device.measuring_device(Target.cuda("sm_86")) == "cuda:0"


def test_a_machine_with_one_device_or_none_is_not_asked_for_more(monkeypatch):
    monkeypatch.setattr(device, "cuda_devices", list)
    monkeypatch.setattr(device, "Driver", lambda **_: pytest.fail("a context takes memory"))
    assert device.measuring_device(MACHINE[0]) == "cuda:0"
    with pytest.raises(ArtifactError, match="this machine has none"):
        check_device(1)
