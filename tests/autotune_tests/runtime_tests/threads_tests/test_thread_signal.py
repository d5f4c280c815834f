"""A signal lets everyone go on, also when one of those who wait was interrupted."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from autotune.runtime.threads.thread_signal import Signal

PATIENCE_S = 20.0


def test_everyone_goes_on_who_waits_and_whoever_comes_later():
    signal = Signal()
    assert not signal.wait(1e-3)
    assert not signal.is_set()
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(signal.wait, PATIENCE_S) for _ in range(4)]
        signal.set()
        signal.set()
        assert all(future.result(PATIENCE_S) for future in waiting)
    assert signal.wait()


@pytest.mark.parametrize("limit", [float("inf"), 1e300, -1.0])
def test_any_time_limit_is_taken(limit):
    signal = Signal()
    signal.set()
    assert signal.wait(limit)


def test_others_go_on_when_the_first_that_goes_on_is_interrupted():
    """The interrupt comes after the lock was taken, before the next one is told."""
    signal = Signal()

    class Interrupted:
        def __init__(self, lock):
            self.lock = lock

        def acquire(self, timeout):
            self.lock.acquire(timeout=timeout)
            raise KeyboardInterrupt

        def release(self):
            self.lock.release()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(signal.wait, PATIENCE_S)
        signal._closed = Interrupted(lock := signal._closed)
        threading.Timer(0.05, signal.set).start()
        with pytest.raises(KeyboardInterrupt):
            signal.wait(PATIENCE_S)
        signal._closed = lock
        assert other.result(PATIENCE_S)
