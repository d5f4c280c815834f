"""Code that is not ours: TVM's passes, ONNX's reference implementation, ONNX Runtime.

It raises any error, and aborts the process if a daemon thread is inside of it when the interpreter ends: CPython ends
such a thread where it takes the interpreter's lock again, beneath frames of C++ that must not be left so.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.host.forks import renew_in_children
from schedules.vocabulary.errors import AutotuneError, first_line

EXIT_S = 10.0
"""Seconds for which the end of the interpreter waits for runs of daemon threads."""

POLL_S = 1e-3
"""Seconds between two looks at whether they have ended."""


class ThirdPartyError(Exception):
    """An error that third-party code raised, in one line; its cause is the error itself."""


@contextmanager
def third_party() -> Iterator[None]:
    """Turn every error of the block but our own into a ``ThirdPartyError``."""
    try:
        yield
    except AutotuneError:
        raise
    except Exception as error:  # such code raises any class of error, depending on the model that it is given
        raise ThirdPartyError(first_line(error)) from error


class _ForeignRuns:
    """Runs of models by third-party code: a context manager around each.

    At exit, those of other threads are waited for, and threads that begin another stay where they are.
    """

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._ended = False
        atexit.register(self._end)
        renew_in_children(self)

    def __enter__(self) -> None:
        self._inside.add(threading.get_ident())
        if self._ended and threading.current_thread() is not threading.main_thread():
            self._inside.discard(threading.get_ident())
            threading.Event().wait()

    def __exit__(self, *_: object) -> None:
        self._inside.discard(threading.get_ident())

    def renew(self) -> None:
        """Forget the threads of the parent, in the child of a fork."""
        self._inside = set()

    def _end(self) -> None:
        self._ended = True
        end = time.monotonic() + EXIT_S
        while self._inside - {threading.get_ident()} and time.monotonic() < end:
            time.sleep(POLL_S)


@functools.cache
def foreign_runs() -> _ForeignRuns:
    """Return the context manager that every run of a model by third-party code is in."""
    return _ForeignRuns()
