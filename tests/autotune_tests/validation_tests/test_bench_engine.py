"""The worker that runs one engine."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.host.fork_server import Refused
from autotune.host.machine import read_host
from autotune.validation import bench_engine
from autotune.validation.bench_engine import (
    ENGINES,
    Engine,
    EngineHandler,
    Load,
    Run,
    Serve,
    Work,
    load_work,
    openvino_precision,
)
from schedules.vocabulary.errors import ArtifactError, MeasureError
from tests.autotune_tests.tiny import tiny_model


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


def test_clients_send_at_once_and_what_warms_up_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def clients(count: int) -> list[Callable[[], object]]:
        made.append(count)
        return [partial(time.sleep, 1e-3)] * count

    engine = Engine("1.2", "fp32", lambda: None, clients)
    monkeypatch.setitem(bench_engine.ENGINES, "fake", lambda _: engine)
    monkeypatch.setattr(bench_engine, "WARM_S", 0.02)
    handler = EngineHandler(("fake", str(folder)))
    handler.answer(Load(timeout_s=1.0))
    answer = handler.answer(Serve(3, 0.02, timeout_s=1.0))
    assert isinstance(answer, tuple)
    rate, latencies = answer
    assert made == [3]
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

    monkeypatch.setitem(bench_engine.ENGINES, "fake", refuse)
    answer = EngineHandler(("fake", str(folder))).answer(Load(timeout_s=1.0))
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, MeasureError)
    assert str(answer.error) == "fake cannot start: it was changed"


@pytest.mark.parametrize(
    ("layers", "floats", "precision"),
    [
        ([("Convolution", "f32"), ("Reorder", "bf16")], "f32", "fp32"),
        ([("Input", "f32"), ("Reorder", "f32"), ("FullyConnected", "bf16")], "bf16", "bf16"),
        ([("Convolution", "u8"), ("MatMul", "i8"), ("Subgraph", "f32")], "f32", "int8"),
        ([("Convolution", "u8"), ("MatMul", "bf16")], "bf16", "bf16+int8"),
        ([("Eltwise", "f16")], "f16", "fp16"),
    ],
)
def test_openvinos_precision_is_that_of_what_multiplies(
    layers: list[tuple[str, str]], floats: str, precision: str
) -> None:
    assert openvino_precision(layers, floats) == precision


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_openvino_is_held_to_fp32_and_its_default_says_what_it_chose(folder: Path) -> None:
    onnx.save(tiny_model(), folder / "model.onnx")
    work = Work(folder, 1, Path("a.tuned"), {"data": np.zeros((1, 16, 8, 8), np.float32)})
    assert ENGINES["openvino"](work).precision == "fp32"
    flags = read_host().flags
    expected = "bf16" if flags & {"avx512_bf16", "amx_bf16"} else "fp32"
    default = ENGINES["openvino-default"](work)
    assert default.precision == expected
    default.run()
