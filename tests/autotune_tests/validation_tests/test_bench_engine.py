"""The worker that runs one engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from autotune.host.fork_server import Refused
from autotune.validation import bench_engine
from autotune.validation.bench_engine import EngineHandler, Load, Memory, Run, Serve
from autotune.validation.peers.peer import Engine, Work, load_work
from schedules.vocabulary.errors import ArtifactError, MeasureError


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
    monkeypatch.setattr(bench_engine, "loader", lambda _: lambda work: Engine("1.2", "fp32", lambda: runs.append(work)))
    handler = EngineHandler(("fake", str(folder)))
    assert handler.answer(Load(timeout_s=1.0)) == ("1.2", "fp32")
    latencies = handler.answer(Run(3, 2, timeout_s=1.0))
    assert isinstance(latencies, list)
    assert len(latencies) == 3
    assert min(latencies) >= 0
    assert len(runs) == 5


def test_clients_send_at_once_and_what_warms_up_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def clients(count: int) -> list[Callable[[], object]]:
        counts.append(count)
        return [partial(time.sleep, 1e-3)] * count

    engine = Engine("1.2", "fp32", lambda: None, clients)
    monkeypatch.setattr(bench_engine, "loader", lambda _: lambda _: engine)
    monkeypatch.setattr(bench_engine, "WARM_S", 0.02)
    handler = EngineHandler(("fake", str(folder)))
    handler.answer(Load(timeout_s=1.0))
    answer = handler.answer(Serve(3, 0.02, timeout_s=1.0))
    assert isinstance(answer, tuple)
    rate, latencies = answer
    assert counts == [3]
    assert isinstance(rate, float)
    assert 3 <= len(latencies) <= 70
    assert rate <= 3 / 1e-3


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("taken_s", [0.01, 0.3, 0.7, 5.0])
def test_rates_are_right_where_few_requests_fit(taken_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(bench_engine, "time", clock)
    rate, latencies = bench_engine.serve(Engine("1", "fp32", partial(clock.sleep, taken_s)), 1, 0.5)
    assert rate == pytest.approx(1 / taken_s)
    assert latencies == pytest.approx([taken_s] * len(latencies))


def test_an_engine_that_refuses_its_model_cannot_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Work) -> Engine:
        raise ArtifactError("it was changed")

    monkeypatch.setattr(bench_engine, "loader", lambda _: refuse)
    answer = EngineHandler(("fake", str(folder))).answer(Load(timeout_s=1.0))
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, MeasureError)
    assert str(answer.error) == "fake cannot start: it was changed"


def test_the_peak_of_running_is_apart_from_that_of_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that needs 200 MB for a moment, and runs that hold 60 MB."""

    def load(work: Work) -> Engine:
        np.ones(200 << 17).sum()
        held: list[object] = []
        return Engine("1", "fp32", lambda: held or held.append(np.ones(60 << 17)))

    monkeypatch.setattr(bench_engine, "loader", lambda _: load)
    handler = EngineHandler(("fake", str(folder)))
    handler.answer(Load(timeout_s=1.0))
    handler.answer(Run(1, 1, timeout_s=1.0))
    answer = handler.answer(Memory(timeout_s=1.0))
    assert isinstance(answer, tuple)
    loaded, serving = answer
    assert 150e6 < loaded < 300e6
    assert 40e6 < serving < 150e6
