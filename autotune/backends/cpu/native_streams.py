"""Python's side of the streams in ``core.cc``: executors of one program, each on cores of its own."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_int, c_int64, c_void_p
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.backends.cpu.native_library import BUSY, OK, NativeLibrary, Request, Run, Stream
from autotune.backends.executor import Arrays
from schedules.errors import BusyError, RunError


class Runnable(Protocol):
    """What of a ``NativeExecutor`` its streams need.

    Attributes:
        library: that holds its core.
        handle: the core.
        first_cpu: of the caller's thread; negative for any.
    """

    library: NativeLibrary
    handle: c_void_p
    first_cpu: int

    def prepared(self, inputs: Arrays) -> Run:
        """A run for ``inputs``, on this executor or another one of the same program."""
        ...

    def check(self, status: int, run: Run) -> None:
        """Raise what a run that ended with ``status`` said.

        Raises:
            RunError: unless it is ``OK``.
        """
        ...


class NativeStreams:
    """As ``Streams``.

    Args:
        executors: of one program, at least one.

    Raises:
        ArtifactError: if the artifact's library has no streams, since it was built by an older version.
        RunError: if there is no memory.
    """

    def __init__(self, executors: Sequence[Runnable]) -> None:
        self.executors = executors
        library = executors[0].library
        opened = library.function("tune_streams_open", c_int, POINTER(Stream), c_int64, POINTER(c_void_p))
        close = library.function("tune_streams_close", None, c_void_p)
        self.take = library.function("tune_streams_take", c_int, c_void_p, POINTER(Request), c_int64)
        self.give = library.function("tune_streams_give", None, c_void_p, POINTER(Request))
        self.run = library.function(
            *("tune_streams_run", c_int, c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p)
        )
        self.cancel = library.function("tune_streams_cancel", None, c_void_p, c_void_p)
        table = (Stream * len(executors))(
            *(
                Stream(each.handle, _pointer(each.library.run), _pointer(each.library.cancel), each.first_cpu)
                for each in executors
            )
        )
        self.handle = c_void_p()
        if opened(table, len(executors), ctypes.byref(self.handle)) != OK:
            raise RunError("the model cannot be opened: no memory for its streams; free some")
        weakref.finalize(self, _close, library, close, self.handle)

    def call(self, inputs: Arrays) -> NativeCall:
        """As ``Streams.call``."""
        return NativeCall(self, self.executors[0].prepared(inputs))

    @contextmanager
    def stream(self, timeout_s: float | None) -> Iterator[int]:
        """As ``Streams.stream``."""
        request = Request()
        if self.take(self.handle, request, _nanoseconds(timeout_s)) != OK:
            raise BusyError.after(timeout_s)
        try:
            yield request.stream
        finally:
            self.give(self.handle, request)


class NativeCall:
    """As ``StreamCall``.

    Args:
        run: what is to be run, for any of the streams.
    """

    __slots__ = ("_run", "_streams")

    def __init__(self, streams: NativeStreams, run: Run) -> None:
        self._streams, self._run = streams, run

    def run(self, timeout_s: float | None) -> list[NDArray[Any]]:
        """As ``StreamCall.run``."""
        streams, run = self._streams, self._run
        timeout_ns = -1 if timeout_s is None else _nanoseconds(timeout_s)
        status = streams.run(streams.handle, run.request, timeout_ns, run.given, run.made, run.report)
        if status != OK:
            if status == BUSY:
                raise BusyError.after(timeout_s)
            streams.executors[0].check(status, run)
        return run.outputs

    def cancel(self) -> None:
        """As ``StreamCall.cancel``."""
        self._streams.cancel(self._streams.handle, self._run.request)


def _nanoseconds(seconds: float | None) -> int:
    return -1 if seconds is None else max(0, int(seconds * 1e9))


def _pointer(function: ctypes._NamedFuncPointer) -> int | None:
    return ctypes.cast(function, c_void_p).value


def _close(_library: object, close: ctypes._NamedFuncPointer, handle: c_void_p) -> None:
    close(handle)
