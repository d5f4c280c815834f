"""Which request gets which stream: first come, first served, and all cores for one that comes alone.

Streams are numbers here; ``serving.py`` knows what runs on them. A request that finds a stream idle takes it at once.
Others wait in one queue; whoever frees a stream gives it to the first of them. Where there are also kernels for all
cores together (``WIDE``), a request gets those if every stream was idle when it came: one that had to wait has met
others, and goes to a stream.

Ctrl-C, or an alarm whose handler raises, ends a request anywhere. CPython raises it after a call of a function in C and
at the start of one in Python. So a stream moves between the queue and a ``Place`` without any call in between, and all
that gives something back may be called again after it was interrupted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from autotune.runtime.threads.thread_signal import Signal
from schedules.vocabulary.errors import BusyError, RunError

T = TypeVar("T")
U = TypeVar("U")

WIDE = -1
"""In place of a stream's number: all cores."""

NO_STREAM = -2
"""The number that stands for no stream."""


FORKED = (
    "the session was opened before the process was forked, and what runs it (ONNX Runtime or a device) does not "
    "survive that; open another session in the child"
)


class Place:
    """The place of a request in the queue, for one ``acquire`` or ``submit``.

    Attributes:
        stream: the stream that it has; None before it was given one, and after it was given back.
        start: called with this place once it has a stream; again if that was interrupted.
        has_entered: whether it was put among those that wait, or had a stream at once.
        is_back: whether it was released to the end.
    """

    stream: int | None = None
    start: Callable[[Place], None] | None = None
    has_entered: bool = False
    is_back: bool = False

    @property
    def held(self) -> int:
        """The stream, of a place that has one."""
        assert self.stream is not None
        return self.stream


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
        self._waiting: deque[Place] = deque()
        self._granted: deque[Place] = deque()  # that have a stream and were not told of it
        self._lock = threading.Lock()
        self._blocked: list[Signal] = []  # of callers that wait until fewer requests wait
        # A step of a loop over these takes one element: no signal is handled before it is in its variable.
        self._pop_idle = iter(self._idle.pop, NO_STREAM)
        self._pop_granted = iter(self._granted.popleft, None)

    def acquire(self, place: Place, timeout_s: float | None = None) -> None:
        """Wait until ``place``, a new one, has a stream. The caller releases it in any case, after an error too.

        Raises:
            BusyError: if there was none for ``timeout_s`` seconds.
        """
        if not self._wide and not self._waiting:
            try:
                for place.stream in self._pop_idle:
                    return
            except IndexError:  # none is idle
                pass
        got = Signal()
        place.start = lambda _: got.set()
        try:
            with self._lock:
                self._enter(place)
            self._tell()
            got.wait(timeout_s)
        finally:  # after Ctrl-C too: no stream may be given to nobody
            with self._lock:
                self._leave(place)
        if place.stream is None:
            raise BusyError.after(timeout_s)

    def during(self, work: Callable[[T, float | None], U], argument: T, timeout_s: float | None) -> U:
        """Return the result of ``work`` on ``argument`` and the seconds that are left, run while it has a stream.

        It works like ``acquire`` and ``release`` around it, in less time. For streams, not for all cores together.

        Raises:
            BusyError: as ``acquire``.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        place, stream, idle = None, None, self._idle
        try:
            try:
                for stream in () if self._waiting else self._pop_idle:  # noqa: B007
                    break
            except IndexError:  # none is idle
                pass
            if stream is None:
                place = Place()
                self.acquire(place, timeout_s)
            return work(argument, None if end is None else end - time.monotonic())
        finally:
            if stream is not None:
                idle += (stream,)
                if self._waiting:
                    try:
                        self.wake()
                    finally:  # again after Ctrl-C
                        self.wake()
            elif place is not None:
                try:
                    self.release(place)
                finally:
                    if not place.is_back:
                        self.release(place)

    def wake(self) -> None:
        """Give what is idle to those that wait."""
        with self._lock:
            self._grant()
        self._tell()

    def submit(self, place: Place, timeout_s: float | None = None) -> None:
        """Start ``place`` once there is a stream: now, or in the thread that frees it, so that must be quick.

        Blocks while more than ``bound`` requests wait before this one; its place is kept meanwhile, and after Ctrl-C.

        Raises:
            BusyError: if that lasted ``timeout_s`` seconds; ``place`` will not be started.
        """
        try:
            self.put(place)
            if place.stream is None:
                self._await_room(place, timeout_s)
        except BusyError:
            raise
        except BaseException:  # Ctrl-C
            self.put(place)
            raise

    def put(self, place: Place) -> None:
        """Work like ``submit`` without blocking, however many wait. A place that was in the queue is not put again."""
        with self._lock:
            if not place.has_entered:
                self._enter(place)
            self._grant()
        self._tell()

    def release(self, place: Place) -> None:
        """Take back the stream of ``place``, if it has one; requests that wait get what is there.

        If this is interrupted, its caller calls it again.
        """
        stream = place.stream
        if stream is not None and not self._wide:
            # Without the lock: it would add a tenth to the time of a model of 4 µs. A request is put among those that
            # wait before it looks for idle streams again, so either it sees this one or this thread sees it.
            idle = self._idle
            idle += (stream,)
            place.stream = None
            if not self._waiting:
                place.is_back = True
                return
        with self._lock:
            if place.stream == WIDE:
                self._alone = False
            elif place.stream is not None:
                idle = self._idle
                idle += (place.stream,)
            elif stream is None:
                self._leave(place)
            place.stream = None
            self._grant()
        self._tell()
        place.is_back = True

    def _pop(self, place: Place) -> bool:
        """Return whether there was an idle stream for ``place``; safe without the lock."""
        try:
            for place.stream in self._pop_idle:
                return True
        except IndexError:
            pass
        return False

    def _grant(self) -> None:
        """Give idle streams to those that wait; to be told without the lock. Under the lock."""
        while self._waiting and not self._alone:
            place = self._waiting[0]
            if place.stream is None and not self._pop(place):
                break
            self._granted += (place,)
            self._waiting.popleft()
        self._unblock()

    def _tell(self) -> None:
        """Start those that were given a stream."""
        while self._granted:
            try:
                for place in self._pop_granted:  # noqa: B007
                    break
            except IndexError:  # another thread starts it
                return
            if place.start is None:
                continue
            told = False
            try:
                place.start(place)
                told = True
            finally:  # again after Ctrl-C
                if not told:
                    place.start(place)

    def _enter(self, place: Place) -> None:
        """Give ``place`` a stream if it may have one now, else put it behind the others. Under the lock."""
        if self._wide and not self._waiting and not self._alone and len(self._idle) == self._streams:
            self._alone = True
            place.stream, place.has_entered = WIDE, True
            self._granted += (place,)
            return
        self._waiting += (place,)
        place.has_entered = True  # no call in between: a place that has run must not be entered again after Ctrl-C
        self._grant()

    def _await_room(self, place: Place, timeout_s: float | None) -> None:
        """Return when ``place`` is among the first that may wait."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            moved = Signal()
            with self._lock:
                if place not in self._waiting or self._waiting.index(place) < self._bound - self._held:
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    self._leave(place)
                    raise BusyError.after(timeout_s, f"{self._bound} requests were waiting")
                self._blocked += (moved,)
            moved.wait(None if deadline is None else deadline - time.monotonic())

    def _unblock(self) -> None:
        """Let callers look again whether there is room. Under the lock."""
        while self._blocked:
            self._blocked[-1].set()
            self._blocked.pop()  # after it was told: Ctrl-C may come in between

    def _leave(self, place: Place) -> None:
        """Take ``place`` out of the queue if it waits there. Under the lock."""
        if place in self._waiting:
            self._waiting.remove(place)
            self._unblock()


class ClosedQueue(StreamQueue):
    """A queue that refuses every request with ``why``."""

    def __init__(self, why: str) -> None:
        super().__init__(1, False, 1)
        self._why = why

    def acquire(self, place: Place, timeout_s: float | None = None) -> None:
        """Refuse.

        Raises:
            RunError: always.
        """
        raise RunError(self._why)

    def submit(self, place: Place, timeout_s: float | None = None) -> None:
        """Work like ``acquire``."""
        self.acquire(place)
