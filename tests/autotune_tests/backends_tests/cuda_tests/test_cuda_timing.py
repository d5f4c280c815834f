"""The device's bench, with a stand-in for the driver, and kernels that run on the CPU in place of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from autotune.backends.cuda.cuda_timing import DeviceBench
from autotune.backends.cuda.driver import Driver, StickyError
from autotune.measure import kernel_timing
from autotune.measure.evaluator import Adaptive, FixedCount
from autotune.measure.messages import Reference, ReferenceJob, Settings, TimedAll, TimeJob
from schedules.lower import BASELINE
from schedules.target import Target
from schedules.task import Task
from tests.autotune_tests.backends_tests.cuda_tests.fake_driver import FakeBindings
from tests.schedules_tests.programs import from_te

SHAPE = (4, 32)
TASK = Task("00ff", "scale", "cuda_map", "scale", (SHAPE, SHAPE), ("float32", "float32"), (), 128, 1024)


def scaled(factor: float) -> tirx.PrimFunc:
    x = te.placeholder(SHAPE, name="x")
    return from_te(x, te.compute(SHAPE, lambda i, j: x[i, j] * tirx.const(factor, "float32"), name="y"))


class Device:
    """A bench of a device that is not there.

    Attributes:
        bindings: what the driver was asked.
        kernels: library's name → what its kernel does.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, fail: dict[str, int] | None = None) -> None:
        self.bindings = FakeBindings(fail)
        self.kernels = {
            name: tvm.compile(tvm.IRModule({"main": scaled(factor)}), target="llvm")["main"]
            for name, factor in (("right", 3.0), ("same", 3.0), ("wrong", 3.1))
        }
        self.folder = folder
        monkeypatch.setattr(kernel_timing, "load", lambda library, task: self.kernels[library])
        monkeypatch.setattr(tvm, "cuda", lambda ordinal: tvm.cpu(ordinal))
        monkeypatch.setattr(tvm.runtime.Device, "set_raw_stream", lambda device, stream: None, raising=False)
        target = Target.cuda("sm_90")
        settings = Settings(target, (0,), 0, "schedules.lower", str(folder))
        self.bench = DeviceBench(settings, Driver(self.bindings))

    def reference(self) -> Reference:
        output = str(self.folder / "reference.npy")
        told = self.bench.reference(ReferenceJob(TASK, "right", output, FixedCount(3), 0, timeout_s=10.0))
        assert told.runs[0].latencies_s == (0.25e-3,) * 3
        return Reference(output, told.positive)

    def time(self, *libraries: str, reference: Reference, control: str = "") -> TimedAll:
        evaluator = Adaptive() if control else FixedCount(3)
        other = (control, BASELINE) if control else None
        incumbent = 0.25e-3 if control else None
        configs = (BASELINE,) * len(libraries)
        return self.bench.time(
            TimeJob(TASK, libraries, configs, "", reference, evaluator, incumbent, other, 0, timeout_s=10.0)
        )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    return Device(monkeypatch, tmp_path)


def test_right_kernels_are_timed_by_the_devices_clock(device):
    told = device.time("right", "same", reference=device.reference())
    assert [answer.latencies_s for answer in told.runs] == [(0.25e-3,) * 3] * 2
    assert {answer.error for answer in told.runs} == {None}


def test_a_wrong_kernel_is_not_timed(device):
    reference = device.reference()
    right, wrong = device.time("right", "wrong", reference=reference).runs
    assert (right.error, wrong.error, wrong.latencies_s) == (None, "wrong_result", ())
    assert len(right.latencies_s) == 3


def test_l2_is_overwritten_before_every_timed_run(device):
    reference = device.reference()
    device.bindings.calls.clear()
    device.time("right", reference=reference)
    names = device.bindings.names
    runs = names.count("cuEventSynchronize")
    assert names.count("cuMemsetD8Async") == runs > 3
    for at in (index for index, name in enumerate(names) if name == "cuMemsetD8Async"):
        assert names[at + 1 : at + 4] == ["cuEventCreate", "cuEventCreate", "cuEventRecord"]
    size = next(arguments[2] for name, arguments in device.bindings.calls if name == "cuMemsetD8Async")
    assert size >= Target.cuda("sm_90").l2_bytes


def test_a_contender_races_the_incumbents_kernel(device):
    reference = device.reference()
    device.bindings.calls.clear()
    (told,) = device.time("right", reference=reference, control="same").runs
    assert len(device.bindings.names) > 0
    assert set(np.round(told.latencies_s, 9)) == {0.25e-3}
    assert device.bindings.names.count("cuEventElapsedTime") > len(told.latencies_s) + 3


def test_an_error_that_loses_the_context_is_not_answered(device, monkeypatch):
    reference = device.reference()
    monkeypatch.setitem(device.bindings._fail, "cuStreamSynchronize", 700)
    with pytest.raises(StickyError, match="cuStreamSynchronize failed"):
        device.time("right", reference=reference)


def test_other_errors_are_the_candidates(device, monkeypatch):
    reference = device.reference()
    monkeypatch.setitem(device.bindings._fail, "cuStreamSynchronize", 1)
    (told,) = device.time("right", reference=reference).runs
    assert told.error == "wrong_result"
    assert "cuStreamSynchronize failed" in told.message


def test_kernels_of_bfloat16_are_checked_and_timed(device, monkeypatch):
    x = te.placeholder(SHAPE, "bfloat16", name="x")
    y = te.compute(SHAPE, lambda i, j: (x[i, j].astype("float32") * 3.0).astype("bfloat16"), name="y")
    device.kernels["right"] = tvm.compile(tvm.IRModule({"main": from_te(x, y)}), target="llvm")["main"]
    task = Task("00fe", "scale", "cuda_map", "scale", (SHAPE, SHAPE), ("bfloat16", "bfloat16"), (), 128, 512)
    output = str(device.folder / "short.npy")
    told = device.bench.reference(ReferenceJob(task, "right", output, FixedCount(3), 0, timeout_s=10.0))
    assert told.runs[0].latencies_s == (0.25e-3,) * 3
    reference = Reference(output, told.positive)
    job = TimeJob(task, ("right",), (BASELINE,), "", reference, FixedCount(3), None, None, 0, timeout_s=10.0)
    (timed,) = device.bench.time(job).runs
    assert (timed.error, len(timed.latencies_s)) == (None, 3)
