"""The answer of a request, for whoever waits for it."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from numpy.typing import NDArray

from autotune.host.forks import life
from autotune.runtime.threads.thread_signal import Signal
from schedules.vocabulary.errors import RunError

Array = NDArray[Any]


class _Lock(_thread.RLock):  # type: ignore[misc]  # declared final, and is not
    """The lock of a future, taken and given back in C: a signal that interrupts its holder leaves it free."""

    def notify_all(self) -> None:
        """Tell nobody: those who wait have a signal of their own."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return False at once, for a ``timeout`` that is over: that was waited for outside."""
        return False


class Request(Future[list[Array]]):
    """The outputs of one request, all of them, once they are there.

    Args:
        stop: ends the run of this request if it is on, and no other; by default it runs to its end.

    Attributes:
        ended: set once it has an answer.
    """

    def __init__(self, stop: Callable[[Request], object] = id) -> None:
        super().__init__()
        self._condition = _Lock()  # type: ignore[assignment]
        self._stop, self._life, self.ended = stop, life(), Signal()
        self.add_done_callback(_end)  # no method of its own: it would live until it is collected

    def result(self, timeout: float | None = None) -> list[Array]:
        """Implement ``Future.result``.

        Raises:
            RunError: in the child of a fork, if the parent made the request and had no answer yet.
        """
        self._check_life()
        self.ended.wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Implement ``Future.exception``; raises what ``result`` raises in the child of a fork."""
        self._check_life()
        self.ended.wait(timeout)
        return super().exception(0)

    def _check_life(self) -> None:
        if self._life != life() and not self.done():
            raise RunError("the request was made before the process was forked; make it again")

    def cancel(self) -> bool:
        """Return whether the request will not run at all.

        One that runs already is ended before its next kernel: ``result`` then raises ``RunError``. One that was joined
        with others runs to its end.
        """
        try:
            if super().cancel():
                return True
        finally:  # after Ctrl-C too
            if self.cancelled():
                self.ended.set()
        self._stop(self)
        return False


def _end(request: Future[list[Array]]) -> None:
    assert isinstance(request, Request)
    request.ended.set()
