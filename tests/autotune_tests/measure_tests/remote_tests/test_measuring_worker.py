"""The adapter around a local measurer: plain data in, plain data out."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune.host.roofline import Roofline
from autotune.measure.measurer import Candidate
from autotune.measure.remote.measuring_worker import Answer, MeasuringWorker
from schedules.config import Config
from schedules.task import Task
from tests.autotune_tests.fakes import FakeMeasurer, by_config

TASK = Task("t0", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)
ONE, TWO = (Candidate(TASK, "{}", Config("fake/1", (("x", number),))) for number in (1, 2))


class Local(FakeMeasurer):
    """Remembers whom it was told to race against."""

    ran_on = "board"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.incumbents: list[Candidate] = []

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        self.incumbents.append(incumbent)

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        path = self.folder / "1.o"
        path.write_bytes(b"object")
        return [path] * len(candidates)


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path)


@pytest.fixture
def worker(local: Any) -> MeasuringWorker:
    return MeasuringWorker(local, lambda: Roofline(1.0, 2.0, 3.0, 4))


def test_a_batch_brings_its_incumbent_and_its_cold_bytes(worker: MeasuringWorker, local: Local) -> None:
    local.compile_s, local.measure_s = 1.0, 2.0
    answer = worker.measure([ONE, TWO], 64, 1e-3, TWO)
    assert answer == Answer((by_config(ONE), by_config(TWO)), 1.0, 2.0, "board")
    assert (local.cold_bytes, local.incumbents) == (64, [TWO])
    worker.measure([ONE], 64, None, None)
    assert local.incumbents == [TWO]


def test_other_methods_answer_plain_data(worker: MeasuringWorker, local: Local) -> None:
    assert worker.rank([ONE], 8).measurements == (by_config(ONE),)
    assert worker.baseline_s(ONE, 9).measurements == (FakeMeasurer.untuned,)
    assert local.cold_bytes == 9
    assert worker.objects([ONE, TWO]) == [b"object"] * 2
    assert worker.roofline() == Roofline(1.0, 2.0, 3.0, 4)
    assert pickle.loads(pickle.dumps(worker.rank([ONE], 8))) == worker.rank([ONE], 8)
    worker.close()
    assert local.closed
