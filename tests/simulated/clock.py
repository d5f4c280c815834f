"""The clock of a simulated device."""

from __future__ import annotations

import ctypes
import time

SPIN_S = 4e-5
"""Seconds before a moment from which on its coming is watched for: a thread that sleeps wakes up 33 to 38 µs late on
the virtual machines that this was run on, and 75 to 90 with Linux's usual timer slack."""

_libc = ctypes.CDLL(None)
_release = _libc.getppid
"""Other threads may take Python's lock while this is called. It does not give up the CPU, as ``sched_yield`` would: on
the CPU of a thread that naps again and again it came back 3 to 4 ms later, and a kernel of 4 ms took 8. Seldom does
another thread take the lock in so short a time, so most of the time is slept: beside a thread that watched for 100 µs
of every kernel's 130, Python that calls a kernel of 8 µs took 12 ms."""

PR_SET_TIMERSLACK = 29
"""A request of ``prctl``: nanoseconds by which the kernel may delay waking the calling thread, 50,000 if never set."""


class Clock:
    """Seconds that pass as they do."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        """Return at ``moment``, or at once if it is over; other threads run meanwhile."""
        while (left := moment - self.now()) > 0.0:
            if left > SPIN_S:
                _libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
                time.sleep(left - SPIN_S)
            else:
                _release()


class ManualClock(Clock):
    """Seconds that pass only while somebody waits: for tests of one thread."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Implement ``Clock.now``."""
        return self._now

    def wait_until(self, moment: float) -> None:
        """Implement ``Clock.wait_until``, without waiting."""
        self._now = max(self._now, moment)
