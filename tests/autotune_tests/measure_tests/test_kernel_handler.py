"""A handler builds at once and opens its bench with the first job that runs something."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.host.fork_server import Refused
from autotune.host.machine import host_target
from autotune.measure.evaluator import FixedCount
from autotune.measure.kernel_handler import KernelHandler, lowering_of
from autotune.measure.messages import BuildJob, Built, ReferenceJob, Settings, TimedAll
from schedules import lower
from schedules.lower import BASELINE
from schedules.task import Task
from schedules.vocabulary.errors import MeasureError

TASK = Task("t", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)


class FakeBuilder:
    def build(self, job: BuildJob) -> Built:
        return Built(1.0, job.symbol)


class FakeBench:
    def answer(self, job: Any) -> TimedAll:
        return TimedAll((), host=job.output)


class FakeHandler(KernelHandler):
    opened = 0

    def _open(self) -> Any:
        self.opened += 1
        return FakeBench()


@pytest.fixture
def handler() -> FakeHandler:
    return FakeHandler(FakeBuilder())  # type: ignore[arg-type]


def test_building_opens_no_bench(handler: FakeHandler) -> None:
    job = BuildJob("program.json", BASELINE, "a.so", "symbol", timeout_s=1.0)
    assert handler.answer(job) == Built(1.0, "symbol")
    assert handler.opened == 0


def test_a_disk_without_room_is_told_to_the_run(monkeypatch: pytest.MonkeyPatch, handler: FakeHandler) -> None:
    def build(*_: Any) -> Built:
        raise MeasureError("no room")

    monkeypatch.setattr(FakeBuilder, "build", build)
    answer = handler.answer(BuildJob("program.json", BASELINE, "a.so", "symbol", timeout_s=1.0))
    assert isinstance(answer, Refused)
    assert str(answer.error) == "no room"


def test_the_bench_is_opened_once(handler: FakeHandler) -> None:
    job = ReferenceJob(TASK, "a.so", "a.npy", FixedCount(1), 0, timeout_s=1.0)
    assert [handler.answer(job), handler.answer(job)] == [TimedAll((), host="a.npy")] * 2
    assert handler.opened == 1


def test_the_lowering_is_a_module() -> None:
    assert lowering_of(Settings(host_target(1), (0,), 0, "schedules.lower", "")) is lower
