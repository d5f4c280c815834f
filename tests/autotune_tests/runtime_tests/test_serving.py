"""Serving: streams run side by side on weights that exist once, and what befalls one leaves the others alone."""

import threading
import time

import numpy as np
import pytest

from autotune.artifact.composite import extract_part, read_composite, write_composite
from autotune.artifact.make_plan import make_plan
from autotune.artifact.manifest import AUTO, INTERFACE, SHAPES, STREAMS, annotate, replace_field
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.interface import Interface, OpenSpec
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.batching import CallingThread
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.serving import Serving
from autotune.runtime.stream_queue import WIDE
from schedules.vocabulary.errors import BusyError, RunError, UsageError
from tests.autotune_tests.composites import rows, three_segments, two_batches
from tests.autotune_tests.runtime_tests.held import held
from tests.autotune_tests.tiny import build_untuned
from tuning_logs.sql_store import memory_log


def two_threads(model, out, measurer):
    """The artifact of ``model`` with kernels for two threads, none tuned."""
    target = host_target(2)
    program = import_program(simplify(load_model(model)), target)
    build_artifact(out, program, make_plan(program.tasks, program.spaces, target, memory_log()), model, measurer)
    return out


class Slow(ArtifactExecutor):
    """Waits until it is let go, then answers with its input; a negative number makes it fail."""

    def __init__(self):
        self.go, self.cancelled, self.entered = threading.Event(), threading.Event(), threading.Event()

    def run(self, arrays):
        self.entered.set()
        while not self.go.wait(1e-3):
            if self.cancelled.is_set():
                self.cancelled.clear()
                raise RunError("the run was cancelled")
        if arrays[0] < 0:
            raise RunError("negative")
        return [arrays[0]]

    def profile(self, arrays):
        return []

    def halt(self):
        self.cancelled.set()


@pytest.fixture
def slow(tiny_built, monkeypatch):
    """A serving of two streams that wait to be let go."""
    monkeypatch.setattr(OneShapeExecutor, "streams", lambda _self, _others: None)
    serving = Serving(tiny_built.artifact, None, ServeOptions(streams=2, max_queue=2))
    serving._executors = {0: Slow(), 1: Slow()}
    yield serving
    for executor in serving._executors.values():
        executor.go.set()


def entered(serving):
    return [stream for stream, executor in serving._executors.items() if executor.entered.wait(5)]


def test_streams_share_the_weights_and_nothing_else(tiny_built):
    serving = Serving(tiny_built.artifact, None, ServeOptions(streams=3))
    assert serving.streams == 3
    kernels = [executor._kernels for executor in serving._executors.values()]
    assert len({id(kernel) for kernel in kernels}) == 3
    weights = [[array.ctypes.data for array in kernel._weights] for kernel in kernels]
    assert weights[0] == weights[1] == weights[2]


def test_streams_run_side_by_side_and_an_error_in_one_leaves_the_other_alone(slow):
    bad, good = slow.submit([np.float32(-1)], None), slow.submit([np.float32(2)], None)
    assert entered(slow) == [0, 1]
    for executor in slow._executors.values():
        executor.go.set()
    assert isinstance(bad.exception(5), RunError)
    assert good.result(5) == [2]


def test_a_cancelled_run_ends_and_the_other_goes_on(slow):
    first, second = slow.submit([np.float32(1)], None), slow.submit([np.float32(2)], None)
    entered(slow)
    assert not first.cancel()
    with pytest.raises(RunError, match="cancelled"):
        first.result(5)
    assert not second.done()
    for executor in slow._executors.values():
        executor.go.set()
    assert second.result(5) == [2]
    assert slow.submit([np.float32(3)], None).result(5) == [3]  # its stream is free again


