"""Which request gets which stream: first come, first served, and all cores for one that comes alone.

Streams are numbers here; ``serving.py`` knows what runs on them. A request that finds a stream idle takes it at once.
Others wait in one queue; whoever frees a stream gives it to the first of them. Where there are also kernels for all
cores together (``WIDE``), a request gets those if every stream was idle when it came: one that had to wait has met
others, and goes to a stream.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from schedules.vocabulary.errors import BusyError, RunError

WIDE = -1
"""In place of a stream's number: all cores."""


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
        """Let everyone go on who waits."""
        self._set = True
        with suppress(RuntimeError):  # it is open
            self._closed.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it was set, at the latest ``timeout_s`` seconds from now."""
        if not self._set and self._closed.acquire(timeout=_for(timeout_s)):
            self.set()  # the next one who waits
        return self._set


def _for(timeout_s: float | None) -> float:
    """A time limit as a lock takes it."""
    return -1 if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)


class StreamQueue:
    """Gives streams to requests.

    Args:
        streams: how many there are, at least one.
        wide: whether there are kernels for all cores together.
        bound: requests that may wait before ``submit`` blocks its caller.
        held: how many of ``streams`` are places to wait at, so that of ``bound`` fewer wait here.
    """

    def __init__(self, streams: int, wide: bool, bound: int, held: int = 0) -> None:
        self._streams, self._wide, self._bound, self._held = streams, wide, bound, held
        self._idle = list(range(streams))  # a stack: what the last request left in the caches is used again
        self._alone = False
        self._waiting: deque[_Ticket] = deque()
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)

    def acquire(self, timeout_s: float | None = None) -> int:
        """A stream for the caller, who waits for it and gives it back with ``release``.

        Raises:
            BusyError: if there was none for ``timeout_s`` seconds.
        """
        if not self._wide and not self._waiting and (stream := self._pop()) is not None:
            return stream
        with self._lock:
            stream = self._take()
            if stream is not None:
                return stream
            got = Signal()
            ticket = _Ticket(lambda _: got.set())
            granted = self._wait(ticket)
        _start(granted)
        served = False
        try:
            got.wait(timeout_s)
            served = ticket.granted
        finally:  # after Ctrl-C too: no stream may be given to nobody
            if not served:
                self._give_up(ticket)
        if not served:
            raise BusyError.after(timeout_s)
        return ticket.stream

    def submit(self, start: Callable[[int], None], timeout_s: float | None = None) -> None:
        """Call ``start`` with a stream once there is one: now, or in the thread that frees it, so it must be quick.

        Blocks while more than ``bound`` requests wait before this one; its place is kept meanwhile.

        Raises:
            BusyError: if that lasted ``timeout_s`` seconds; ``start`` will not be called.
        """
        with self._lock:
            stream = self._take()
            ticket = _Ticket(start)
            granted = self._wait(ticket) if stream is None else []
        _start(granted)
        if stream is not None:
            start(stream)
            return
        with self._lock:
            self._await_room(ticket, timeout_s)

    def release(self, stream: int) -> None:
        """``stream`` is idle again; requests that wait get what is there."""
        if not self._wide:
            # Without the lock: it would add a tenth to the time of a model of 4 µs. A request is put among those that
            # wait before it looks for idle streams again, so either it sees this one or this thread sees it.
            self._idle.append(stream)
            if not self._waiting:
                return
        with self._lock:
            if stream == WIDE:
                self._alone = False
            elif self._wide:
                self._idle.append(stream)
            granted = self._grant()
        _start(granted)

    def _pop(self) -> int | None:
        """An idle stream, if there is one; safe without the lock."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _wait(self, ticket: _Ticket) -> list[_Ticket]:
        """Put ``ticket`` behind the others; those that get a stream now. Under the lock."""
        self._waiting.append(ticket)
        return self._grant()

    def _grant(self) -> list[_Ticket]:
        """Give idle streams to those that wait; to be started without the lock. Under the lock."""
        granted: list[_Ticket] = []
        while self._waiting and not self._alone and (stream := self._pop()) is not None:
            ticket = self._waiting.popleft()
            ticket.stream, ticket.granted = stream, True
            granted.append(ticket)
        if granted:
            self._moved.notify_all()
        return granted

    def _take(self) -> int | None:
        """Take a stream for a request that comes now, if it may have one. Under the lock."""
        if self._waiting or self._alone or not self._idle:
            return None
        if self._wide and len(self._idle) == self._streams:
            self._alone = True
            return WIDE
        return self._pop()

    def _await_room(self, ticket: _Ticket, timeout_s: float | None) -> None:
        """Return when ``ticket`` is among the first that may wait. Under the lock, but for waits."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not ticket.granted and self._waiting.index(ticket) >= self._bound - self._held:
            if not self._moved.wait(None if deadline is None else deadline - time.monotonic()) and not ticket.granted:
                self._waiting.remove(ticket)
                self._moved.notify_all()
                raise BusyError.after(timeout_s, f"{self._bound} requests were waiting")

    def _give_up(self, ticket: _Ticket) -> None:
        with self._lock:
            if not ticket.granted:
                self._waiting.remove(ticket)
                self._moved.notify_all()
                return
        self.release(ticket.stream)


class ClosedQueue(StreamQueue):
    """A queue that refuses every request with ``why``."""

    def __init__(self, why: str) -> None:
        super().__init__(1, False, 1)
        self._why = why

    def acquire(self, timeout_s: float | None = None) -> int:
        """Refuse.

        Raises:
            RunError: always.
        """
        raise RunError(self._why)

    def submit(self, start: Callable[[int], None], timeout_s: float | None = None) -> None:
        """Work like ``acquire``."""
        self.acquire()


def _start(granted: Iterable[_Ticket]) -> None:
    """Tell requests that they have a stream."""
    for ticket in granted:
        ticket.start(ticket.stream)


class _Ticket:
    """A place in the queue.

    Attributes:
        stream: that it was given; valid once ``granted``.
    """

    __slots__ = ("granted", "start", "stream")

    def __init__(self, start: Callable[[int], None]) -> None:
        self.start, self.stream, self.granted = start, WIDE, False
