"""The worker that runs one engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autotune.host.fork_server import Refused
from autotune.validation import bench_engine
from autotune.validation.bench_engine import Engine, EngineHandler, Load, Run, Work, load_work
from schedules.errors import ArtifactError, MeasureError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "inputs.npz", np.zeros(2), np.ones(3))
    (tmp_path / "job.json").write_text(json.dumps({"threads": 2, "artifact": "a.tuned", "inputs": ["x", "y"]}))
    return tmp_path


def test_work_is_read_from_its_folder(folder: Path) -> None:
    work = load_work(folder)
    assert (work.threads, work.artifact, work.model) == (2, Path("a.tuned"), str(folder / "model.onnx"))
    assert {name: array.shape for name, array in work.feed.items()} == {"x": (2,), "y": (3,)}


def test_an_engine_is_loaded_once_and_timed_without_its_warm_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Work] = []
    monkeypatch.setitem(bench_engine.ENGINES, "fake", lambda work: Engine("1.2", "fp32", lambda: runs.append(work)))
    handler = EngineHandler(("fake", str(folder)))
    assert handler.answer(Load(timeout_s=1.0)) == ("1.2", "fp32")
    latencies = handler.answer(Run(3, 2, timeout_s=1.0))
    assert isinstance(latencies, list)
    assert len(latencies) == 3
    assert min(latencies) >= 0
    assert len(runs) == 5


def test_an_engine_that_refuses_its_model_cannot_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Work) -> Engine:
        raise ArtifactError("it was changed")

    monkeypatch.setitem(bench_engine.ENGINES, "fake", refuse)
    answer = EngineHandler(("fake", str(folder))).answer(Load(timeout_s=1.0))
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, MeasureError)
    assert str(answer.error) == "fake cannot start: it was changed"