def test_a_request_that_waits_is_cancelled_without_running(slow):
    running = [slow.submit([np.float32(number)], None) for number in range(2)]
    waiting = [slow.submit([np.float32(number)], None) for number in (5, 6)]
    assert waiting[0].cancel()
    with pytest.raises(BusyError, match="2 requests were waiting"):
        slow.submit([np.float32(7)], 0.01)
    with pytest.raises(BusyError, match="no stream was free"):
        slow.run([np.float32(7)], 0.01)
    for executor in slow._executors.values():
        executor.go.set()
    assert [future.result(5) for future in running] == [[0], [1]]
    assert waiting[1].result(5) == [6]
    assert waiting[0].cancelled()


def test_a_recorded_number_of_streams_is_the_default(tiny_built, tmp_path, measurer):
    artifact = build_untuned(tiny_built.model, tmp_path / "own.tuned", measurer)
    assert Serving(artifact, None, ServeOptions()).streams == 1
    annotate(artifact, {STREAMS: 2})
    assert Serving(artifact, None, ServeOptions()).streams == 2
    assert Serving(artifact, None, ServeOptions(streams=1)).streams == 1
    annotate(artifact, {STREAMS: AUTO})
    assert Serving(artifact, None, ServeOptions()).streams >= 1


def test_kernels_of_all_cores_serve_one_that_comes_alone(tiny_built, tmp_path, measurer):
    narrow = build_untuned(tiny_built.model, tmp_path / "narrow", measurer)
    wide = two_threads(tiny_built.model, tmp_path / "wide", measurer)
    specs = (OpenSpec("data", (1, 16, 8, 8), "float32"),)
    outputs = (OpenSpec("scores", (1, 10), "float32"), OpenSpec("features", (1, 32, 8, 8), "float32"))
    out = tmp_path / "both.tuned"
    write_composite(out, SHAPES, [wide, narrow], Interface(specs, outputs, {}), {"model": "tiny.onnx", STREAMS: 2})
    serving = Serving(out, None, ServeOptions())
    assert sorted(serving._executors) == [WIDE, 0, 1]
    assert serving.first.threads == 2
    assert serving._executors[0].threads == 1
    array = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    with held(serving) as alone:
        assert alone is serving.first
        want = alone.run([array])
    with held(serving), pytest.raises(BusyError):
        serving.run([array], 0.01)
    requests = [serving.submit([array], None) for _ in range(6)]
    for request in requests:
        assert all(np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(request.result(30), want, strict=True))


def test_requests_are_joined_into_the_tuned_sizes(tmp_path, measurer):
    built = two_batches(tmp_path, measurer)
    serving = Serving(built.artifact, None, ServeOptions(max_batch=8, max_wait_s=0.2))
    feeds = [rows(1)["rows"] + number for number in range(8)]
    alone = [serving.first.run([feed]) for feed in feeds]
    sizes, inner = [], serving._executors[0].run
    serving._executors[0].run = lambda arrays: sizes.append(arrays[0].shape[0]) or inner(arrays)
    requests = [serving.submit([feed], None) for feed in feeds]
    for request, want in zip(requests, alone, strict=True):
        assert all(np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(request.result(30), want, strict=True))
    assert sizes == [8]
    assert serving.run([feeds[0]], 30)[0].shape == alone[0][0].shape
    assert sizes == [8, 1]


def test_a_batch_that_is_not_answered_in_time(tmp_path, measurer):
    built = two_batches(tmp_path, measurer)
    serving = Serving(built.artifact, None, ServeOptions(max_batch=8, max_wait_s=0.0))
    executor = Slow()
    serving._executors, serving.first = {0: executor}, executor
    with pytest.raises(BusyError, match=r"not answered in 0.02 s"):
        serving.run([np.float32([[1]])], 0.02)
    executor.go.set()


def joined_on(tmp_path, measurer, executor):
    """A serving of one stream, ``executor``, that joins up to eight rows."""
    serving = Serving(two_batches(tmp_path, measurer).artifact, None, ServeOptions(max_batch=8, max_wait_s=0.0))
    serving._executors, serving.first = {0: executor}, executor
    return serving


