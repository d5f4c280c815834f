"""Waiting for another thread, such that Ctrl-C in the one that waits leaves no lock behind."""

from __future__ import annotations

import threading
from contextlib import suppress


class Signal:
    """A ``threading.Event``, except that a thread that a signal interrupts while it waits leaves no lock behind.

    The lock of an event is taken in Python. An exception between that and the wait is never undone, and whoever sets
    the event later hangs.
    """

    __slots__ = ("_closed", "_set")

    def __init__(self) -> None:
        self._set = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def is_set(self) -> bool:
        """Return whether ``set`` was called."""
        return self._set

    def set(self) -> None:
        """Let everyone go on who waits. If this is interrupted, its caller calls it again."""
        self._set = True
        with suppress(RuntimeError):  # it is open
            self._closed.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it was set, at the latest ``timeout_s`` seconds from now."""
        if not self._set:
            try:
                self._closed.acquire(timeout=_for(timeout_s))
            finally:  # after Ctrl-C too
                if self._set:
                    self.set()  # the next one who waits
        return self._set


def _for(timeout_s: float | None) -> float:
    """A time limit as a lock takes it."""
    return -1 if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)
