"""A fork answers, and its crash, its hang and its errors are one line here."""

from __future__ import annotations

import os
import time

import pytest

from autotune.host import forked_worker
from autotune.host.forked_worker import ForkedWorker
from schedules.vocabulary.errors import LogError, UsageError


def answer(request: str) -> object:
    if request == "crash":
        os.abort()
    if request == "hang":
        time.sleep(60)
    if request == "grow":
        return len(bytes(1 << 40))
    if request == "refuse":
        raise UsageError("no")
    if request == "fail":
        raise RuntimeError("first\nlast")
    return os.getpid()


@pytest.fixture
def worker():
    forked = ForkedWorker(answer, LogError, timeout_s=5.0)
    yield forked
    forked.close()


def test_one_fork_answers_until_it_is_closed(worker):
    first = worker.request("")
    assert first == worker.request("") != os.getpid()
    assert worker.close() is not None
    assert worker.close() is None
    assert worker.request("") != first


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ("crash", LogError, "crashed .SIGABRT."),
        ("refuse", UsageError, "no"),
        ("fail", LogError, "RuntimeError: last"),
        ("grow", LogError, "MemoryError"),
    ],
)
def test_what_goes_wrong_is_one_line_and_the_next_is_answered(worker, request_, error, words):
    with pytest.raises(error, match=words) as refusal:
        worker.request(request_)
    assert "\n" not in str(refusal.value)
    assert worker.request("") > 0


def test_a_hang_ends_and_patience_does_too(monkeypatch):
    monkeypatch.setattr(forked_worker, "PATIENCE_S", 0.05)
    hasty = ForkedWorker(answer, LogError, timeout_s=0.1)
    with pytest.raises(LogError, match="did not end within"):
        hasty.request("hang")
    with pytest.raises(LogError, match="others before it"):
        hasty.request("")
    hasty.close()