class Rows(Slow):
    """As ``Slow``, for several rows; notes the threads that run it.

    Attributes:
        error: raised by the next run.
    """

    def __init__(self):
        super().__init__()
        self.threads, self.error = [], None

    def run(self, arrays):
        self.threads.append(threading.current_thread())
        self.entered.set()
        self.go.wait()
        if self.error is not None:
            raise self.error
        return [array.copy() for array in arrays]


def test_whoever_opens_a_batch_by_run_runs_it_and_answers_the_others(tmp_path, measurer):
    executor = Rows()
    serving = joined_on(tmp_path, measurer, executor)
    first = serving.submit([np.float32([[0]])], None)  # keeps the stream
    assert executor.entered.wait(5)
    answers = {}

    def call(number):
        answers[number] = serving.run([np.float32([[number]])], None)

    callers = [threading.Thread(target=call, args=(number,)) for number in (1, 2)]
    for caller in callers:
        caller.start()
    while sum(len(batch.members) for batch in serving._batcher._open.values()) < 2:
        time.sleep(1e-3)
    executor.go.set()
    for caller in callers:
        caller.join(5)
    assert first.result(5)[0] == 0
    assert {number: float(outputs[0][0, 0]) for number, outputs in answers.items()} == {1: 1.0, 2: 2.0}
    assert executor.threads[0] not in callers
    assert executor.threads[1:] in ([callers[0]], [callers[1]])


def test_ctrl_c_in_the_thread_that_runs_a_batch_leaves_the_stream_free(tmp_path, measurer):
    executor = Rows()
    executor.error = KeyboardInterrupt()
    serving = joined_on(tmp_path, measurer, executor)
    executor.go.set()
    with pytest.raises(KeyboardInterrupt):
        serving.run([np.float32([[1]])], None)
    executor.error = RunError("no")
    with pytest.raises(RunError, match="no"):
        serving.run([np.float32([[1]])], None)
    executor.error = None
    assert serving.run([np.float32([[3]])], None)[0] == 3


def test_ctrl_c_in_the_thread_that_runs_a_batch_is_not_that_of_the_others(tmp_path, measurer):
    executor = Rows()
    serving = joined_on(tmp_path, measurer, executor)
    first = serving.submit([np.float32([[0, 0]])], None)  # keeps the stream
    assert executor.entered.wait(5)
    real, main = executor.run, threading.current_thread()

    def interrupted(arrays):
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        return real(arrays)

    executor.run = interrupted
    joined = []

    def join():  # when the main thread has opened the batch
        while not serving._batcher._open:
            time.sleep(1e-3)
        joined.extend(serving.submit([np.float32([[number, 0]])], None) for number in (2, 3))
        executor.go.set()

    thread = threading.Thread(target=join)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        serving.run([np.float32([[1, 0]])], None)
    thread.join(5)
    assert not first.result(5)[0].any()
    assert [float(future.result(5)[0][0, 0]) for future in joined] == [2.0, 3.0]


