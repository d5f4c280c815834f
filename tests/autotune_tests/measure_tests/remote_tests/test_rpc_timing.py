"""What the end of a device's session means for the candidate that it was running."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from autotune.host.fork_server import Refused
from autotune.measure.evaluator import FixedCount
from autotune.measure.messages import DeviceLost, ReferenceJob, TimedAll
from autotune.measure.remote.rpc_timing import RemoteHandler, died
from schedules.task import Task
from schedules.vocabulary.errors import MeasureError

TASK = Task("t", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)
JOB = ReferenceJob(TASK, "a.so", "a.npy", FixedCount(1), 0, timeout_s=130.0)


@pytest.mark.parametrize(
    ("note", "error", "words"),
    [
        ("memory", "out_of_memory", "bad_alloc"),
        (str(int(signal.SIGALRM)), "timeout", "not done within 10 s"),
        (str(int(signal.SIGSEGV)), "worker_died", "SIGSEGV"),
        ("", "worker_died", "an unknown cause (the cable)"),
        ("999", "worker_died", "an unknown cause"),
    ],
)
def test_a_note_says_what_it_was(note: str, error: str, words: str) -> None:
    timed = died(note, 10.0, "the cable")
    assert timed.error == error
    assert words in timed.message


class FakeBench:
    """Loses its session on the first jobs."""

    old = False

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.closed = 0

    def within(self, job: object) -> TimedAll:
        if self.notes:
            raise DeviceLost("note", "gone")
        return TimedAll((), host="board")

    def last_note(self, note: str) -> str:
        return self.notes.pop(0)

    def close(self) -> None:
        self.closed += 1


class Handler(RemoteHandler):
    def __init__(self, bench: Any) -> None:
        self._bench = None
        self._next = bench

    def _ready_bench(self) -> Any:
        if isinstance(self._next, Exception):
            raise self._next
        self._bench = self._next
        return self._next


SEGFAULT = str(int(signal.SIGSEGV))


def test_a_job_gets_a_second_session() -> None:
    assert Handler(FakeBench([SEGFAULT])).answer(JOB) == TimedAll((), host="board")
    answer = Handler(FakeBench([SEGFAULT] * 2)).answer(JOB)
    assert isinstance(answer, TimedAll)
    assert [timed.error for timed in answer.runs] == ["worker_died"]


def test_a_timeout_is_not_tried_again() -> None:
    bench = FakeBench([str(int(signal.SIGALRM)), SEGFAULT])
    answer = Handler(bench).answer(JOB)
    assert isinstance(answer, TimedAll)
    assert [timed.error for timed in answer.runs] == ["timeout"]
    assert bench.notes == [SEGFAULT]


def test_a_device_that_cannot_be_reached_ends_the_run() -> None:
    answer = Handler(MeasureError("no device")).answer(JOB)
    assert isinstance(answer, Refused)
    assert str(answer.error) == "no device"


def test_a_rest_leaves_the_device_to_others() -> None:
    bench = FakeBench([])
    handler = Handler(bench)
    handler.rest()
    handler.answer(JOB)
    handler.rest()
    handler.rest()
    assert bench.closed == 1
