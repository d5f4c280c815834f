"""NativeStreams: the first stream that is free, first come, first served; nobody else's wait or run is ended."""

import ctypes
import os
import platform
import struct
import threading
import time

import numpy as np
import pytest

from autotune.artifact.directory import read_artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.host.machine import thread_cpus
from schedules.vocabulary.errors import ArtifactError, BusyError, RunError

SHORT_S = 0.02
PATIENCE_S = 30.0


@pytest.fixture
def executors(tiny_built):
    """Two of one artifact, each on a CPU of its own where there are two."""
    artifact = read_artifact(tiny_built.artifact)
    cpus = thread_cpus(2)
    return [backend_of(artifact.target).executor(artifact, 1, [cpus[i % len(cpus)]]) for i in range(2)]


@pytest.fixture
def streams(executors):
    opened = executors[0].streams(executors[1:])
    assert opened is not None
    return opened


def data(seed):
    return np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32)


def started(work):
    """A thread that does ``work``, and where its result or error will be."""
    came = []

    def run():
        try:
            came.append(work())
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, came


def ended(thread):
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("prepared", [True, False])
def test_every_request_of_many_threads_gets_its_own_answer(executors, streams, prepared):
    """Of calls that are made for it, and of those that are used again."""
    inputs = [data(seed) for seed in range(24)]
    want = [executors[0].run([array]) for array in inputs]

    def client(numbers):
        def answer(array):
            return streams.call([array]).run(None) if prepared else streams.run([array], None)

        return [(number, answer(inputs[number])) for number in numbers for _ in range(40)]

    clients = [started(lambda first=first: client(range(first, 24, 6))) for first in range(6)]
    for thread, came in clients:
        ended(thread)
        assert len(came[0]) == 160
        for number, outputs in came[0]:
            assert all(np.array_equal(a, b) for a, b in zip(outputs, want[number], strict=True))


SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine())
SLICES = tuple(int(n) for n in os.uname().release.split(".")[:2]) >= (6, 12)


def attributes_of(thread):
    """What sched_getattr(2) says of a thread: (policy, nice value, nanoseconds of its slice)."""
    room = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall(SCHED_GETATTR, thread, room, 56, 0) == 0
    _, policy, _, nice, _, slice_ns = struct.unpack_from("=IIQiIQ", room.raw)
    return policy, nice, slice_ns


@pytest.mark.skipif(not (SCHED_GETATTR and SLICES), reason="threads have no slices of their own before Linux 6.12")
def test_a_run_has_a_long_slice_of_its_cpu_and_leaves_its_thread_as_it_was(streams):
    """Also that of a request that has waited, which the one before sends to its CPU."""
    threads, seen = [], set()
    barrier, stop = threading.Barrier(4), threading.Event()

    def client():
        before = os.sched_getaffinity(0), attributes_of(0)
        threads.append(threading.get_native_id())
        barrier.wait(PATIENCE_S)
        while not stop.is_set():
            streams.call([data(0)]).run(None)
        return before, (os.sched_getaffinity(0), attributes_of(0))

    clients = [started(client) for _ in range(3)]
    barrier.wait(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while 10**8 not in seen and time.monotonic() < end:
        seen.update(attributes_of(thread)[2] for thread in threads)
    stop.set()
    for thread, came in clients:
        ended(thread)
        before, after = came[0]
        assert after == before
    assert 10**8 in seen


def test_a_request_that_finds_no_stream_in_time(streams):
    with streams.stream(None) as one, streams.stream(None) as other:
        assert {one, other} == {0, 1}
        with pytest.raises(BusyError, match=r"no stream was free for 0.02 s; allow a longer timeout"):
            streams.call([data(0)]).run(SHORT_S)
        with pytest.raises(BusyError), streams.stream(SHORT_S):
            pass
    assert streams.call([data(0)]).run(SHORT_S * 50)[0].size


def test_first_come_first_served(executors):
    streams, order = executors[0].streams([]), []

    def request(number):
        with streams.stream(None):
            order.append(number)

    with streams.stream(None):
        threads = []
        for number in range(8):
            threads.append(started(lambda number=number: request(number))[0])
            time.sleep(SHORT_S)  # it is in the queue
    for thread in threads:
        ended(thread)
    assert order == list(range(8))


def test_a_wait_is_cancelled_and_the_others_go_on(streams):
    calls = [streams.call([data(number)]) for number in range(3)]
    with streams.stream(None), streams.stream(None):
        waiting = [started(lambda call=call: call.run(None)) for call in calls]
        time.sleep(SHORT_S)
        calls[1].cancel()
        ended(waiting[1][0])
        assert isinstance(waiting[1][1][0], RunError)
        assert "cancelled" in str(waiting[1][1][0])
        assert not waiting[0][1]
        assert not waiting[2][1]
    for number in (0, 2):
        ended(waiting[number][0])
        assert isinstance(waiting[number][1][0], list)


def test_a_request_that_was_cancelled_before_it_ran_does_not_run(streams):
    call = streams.call([data(0)])
    call.cancel()
    with pytest.raises(RunError, match="cancelled"):
        call.run(None)


def test_a_thread_that_waited_may_run_where_it_could_before(streams):
    before = os.sched_getaffinity(0)
    places = []

    def request():
        streams.call([data(0)]).run(None)
        places.append(os.sched_getaffinity(0))
        with streams.stream(None):
            places.append(os.sched_getaffinity(0))

    with streams.stream(None), streams.stream(None):
        threads = [started(request)[0] for _ in range(4)]
        time.sleep(SHORT_S)
    for thread in threads:
        ended(thread)
    assert places == [before] * 8


def test_an_artifact_of_a_version_without_streams_has_none(executors, monkeypatch):
    def missing(_self, name, *_):
        raise ArtifactError(f"it has no {name}")

    monkeypatch.setattr(NativeLibrary, "function", missing)
    assert executors[0].streams(executors[1:]) is None
