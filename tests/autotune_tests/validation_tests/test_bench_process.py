"""Engines in processes of their own: quiet before each turn, and one line where they fail."""

import os
import signal

import numpy as np
import onnx
import psutil
import pytest

from autotune.artifact.directory import read_artifact
from autotune.validation import bench as bench_module
from autotune.validation import bench_process
from autotune.validation.bench_process import CpuMeter, EngineProcess, EngineTimes, wait_until_quiet
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import MeasureError

CPU_TIMES = type(psutil.cpu_times())


class Spinning:
    """An engine whose threads use ``cpu_s`` between two looks, one after the other."""

    def __init__(self, *spent):
        self.name = "spinner"
        self._totals = iter(np.cumsum([value for pair in spent for value in (0.0, pair)]))

    def cpu_s(self):
        return next(self._totals)


def test_waits_until_no_engine_spins():
    slept = []
    wait_until_quiet([Spinning(0.15, 0.15, 0.01), Spinning(0.0, 0.0, 0.0)], slept.append)
    assert len(slept) == 3


def test_an_engine_that_spins_for_ever_is_named():
    with pytest.raises(MeasureError, match="spinner keeps its threads spinning"):
        wait_until_quiet([Spinning(*[0.15] * bench_process.QUIET_TRIES)], lambda _: None)


def test_times_are_of_all_rounds():
    times = EngineTimes("tune", "1", "fp32", [[0.010, 0.012], [0.014]])
    assert times.runs_s == [0.010, 0.012, 0.014]
    data = times.to_data()
    assert (data["runs"], data["min_ms"], data["p50_ms"]) == pytest.approx((3, 10.0, 12.0))


def test_the_meter_counts_what_is_not_the_engine_s(monkeypatch):
    fields = psutil.cpu_times()._fields
    readings = iter([[0.0] * len(fields), [10.0 if name in ("user", "idle") else 0.0 for name in fields]])
    monkeypatch.setattr(psutil, "cpu_times", lambda: CPU_TIMES(*next(readings)))
    meter = CpuMeter()
    assert meter.others_cpu == 0.0
    with meter.watching(Spinning(5.0)):
        pass
    assert meter.others_cpu == pytest.approx(0.25)


def children():
    return [child.pid for child in psutil.Process().children(recursive=True)]


def job(tiny, tmp_path):
    artifact = read_artifact(tiny.artifact)
    feed = random_inputs(artifact.inputs, 0)
    bench_module.write_job(tmp_path, onnx.load(tiny.model), feed, artifact.target.threads, str(tiny.artifact))
    return tmp_path


def test_an_engine_that_refuses_the_model_is_told_in_one_line(tiny, tmp_path):
    folder = job(tiny, tmp_path)
    (folder / "model.onnx").write_bytes(b"nonsense")
    before = children()
    with pytest.raises(MeasureError, match=r"onnxruntime cannot start: .*Protobuf") as caught:
        EngineProcess("onnxruntime", folder)
    assert "\n" not in str(caught.value)
    assert children() == before


def test_an_engine_that_dies_is_told_in_one_line(tiny, tmp_path):
    with EngineProcess("tune", job(tiny, tmp_path)) as engine:
        assert len(engine.run(3, 1)) == 3
        os.kill(engine._pool.workers[0].pid, signal.SIGKILL)
        with pytest.raises(MeasureError, match="tune ended") as caught:
            engine.run(3, 1)
        assert "\n" not in str(caught.value)
