"""Answers that are waited for: as futures of the standard library, which its own functions take."""

import asyncio
import threading
from concurrent.futures import CancelledError, as_completed, wait

import pytest

from autotune.runtime.threads.request import Request

PATIENCE_S = 20.0


def answered(value, after_s=0.0):
    request = Request()
    threading.Timer(after_s, request.set_result, [value]).start()
    return request


def test_the_standard_library_waits_for_it():
    requests = [answered([number], 0.01 * number) for number in range(4)]
    assert wait(requests, PATIENCE_S).not_done == set()
    requests = [answered([number], 0.02) for number in range(4)]
    assert sorted(request.result()[0] for request in as_completed(requests, PATIENCE_S)) == [0, 1, 2, 3]

    async def awaited():
        return await asyncio.wrap_future(answered([5], 0.02))

    assert asyncio.run(awaited()) == [5]


def test_an_answer_that_does_not_come_is_not_waited_for_longer_than_asked():
    for call in (Request().result, Request().exception):
        with pytest.raises(TimeoutError):
            call(0.01)


def test_an_error_and_a_cancellation_are_told():
    request = Request()
    request.set_exception(ValueError("no"))
    assert str(request.exception()) == "no"
    request = Request()
    assert request.cancel()
    with pytest.raises(CancelledError):
        request.result(PATIENCE_S)


def test_one_that_runs_is_stopped_by_its_own_way():
    stopped = []
    request = Request(stopped.append)
    assert request.set_running_or_notify_cancel()
    assert not request.cancel()
    assert stopped == [request]
