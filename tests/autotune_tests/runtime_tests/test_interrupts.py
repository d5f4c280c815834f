"""Ctrl-C at any moment of a request leaves the session as it was: the next request is answered.

CPython raises what a signal's handler raises after a call of a function in C and at the start of one in Python, which
are the events of a profiler. So a profiler that raises at the n-th event stands for a signal there, for every n.
"""

import sys
import threading

import numpy as np
import pytest

from autotune.artifact.composite import extract_part, read_composite
from autotune.artifact.manifest import INTERFACE, replace_field
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.serving import Serving
from autotune.runtime.stream_queue import Place, StreamQueue
from schedules.vocabulary.errors import BusyError
from tests.autotune_tests.composites import rows, two_batches

PATIENCE_S = 20
OURS = ("stream_queue.py", "serving.py", "batching.py", "native_streams.py", "multi_shape_executor.py")


class Interrupt(BaseException):
    """As what the handler of a signal raises."""


def interrupted(call, event):
    """Whether ``call`` was interrupted at the moment of that number, of those in files that hold streams."""
    left = [event]

    def profiler(frame, kind, _argument):
        if kind in ("call", "c_return") and frame.f_code.co_filename.endswith(OURS):
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise Interrupt

    sys.setprofile(profiler)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


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


def test_the_stream_is_free_after_an_interrupt_at_any_moment(served):
    serving, arrays = served
    want = serving.run(arrays, None)
    moment = 0
    while interrupted(lambda: serving.run(arrays, None), moment):
        if serving._batcher is None:
            assert not serving._running
            place = Place()
            serving._queue.acquire(place, PATIENCE_S)
            serving._queue.release(place)
        (got, *_) = serving.run(arrays, None if serving._batcher is None else PATIENCE_S)
        assert np.array_equal(got, want[0]), moment
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
