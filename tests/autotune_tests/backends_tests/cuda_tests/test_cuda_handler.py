"""Measuring on CUDA builds libraries with machine code inside, and needs no device to build."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.backends.cuda import cuda_handler
from autotune.backends.cuda.cuda_handler import CudaHandler
from autotune.measure.evaluator import FixedCount
from autotune.measure.messages import ReferenceJob, Settings, TimedAll
from schedules.target import Target
from schedules.task import Task

TASK = Task("t", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)


def test_what_runs_runs_on_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = []

    class FakeBench:
        def __init__(self, settings: Settings) -> None:
            opened.append(settings)

        def answer(self, job: ReferenceJob) -> TimedAll:
            return TimedAll((), host=job.library)

    monkeypatch.setattr(cuda_handler, "DeviceBench", FakeBench)
    settings = Settings(Target.cuda("sm_90"), (0,), 0, "schedules.lower", str(tmp_path))
    handler = CudaHandler(settings)
    assert opened == []
    job = ReferenceJob(TASK, "a.so", "a.npy", FixedCount(1), 0, timeout_s=1.0)
    assert [handler.answer(job), handler.answer(job)] == [TimedAll((), host="a.so")] * 2
    assert opened == [settings]
