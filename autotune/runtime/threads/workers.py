"""Threads of a session, which run requests that no caller runs.

They do what ``ThreadPoolExecutor`` does, except that Ctrl-C, or an alarm whose handler raises, leaves no lock behind.
CPython raises it in the main thread alone, also while that takes or gives back a lock in Python. So whoever hands over
work only calls functions in C; threads are counted and started by such threads themselves.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

logger = logging.getLogger(__name__)

Work = Callable[[], object]


class Workers:
    """Up to ``most`` threads, started as they are needed. They end with this object, when they have done all work.

    Args:
        name: of the threads, before a number.

    Attributes:
        left: work for which there is no thread, since none can be started or the interpreter ends. Whoever puts some,
            or lets a request begin that puts some, calls ``run_left`` afterwards.
    """

    def __init__(self, most: int, name: str) -> None:
        self._threads = threads = _Threads(most, name)
        self.left = threads.left
        weakref.finalize(self, threads.works.put, None).atexit = False
        _living.add(threads)
        atexit.unregister(_finish)
        atexit.register(_finish)  # last, so first: work may need what ends then, such as ``foreign_runs``

    def put(self, work: Work) -> None:
        """Have a thread call ``work``; what it raises is only logged. If this is interrupted, it may be called again.

        Then, and if no thread can be started, ``work`` may be called twice.
        """
        try:
            self._threads.put(work)
        except RuntimeError:
            self.left.append(work)

    def run_left(self) -> None:
        """Do what is left."""
        self._threads.run_left()


class _Threads:
    """The threads of ``Workers``, and all that they know of it, so that they do not keep it."""

    def __init__(self, most: int, name: str) -> None:
        self.works: SimpleQueue[Work | None] = SimpleQueue()
        self.left: deque[Work] = deque()
        self.threads: set[threading.Thread] = set()
        self.pid = os.getpid()
        self.is_closed = False
        self._most, self._name = most, name
        self._idle = 0
        self._lock = threading.Lock()

    def put(self, work: Work) -> None:
        """Implement ``Workers.put``.

        Raises:
            RuntimeError: if the interpreter ends, or no first thread can be started.
        """
        if self.is_closed:
            raise RuntimeError("the interpreter ends")
        self.works.put(work)
        if not self.threads:
            _thread.start_new_thread(self._grow, ())  # a call in C, unlike ``Thread.start``

    def run_left(self) -> None:
        """Implement ``Workers.run_left``."""
        while self.left:
            try:
                work = self.left.popleft()
            except IndexError:  # another thread has it
                return
            work()

    def alive(self) -> list[threading.Thread]:
        """Return the threads that have begun."""
        return [thread for thread in list(self.threads) if thread.is_alive()]

    def is_busy(self) -> bool:
        """Whether there is work, or a thread that may have some."""
        return not self.works.empty() or bool(self.alive())  # in this order: a thread that takes the last one is alive

    def _grow(self) -> None:
        """Start a thread if none is idle and there may be another."""
        with self._lock:
            if self._idle or len(self.threads) >= self._most:
                return
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self.threads)}", daemon=True)
            self._idle += 1
            self.threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # there is no thread more, or the interpreter ends
            logger.debug("%s: %s", thread.name, error)
            self._leave(thread)
            while not self.threads and not self.works.empty():
                self.call(self.works.get())

    def _work(self) -> None:
        """Call what is put, until there is None."""
        while (work := self.works.get()) is not None:
            with self._lock:
                self._idle -= 1
            self._grow()  # so that the next one finds a thread
            self.call(work)
            work = None  # it may be the last that holds a session
            with self._lock:
                self._idle += 1
        self._leave(threading.current_thread())
        if self.threads:
            self.works.put(None)

    def call(self, work: Work | None) -> None:
        """Call ``work``, if there is any, and log what it raises."""
        try:
            if work is not None:
                work()
            self.run_left()
        except BaseException:  # it has told its callers; the thread goes on
            logger.debug("a request ended with an error that is not its own", exc_info=True)

    def _leave(self, thread: threading.Thread) -> None:
        with self._lock:
            self._idle -= 1
            self.threads.discard(thread)


_living: weakref.WeakSet[_Threads] = weakref.WeakSet()


def _finish() -> None:
    """Wait until every request is answered that a thread has or will have, before the interpreter ends."""
    for group in list(_living):
        group.is_closed = True  # threads of others may go on
        while group.pid == os.getpid() and group.is_busy():
            threads = group.alive()
            if threads:
                group.works.put(None)
            else:  # none has begun yet
                with suppress(Empty):
                    group.call(group.works.get_nowait())
            for thread in threads:
                thread.join()
