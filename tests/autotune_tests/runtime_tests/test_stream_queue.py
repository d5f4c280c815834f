"""StreamQueue: first come, first served, bounded, all cores for a request that comes alone, and no stream is lost."""

import threading
import time

import pytest

from autotune.runtime.stream_queue import WIDE, Place, StreamQueue
from schedules.vocabulary.errors import BusyError

SHORT_S = 0.02


class Queue:
    """A ``StreamQueue`` whose requests are known by the numbers of their streams."""

    def __init__(self, *arguments, **options):
        self.queue, self.places = StreamQueue(*arguments, **options), {}

    def acquire(self, timeout_s=None):
        place = Place()
        try:
            self.queue.acquire(place, timeout_s)
        except BusyError:
            self.queue.release(place)
            raise
        self.places[place.stream] = place
        return place.stream

    def submit(self, start, timeout_s=None):
        place = Place()

        def begin(own):
            self.places[own.stream] = own
            start(own.stream)

        place.start = begin
        self.queue.submit(place, timeout_s)

    def release(self, stream):
        self.queue.release(self.places.pop(stream))


def test_as_many_requests_as_streams_run_at_once():
    queue = Queue(2, wide=False, bound=8)
    assert {queue.acquire(), queue.acquire()} == {0, 1}
    with pytest.raises(BusyError, match=r"no stream was free for 0.02 s; allow a longer timeout"):
        queue.acquire(SHORT_S)
    queue.release(1)
    assert queue.acquire(SHORT_S) == 1


def test_the_stream_that_was_used_last_is_used_again():
    queue = Queue(3, wide=False, bound=8)
    for stream in [queue.acquire() for _ in range(3)]:
        queue.release(stream)
    last = queue.acquire()
    queue.release(last)
    assert queue.acquire() == last


def test_a_request_that_comes_alone_gets_all_cores():
    queue = Queue(2, wide=True, bound=8)
    for _ in range(3):
        assert queue.acquire() == WIDE
        with pytest.raises(BusyError):
            queue.acquire(SHORT_S)
        queue.release(WIDE)


def test_requests_that_met_others_go_to_streams():
    queue = Queue(2, wide=True, bound=8)
    first = queue.acquire()
    got = []
    queue.submit(got.append)
    queue.submit(got.append)
    queue.release(first)
    assert sorted(got) == [0, 1]
    queue.release(0)
    assert queue.acquire() == 0  # another runs
    queue.release(0)
    queue.release(1)
    assert queue.acquire() == WIDE


def test_first_come_first_served():
    queue = Queue(1, wide=False, bound=100)
    stream = queue.acquire()
    order = []
    for number in range(20):
        queue.submit(lambda _, number=number: order.append(number))
    for _ in range(20):
        queue.release(stream)
    assert order == list(range(20))


def test_nobody_overtakes_those_who_wait():
    queue = Queue(1, wide=False, bound=100)
    queue.acquire()
    got = []
    queue.submit(got.append)
    queue.release(0)  # now the one that waited has it
    with pytest.raises(BusyError):
        queue.acquire(SHORT_S)
    assert got == [0]


def test_a_full_queue_blocks_until_there_is_room():
    queue = Queue(1, wide=False, bound=2)
    queue.acquire()
    started = []
    for number in range(2):
        queue.submit(lambda _, number=number: started.append(number))
    blocked = threading.Thread(target=queue.submit, args=(lambda _: started.append(2),))
    blocked.start()
    time.sleep(SHORT_S)
    assert blocked.is_alive()
    queue.release(0)
    blocked.join(5)
    assert not blocked.is_alive()
    queue.release(0)
    queue.release(0)
    assert started == [0, 1, 2]


def test_a_full_queue_refuses_after_the_timeout_and_forgets_the_request():
    queue = Queue(1, wide=False, bound=1)
    queue.acquire()
    started = []
    queue.submit(lambda _: started.append("kept"))
    with pytest.raises(BusyError, match=r"1 requests were waiting for 0\.02 s"):
        queue.submit(lambda _: started.append("refused"), SHORT_S)
    queue.release(0)
    queue.release(0)
    assert started == ["kept"]
    assert queue.acquire(SHORT_S) == 0


def test_one_who_gave_up_is_given_nothing():
    queue = Queue(1, wide=False, bound=8)
    queue.acquire()
    with pytest.raises(BusyError):
        queue.acquire(SHORT_S)
    queue.release(0)
    assert queue.acquire(SHORT_S) == 0


def test_many_threads_share_the_streams_and_none_is_lost():
    queue = Queue(3, wide=True, bound=4)
    held, most, lock = set(), [0], threading.Lock()

    def work():
        for step in range(200):
            try:
                stream = queue.acquire(None if step % 3 else 1e-4)
            except BusyError:
                continue
            with lock:
                assert stream not in held
                assert not held or (stream != WIDE and WIDE not in held)
                held.add(stream)
                most[0] = max(most[0], len(held))
            time.sleep(1e-5)
            with lock:
                held.remove(stream)
            queue.release(stream)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most[0] == 3
    assert queue.acquire(SHORT_S) == WIDE
