"""Python's side of the streams in ``core.cc``: executors of one program, each on cores of its own."""

from __future__ import annotations

import ctypes
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char, c_int, c_int64, c_void_p
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.backends.cpu.native_library import BUSY, OK, RUNNING, Call, NativeLibrary, Report, Request, Stream
from autotune.backends.executor import Arrays
from autotune.host.pages import ADDRESS_AT
from schedules.vocabulary.errors import BusyError, RunError

HEAD = Call.timeout_ns.offset
"""Bytes of a call that are the same for all calls of one program, and what the core reports."""

TIMEOUT = struct.Struct("q")


class Runnable(Protocol):
    """The part of a ``NativeExecutor`` that its streams need.

    Attributes:
        library: that holds its core.
        handle: the core.
        first_cpu: of the caller's thread; negative for any.
        reads: how many inputs it reads; there may be more.
        makers: of every output, what makes an array for it.
    """

    library: NativeLibrary
    handle: c_void_p
    first_cpu: int
    reads: int
    makers: list[Callable[[], NDArray[Any]]]

    def raise_failure(self, status: int, report: Report) -> None:
        """Raise what a run that did not end well reported.

        Raises:
            RunError: always.
        """
        ...


class NativeStreams:
    """An implementation of ``Streams``.

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
        self.begin = library.function("tune_streams_call", c_int, c_void_p)
        self.cancel = library.function("tune_streams_cancel", None, c_void_p, c_void_p)
        self.cancel_all = library.function("tune_streams_cancel_runs", None, c_void_p)
        table = (Stream * len(executors))(
            *(
                Stream(
                    executor.handle,
                    _pointer(executor.library.run),
                    _pointer(executor.library.cancel),
                    executor.first_cpu,
                )
                for executor in executors
            )
        )
        self.handle = c_void_p()
        if opened(table, len(executors), ctypes.byref(self.handle)) != OK:
            raise RunError("the model cannot be opened: no memory for its streams; free some")
        weakref.finalize(self, _close, library, close, self.handle).atexit = False
        self.reads, self.makers = executors[0].reads, executors[0].makers
        arrays = self.reads + len(self.makers)
        self.block = c_char * (ctypes.sizeof(Call) + arrays * ctypes.sizeof(c_void_p))
        self.head = Call(self.handle, ADDRESS_AT, self.reads, arrays)
        self.fill = struct.Struct(f"{arrays}P").pack_into
        self.fill_anew = struct.Struct(f"q4iP{arrays}P").pack_into
        self._unused: list[NativeCall] = []

    def call(self, inputs: Arrays) -> NativeCall:
        """Implement ``Streams.call``."""
        call = NativeCall(self)
        call.inputs = inputs
        return call

    def run(self, inputs: Arrays, timeout_s: float | None) -> list[NDArray[Any]]:
        """Implement ``Streams.run``. Calls are used again: creating one takes longer than a small model runs."""
        try:
            call = self._unused.pop()
        except IndexError:
            call = NativeCall(self)
        call.inputs = inputs
        outputs = call.run_anew(timeout_s)
        call.inputs = ()
        self._unused.append(call)
        return outputs

    def cancel_runs(self) -> None:
        """Implement ``Streams.cancel_runs``."""
        self.cancel_all(self.handle)

    def stream(self, timeout_s: float | None) -> HeldStream:
        """Implement ``Streams.stream``."""
        return HeldStream(self, timeout_s)


class HeldStream:
    """A stream that is the caller's for the body of a ``with`` alone.

    The body's end may be repeated: Ctrl-C may have ended it, or the begin after there was a stream.
    """

    def __init__(self, streams: NativeStreams, timeout_s: float | None) -> None:
        self._streams, self._timeout_s, self._request = streams, timeout_s, Request()

    def __enter__(self) -> int:
        if self._streams.take(self._streams.handle, self._request, _nanoseconds(self._timeout_s)) != OK:
            raise BusyError.after(self._timeout_s)
        return int(self._request.stream)

    def __exit__(self, *_: object) -> None:
        if self._request.state == RUNNING:
            self._streams.give(self._streams.handle, self._request)


class NativeCall:
    """An implementation of ``StreamCall``.

    Attributes:
        inputs: as ``Executor.run`` takes them.
    """

    __slots__ = ("_address", "_block", "_streams", "inputs")

    def __init__(self, streams: NativeStreams) -> None:
        self._streams = streams
        self._block = streams.block()
        self._address = ctypes.addressof(self._block)
        ctypes.memmove(self._address, ctypes.byref(streams.head), HEAD)
        self.inputs: Arrays = ()

    def run(self, timeout_s: float | None) -> list[NDArray[Any]]:
        """Implement ``StreamCall.run``."""
        TIMEOUT.pack_into(self._block, HEAD, _nanoseconds(timeout_s))  # the request may have been cancelled
        return self._run(self._streams.fill, ctypes.sizeof(Call), (), timeout_s)

    def run_anew(self, timeout_s: float | None) -> list[NDArray[Any]]:
        """Work like ``run``, of a call that nobody can have cancelled; it may have run before."""
        head = (_nanoseconds(timeout_s), 0, 0, 0, 0, 0)
        return self._run(self._streams.fill_anew, HEAD, head, timeout_s)

    def _run(
        self, fill: Callable[..., None], place: int, head: tuple[int, ...], timeout_s: float | None
    ) -> list[NDArray[Any]]:
        streams, inputs = self._streams, self.inputs
        outputs = [make() for make in streams.makers]
        if len(inputs) > streams.reads:
            inputs = inputs[: streams.reads]
        fill(self._block, place, *head, *map(id, inputs), *map(id, outputs))
        status = streams.begin(self._address)
        if status != OK:
            if status == BUSY:
                raise BusyError.after(timeout_s)
            streams.executors[0].raise_failure(status, Call.from_buffer(self._block).report)
        return outputs

    def cancel(self) -> None:
        """Implement ``StreamCall.cancel``."""
        self._streams.cancel(self._streams.handle, self._address + Call.request.offset)


def _nanoseconds(seconds: float | None) -> int:
    """Return the limit as the core takes it: -1 for none, or for one of centuries."""
    return -1 if seconds is None or seconds > threading.TIMEOUT_MAX else max(0, int(seconds * 1e9))


def _pointer(function: ctypes._NamedFuncPointer) -> int | None:
    return ctypes.cast(function, c_void_p).value


def _close(_library: object, close: ctypes._NamedFuncPointer, handle: c_void_p) -> None:
    close(handle)
