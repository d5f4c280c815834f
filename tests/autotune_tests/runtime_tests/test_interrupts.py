"""Ctrl-C at any moment of a request leaves the session as it was: the next request is answered.

CPython raises what a signal's handler raises after a call of a function in C and at the start of one in Python, which
are the events of a profiler. So a profiler that raises at the n-th event stands for a signal there, for every n.
"""

import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
import pytest

from autotune.artifact.composite import extract_part, read_composite
from autotune.artifact.manifest import INTERFACE, replace_field
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.serving import Serving
from autotune.runtime.stream_queue import Place, StreamQueue
from autotune.runtime.threads.workers import Workers
from schedules.vocabulary.errors import BusyError, RunError
from tests.autotune_tests.composites import rows, two_batches

PATIENCE_S = 20
OURS = ("stream_queue.py", "serving.py", "batching.py", "native_streams.py", "multi_shape_executor.py")
THREADS_TOO = (*OURS, "workers.py", "thread_signal.py", "request.py", "threading.py", "_base.py", "thread.py")


class Interrupt(BaseException):
    """As what the handler of a signal raises."""


class AlarmError(Exception):
    """As what the handler of an alarm may raise, which looks like an error of the run, and which futures swallow."""


def interrupted(call, event, files=OURS, error=Interrupt):
    """Whether ``call`` was interrupted at the moment of that number, of those in ``files``."""
    left = [event]

    def profiler(frame, kind, _argument):
        if kind in ("call", "c_return") and frame.f_code.co_filename.endswith(files):
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise error

    sys.setprofile(profiler)
    try:
        call()
    except error:
        return True
    finally:
        sys.setprofile(None)
    return left[0] < 0


@pytest.fixture(params=["core", "python", "cores together", "pieces", "batches"])
def served(request, tmp_path, tiny_built, measurer, monkeypatch):
    """A serving of one stream and the inputs of a request."""
    kind = request.param
    data = [np.ones((1, 16, 8, 8), np.float32)]
    if kind in ("pieces", "batches"):
        built = two_batches(tmp_path, measurer)
        if kind == "batches":
            return Serving(built.artifact, None, ServeOptions(max_batch=8, max_wait_s=0.0)), [rows(1)["rows"]]
        composite = read_composite(built.artifact)
        extract_part(composite.parts[0].path, tmp_path / "one.tuned")
        replace_field(tmp_path / "one.tuned", INTERFACE, composite.interface.to_data())
        return Serving(tmp_path / "one.tuned", None, ServeOptions()), [rows(3)["rows"]]
    if kind != "core":
        monkeypatch.setattr(OneShapeExecutor, "streams", lambda _self, _others: None)
    serving = Serving(tiny_built.artifact, None, ServeOptions())
    if kind == "cores together":
        serving._queue = StreamQueue(1, wide=True, bound=8)
        serving._executors = {0: serving.first, -1: serving.first}
    return serving, data


def execute(executor, arrays):
    return executor.run(arrays)


def test_the_stream_is_free_after_an_interrupt_at_any_moment(served):
    serving, arrays = served
    want = serving.run(arrays, None)
    for call in (serving.run, lambda arrays, _: serving.on_stream(execute, arrays)):
        moment = 0
        while interrupted(lambda call=call: call(arrays, None), moment):
            if serving._batcher is None:
                assert not serving._running
                place = Place()
                serving._queue.acquire(place, PATIENCE_S)
                serving._queue.release(place)
            (got, *_) = serving.run(arrays, None if serving._batcher is None else PATIENCE_S)
            assert np.array_equal(got, want[0]), moment
            (got, *_) = serving.on_stream(execute, arrays, PATIENCE_S)
            assert np.array_equal(got, want[0]), moment
            moment += 1
        assert moment > 5


def test_an_alarm_ends_the_request_of_its_thread_alone(served):
    serving, arrays = served
    (want, *_) = serving.run(arrays, None)
    moment = 0
    while interrupted(lambda: serving.run(arrays, None), moment, THREADS_TOO, AlarmError):
        others = [in_thread(lambda: serving.submit(arrays, PATIENCE_S)) for _ in range(2)]
        assert np.array_equal(serving.run(arrays, None)[0], want), moment
        for request in others:
            assert np.array_equal(in_thread(lambda request=request: request.result(PATIENCE_S))[0], want), moment
        moment += 1
    assert moment > 5


