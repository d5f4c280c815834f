"""Batcher: requests are joined as far as is allowed, and everyone gets their own outputs back."""

import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from autotune.interface import Growth, Interface, OpenSpec
from autotune.runtime.batching import Batch, Batcher, CallingThread, Member
from autotune.runtime.stream_queue import Place

INTERFACE = Interface(
    (OpenSpec("rows", ("batch", 3), "float32"), OpenSpec("mask", ("time", "batch"), "float32")),
    (OpenSpec("twice", ("batch", 3), "float32"), OpenSpec("pairs", ("batch",), "float32")),
    {(0, 0): Growth(), (1, 0): Growth().then(2)},
    split=frozenset({"batch"}),
)


def model(arrays):
    """Rows doubled; and each row's first number twice."""
    rows, _ = arrays
    return [2 * rows, np.repeat(rows[:, 0], 2)]


def member(value, rows=1, time=4):
    arrays = [np.full((rows, 3), value, np.float32), np.zeros((time, rows), np.float32)]
    return Member(arrays, Future())


def run(batcher, batch):
    sizes = []

    def counted(arrays):
        sizes.append(arrays[0].shape[0])
        return model(arrays)

    batcher.close(batch)
    batch.begin()
    try:
        batch.finish(batcher.run(batch, counted))
    except ValueError as error:
        batch.finish(error)
    return sizes


def test_a_batch_that_was_interrupted_as_it_began_begins_again(monkeypatch):
    members = [member(value) for value in range(4)]
    members[1].answer.cancel()
    batch, real, seen = Batch(list(members)), Future.set_running_or_notify_cancel, []

    def interrupted(answer):
        began = real(answer)
        seen.append(answer)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return began

    monkeypatch.setattr(Future, "set_running_or_notify_cancel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        batch.begin()
    assert batch.begin() == batch.begin() == [members[0], members[2], members[3]]
    assert all(own.answer.running() for own in batch.members)


@pytest.fixture
def batcher():
    return Batcher(INTERFACE, "batch", 4, 0.01)


def test_requests_are_joined_and_taken_apart(batcher):
    requests = [member(1), member(2, rows=2), member(3)]
    batch, *others = [batcher.join(request) for request in requests]
    assert others == [None, None]
    assert run(batcher, batch) == [4]
    for request in requests:
        twice, pairs = request.answer.result(0)
        value = request.arrays[0][0, 0]
        assert np.array_equal(twice, 2 * request.arrays[0])
        assert np.array_equal(pairs, np.full(2 * len(twice), value))
        assert twice.flags.c_contiguous
        assert twice.base is None or twice.base.nbytes == twice.nbytes  # not a view that keeps the others' alive


def test_a_full_batch_is_not_waited_for(batcher):
    batcher = Batcher(INTERFACE, "batch", 2, 60.0)
    batch = batcher.join(member(1))
    batcher.join(member(2))
    began = time.monotonic()
    assert run(batcher, batch) == [2]
    assert time.monotonic() - began < 30


def test_one_that_is_not_full_runs_after_a_while(batcher):
    batch = batcher.join(member(1))
    assert run(batcher, batch) == [1]
    assert batcher.join(member(2)) is not None  # nobody joins what has run


def test_what_does_not_fit_opens_the_next_batch_and_ends_the_wait(batcher):
    first = batcher.join(member(1, rows=3))
    second = batcher.join(member(2, rows=3))
    assert second is not None
    assert first.full.is_set()
    assert (run(batcher, first), run(batcher, second)) == ([3], [3])


def test_a_request_larger_than_a_batch_runs_alone(batcher):
    batch = batcher.join(member(1, rows=9))
    assert batch.full.is_set()
    assert run(batcher, batch) == [9]


def test_other_sizes_are_not_joined(batcher):
    assert batcher.join(member(1, time=4)) is not None
    assert batcher.join(member(1, time=5)) is not None
    assert batcher.join(member(1, time=4)) is None


def test_a_cancelled_member_is_left_out(batcher):
    requests = [member(1), member(2), member(3)]
    batch, *_ = [batcher.join(request) for request in requests]
    assert requests[1].answer.cancel()
    assert run(batcher, batch) == [2]
    assert np.array_equal(requests[2].answer.result(0)[0], 2 * requests[2].arrays[0])


def test_an_error_of_a_joined_run_is_that_of_the_members_that_meet_it_alone(batcher):
    requests = [member(1), member(2), member(3)]
    batch, *_ = [batcher.join(request) for request in requests]

    def touchy(arrays):
        if (arrays[0] == 2).any():
            raise ValueError("it is two")
        return model(arrays)

    batcher.close(batch)
    batch.begin()
    batch.finish(batcher.run(batch, touchy))
    for request in (requests[0], requests[2]):
        assert np.array_equal(request.answer.result(0)[0], 2 * request.arrays[0])
    assert isinstance(requests[1].answer.exception(0), ValueError)


@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (3,)])
def test_arrays_that_change_while_they_wait_change_no_other_answer(batcher, shape):
    requests = [member(1), member(2), member(3)]
    batch, *_ = [batcher.join(request) for request in requests]
    requests[1].arrays[0] = np.zeros(shape, np.float32)
    run(batcher, batch)
    for request in (requests[0], requests[2]):
        assert np.array_equal(request.answer.result(0)[0], 2 * request.arrays[0])


def test_without_a_batcher_a_batch_is_one_request():
    alone = member(5)
    batch = Batch([Member(alone.arrays, alone.answer, wanted=(1,))])
    batch.begin()
    batch.finish(batch.run(model))
    (pairs,) = alone.answer.result(0)
    assert pairs.tolist() == [5, 5]


def test_many_threads_join_and_nothing_is_lost_or_doubled():
    batcher = Batcher(INTERFACE, "batch", 4, 1e-3)
    answers, lock, runners = [], threading.Lock(), []

    def send(offset):
        for number in range(50):
            request = member(1000 * offset + number)
            batch = batcher.join(request)
            with lock:
                answers.append(request)
            if batch is not None:
                runner = threading.Thread(target=run, args=(batcher, batch))
                runners.append(runner)
                runner.start()

    senders = [threading.Thread(target=send, args=(offset,)) for offset in range(4)]
    for thread in senders:
        thread.start()
    for thread in senders:
        thread.join(30)
    assert len(answers) == 200
    for request in answers:
        assert np.array_equal(request.answer.result(30)[0], 2 * request.arrays[0])
    for runner in runners:
        runner.join(30)


def test_a_calling_thread_takes_one_batch_while_it_waits():
    caller, batch, place = CallingThread(), Batch(), Place()
    assert caller.offer(batch, place)
    caller.wait()
    assert caller.leave() == (batch, place)
    gone = CallingThread()
    assert gone.leave() is None
    assert not gone.offer(batch, place)
    assert gone.leave() is None