def test_ctrl_c_while_a_batch_waits_leaves_it_to_a_thread_of_the_session(tmp_path, measurer, monkeypatch):
    executor = Rows()
    serving = joined_on(tmp_path, measurer, executor)
    first = serving.submit([np.float32([[0]])], None)  # keeps the stream
    assert executor.entered.wait(5)

    def interrupted(_caller):
        raise KeyboardInterrupt

    monkeypatch.setattr(CallingThread, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        serving.run([np.float32([[1]])], None)
    joined = serving.submit([np.float32([[2]])], None)
    executor.go.set()
    assert first.result(5)[0] == 0
    assert joined.result(5)[0] == 2
    assert threading.current_thread() not in executor.threads


def test_a_batch_that_finds_the_queue_full_is_refused_to_the_one_whose_time_is_over(tmp_path, measurer):
    executor = Rows()
    options = ServeOptions(max_batch=8, max_wait_s=0.0, max_queue=1)
    serving = Serving(two_batches(tmp_path, measurer).artifact, None, options)
    serving._executors, serving.first = {0: executor}, executor
    full = [serving.submit([np.ones((8, 1), np.float32)], None) for _ in range(2)]  # one runs, the other waits
    assert executor.entered.wait(5)
    joined = []

    def join():  # the batch that the main thread opens
        while not serving._batcher._open:
            time.sleep(1e-3)
        joined.append(serving.submit([np.float32([[2]])], None))

    thread = threading.Thread(target=join)
    thread.start()
    with pytest.raises(BusyError, match="1 requests were waiting"):
        serving.submit([np.float32([[1]])], 0.1)
    thread.join(5)
    executor.go.set()
    assert joined[0].result(5)[0] == 2
    assert all(request.result(5)[0].all() for request in full)


def test_one_set_of_shapes_is_not_joined(tiny_built):
    with pytest.raises(UsageError, match=r"max_batch is 8, but .* has no open batch whose rows are independent; tune"):
        Serving(tiny_built.artifact, None, ServeOptions(max_batch=8))


def test_rows_that_run_one_after_the_other_are_not_joined(tmp_path, measurer):
    composite = read_composite(two_batches(tmp_path, measurer).artifact)
    path = tmp_path / "one.tuned"
    extract_part(composite.parts[0].path, path)
    replace_field(path, INTERFACE, composite.interface.to_data())
    assert Serving(path, None, ServeOptions()).first.inputs[0].shape == ("batch", 24)
    with pytest.raises(
        UsageError, match=r"max_batch is 8, but .* computes the rows of a batch one after the other; tune"
    ):
        Serving(path, None, ServeOptions(max_batch=8))


def test_segments_are_served_on_streams(tmp_path, measurer):
    built = three_segments(tmp_path, measurer)
    serving = Serving(built.artifact, None, ServeOptions(streams=2))
    array = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    want = serving.first.run([array])
    requests = [serving.submit([array], None) for _ in range(8)]
    for request in requests:
        assert all(np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(request.result(30), want, strict=True))


def test_requests_of_a_queue_end_in_the_order_they_came(slow):
    blocked = [slow.submit([np.float32(number)], None) for number in range(2)]
    ended = []
    later = [slow.submit([np.float32(number)], None) for number in range(2, 4)]
    for number, request in enumerate(later):
        request.add_done_callback(lambda _, number=number: ended.append(number))
    slow._executors[0].go.set()
    for request in later:
        request.result(5)
    time.sleep(0.01)
    assert ended == [0, 1]
    assert not all(request.done() for request in blocked)


def test_requests_wait_at_the_core_where_a_run_is_one_call_of_it(tiny_built):
    serving = Serving(tiny_built.artifact, None, ServeOptions(streams=2))
    assert serving._streams is not None
    arrays = [np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32) for seed in range(16)]
    want = [serving.first.run([array]) for array in arrays]
    with held(serving) as one, held(serving) as other:
        assert one is not other
        with pytest.raises(BusyError, match=r"no stream was free for 0.02 s"):
            serving.run([arrays[0]], 0.02)
        waiting = [serving.submit([array], None) for array in arrays]
        time.sleep(0.02)
        assert not waiting[0].cancel()  # it waits at the core
        assert waiting[8].cancel()  # and this one in the queue
        with pytest.raises(RunError, match="cancelled"):
            waiting[0].result(5)
    for number, request in enumerate(waiting):
        if number not in (0, 8):
            assert all(np.array_equal(a, b) for a, b in zip(request.result(30), want[number], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(serving.run([arrays[3]], 5.0), want[3], strict=True))


def test_requests_that_wait_at_the_core_count_as_waiting(tiny_built):
    serving = Serving(tiny_built.artifact, None, ServeOptions(streams=1, max_queue=2))
    array = np.zeros((1, 16, 8, 8), np.float32)
    with held(serving):  # beside the queue, whose place of a run is thus one to wait at
        waiting = [serving.submit([array], None) for _ in range(1 + 2)]
        with pytest.raises(BusyError, match="2 requests were waiting"):
            serving.submit([array], 0.02)
    assert all(request.result(30) for request in waiting)