def test_those_who_wait_get_the_stream_of_an_interrupted_request():
    moment, was_interrupted = 0, True
    while was_interrupted:
        queue, place, got = StreamQueue(1, wide=False, bound=8), Place(), []
        queue.acquire(place)

        def wait(queue=queue, got=got):
            own = Place()
            try:
                queue.acquire(own, PATIENCE_S)
                got.append("waited")
            finally:
                queue.release(own)

        thread = threading.Thread(target=wait)
        thread.start()
        while not queue._waiting:
            pass
        later = Place()
        later.start = lambda own, queue=queue, got=got: (got.append("submitted"), queue.release(own))
        queue.submit(later)

        def give_back(queue=queue, place=place):
            try:
                queue.release(place)
            except BaseException:
                queue.release(place)
                raise

        was_interrupted = interrupted(give_back, moment)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), moment
        queue.acquire(place, PATIENCE_S)
        assert set(got) == {"waited", "submitted"}, moment
        moment += 1
    assert moment > 5


def test_a_request_that_was_interrupted_while_it_entered_is_not_waited_for():
    moment, was_interrupted = 0, True
    while was_interrupted:
        queue, held = StreamQueue(1, wide=False, bound=8), Place()
        queue.acquire(held)

        def enter(queue=queue):
            own = Place()
            try:
                queue.acquire(own, 1e-3)
            except BusyError:
                pass
            finally:
                try:
                    queue.release(own)
                except BaseException:
                    queue.release(own)
                    raise

        was_interrupted = interrupted(enter, moment)
        assert not queue._waiting, moment
        queue.release(held)
        queue.acquire(held, PATIENCE_S)
        moment += 1
    assert moment > 5


def in_thread(call):
    """The result of ``call`` by another thread, which no signal interrupts; an error if it hangs."""
    results, errors = SimpleQueue(), []

    def work():
        try:
            results.put(call())
        except (CancelledError, RunError) as error:
            errors.append(error)
            results.put(None)

    threading.Thread(target=work, daemon=True).start()
    result = results.get(timeout=PATIENCE_S)
    if errors:
        raise errors[0]
    return result


def futures_work(serving, arrays, want):
    """Whether requests of this thread and of another are answered in threads of the session's."""
    requests = [serving.submit(arrays, PATIENCE_S), in_thread(lambda: serving.submit(arrays, PATIENCE_S))]
    return all(
        np.array_equal(in_thread(lambda request=request: request.result(PATIENCE_S))[0], want) for request in requests
    )


def timed(serving, arrays, _requests):
    serving.run(arrays, PATIENCE_S)


def submitted(serving, arrays, requests):
    requests.append(serving.submit(arrays, None))
    requests[-1].result(PATIENCE_S)


def cancelled(serving, arrays, requests):
    requests.append(serving.submit(arrays, None))
    requests[-1].cancel()


@pytest.mark.parametrize("work", [timed, submitted, cancelled])
@pytest.mark.parametrize("fresh", [False, True])
def test_requests_of_threads_are_answered_after_an_interrupt_at_any_moment(served, work, fresh):
    serving, arrays = served
    want = serving.run(arrays, None)[0]
    moment, was_interrupted, requests = 0, True, []
    while was_interrupted:
        if fresh:  # no thread was started yet
            serving._workers = Workers(2, "fresh")
        was_interrupted = interrupted(lambda: work(serving, arrays, requests), moment, THREADS_TOO)
        assert futures_work(serving, arrays, want), moment
        for request in requests:
            with suppress(CancelledError, RunError):
                assert np.array_equal(in_thread(lambda request=request: request.result(PATIENCE_S))[0], want), moment
        requests.clear()
        moment += 1
    assert moment > 5


def test_a_request_that_was_interrupted_while_it_waited_for_room_leaves_the_queue_as_it_was():
    moment, was_interrupted = 0, True
    while was_interrupted:
        queue, held, started = StreamQueue(1, wide=False, bound=1), Place(), []
        queue.acquire(held)

        def place(queue=queue, started=started):
            own = Place()
            own.start = lambda place: (started.append(place), queue.release(place))
            return own

        def enter(queue=queue, place=place):
            with suppress(BusyError):
                queue.submit(place(), 1e-3)

        queue.submit(place())
        was_interrupted = interrupted(enter, moment, THREADS_TOO)
        in_thread(lambda queue=queue, held=held: queue.release(held))
        assert not queue._waiting, moment
        assert len(started) in (1, 2), moment
        in_thread(lambda queue=queue, place=place: queue.submit(place(), PATIENCE_S))
        assert len(queue._idle) == 1, moment
        moment += 1
    assert moment > 5


def test_a_request_that_was_interrupted_when_it_had_run_does_not_get_another_stream():
    moment, was_interrupted = 0, True
    while was_interrupted:
        queue, own, started = StreamQueue(1, wide=False, bound=8), Place(), []
        own.start = lambda place, queue=queue, started=started: (started.append(place), queue.release(place))
        was_interrupted = interrupted(lambda queue=queue, own=own: queue.submit(own), moment)
        assert queue._idle == [0], moment
        count = len(started)
        queue.put(own)  # as after an interrupt
        assert not count or len(started) == count, moment
        assert queue._idle == [0], moment
        assert not queue._waiting, moment
        moment += 1
    assert moment > 5
