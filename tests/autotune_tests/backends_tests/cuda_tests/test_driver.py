"""Calls of the driver are checked, in the right order, and a lost context is told apart."""

from __future__ import annotations

import subprocess

import pytest

from autotune.backends.cuda import device
from autotune.backends.cuda.driver import Driver, StickyError
from schedules.vocabulary.errors import InstallError, MeasureError, UsageError
from tests.autotune_tests.backends_tests.cuda_tests.fake_driver import FakeBindings


def test_a_device_is_read():
    driver = Driver(FakeBindings())
    assert (driver.arch, driver.attribute("MULTIPROCESSOR_COUNT")) == ("sm_90", 132)


def test_no_device_is_told():
    with pytest.raises(InstallError, match="no CUDA device can be used"):
        Driver(FakeBindings({"cuInit": 100}))


@pytest.mark.parametrize(("status", "kind"), [(700, StickyError), (719, StickyError), (2, MeasureError)])
def test_errors_say_which_call(status, kind):
    driver = Driver(FakeBindings({"cuStreamCreate": status}))
    with pytest.raises(kind, match="cuStreamCreate failed") as caught:
        driver.stream()
    assert isinstance(caught.value, StickyError) == (kind is StickyError)


def test_a_graph_is_captured_even_if_launching_fails():
    bindings = FakeBindings()
    driver = Driver(bindings)

    def launch() -> None:
        raise MeasureError("no")

    with pytest.raises(MeasureError):
        driver.graph(77, launch)
    assert bindings.names[-2:] == ["cuStreamBeginCapture", "cuStreamEndCapture"]
    assert driver.graph(77, lambda: None) == "graph"


def test_time_is_the_devices_own():
    bindings = FakeBindings()
    seconds: list[float] = []
    with Driver(bindings).timed(77, seconds):
        bindings.calls.append(("kernel", ()))
    names = bindings.names
    assert seconds == [0.25e-3]
    assert names.index("cuEventRecord") < names.index("kernel") < names.index("cuEventSynchronize")
    assert names[-2:] == ["cuEventDestroy", "cuEventDestroy"]


def test_pinned_memory_can_be_written():
    memory = Driver(FakeBindings()).pinned(16)
    memory[:] = 7
    assert memory.sum() == 112


def test_target_cuda_without_a_device_says_what_to_write(monkeypatch):
    def nothing() -> Driver:
        raise InstallError("no driver")

    monkeypatch.setattr(device, "Driver", nothing)
    monkeypatch.setattr(device.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="--no-device"):
        device.device_target()


def test_nvidia_smi_helps_out(monkeypatch):
    def answer(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "8.0\n8.0\n", "")

    monkeypatch.setattr(device.shutil, "which", lambda _: "/bin/nvidia-smi")
    monkeypatch.setattr(device.subprocess, "run", answer)
    assert device.arch_from_smi() == "sm_80"
