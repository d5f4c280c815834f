"""Compiled libraries of artifacts, opened without TVM: kernels, and the core that runs them (``core.h``)."""

from __future__ import annotations

import ctypes
import struct
import weakref
from _ctypes import dlclose
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_int, c_int32, c_int64, c_void_p
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.host.pages import addresses, new_spelling
from schedules.vocabulary.errors import ArtifactError

HOOKS = 4
"""Addresses that ``tune_core_hooks`` tells."""

OK, CANCELLED, BUSY = 0, 5, 6
"""Results of ``tune_core_run_request`` and ``tune_streams_run``, as in ``core.h``."""

RUNNING = 2
"""State of a request that has a stream, as in ``core.cc``."""


class Program(ctypes.Structure):
    """``tune_program``."""

    _fields_ = (("words", c_void_p), ("kernels", c_void_p), ("weights", c_void_p))


class Settings(ctypes.Structure):
    """``tune_settings``."""

    _fields_ = (("threads", c_int64), ("cpus", c_void_p), ("huge_pages", c_int64))


class Report(ctypes.Structure):
    """``tune_report``."""

    _fields_ = (("group", c_int64), ("text", c_char * 248))

    @property
    def message(self) -> str:
        """The error in words."""
        return bytes(self.text).decode(errors="replace")


class Stream(ctypes.Structure):
    """``tune_stream``."""

    _fields_ = (("core", c_void_p), ("run", c_void_p), ("cancel", c_void_p), ("cpu", c_int64))


class Request(ctypes.Structure):
    """``tune_request``."""

    _fields_ = (
        ("state", c_int32),
        ("stream", c_int32),
        ("cancelled", c_int32),
        ("thread", c_int32),
        ("next", c_void_p),
    )


class Call(ctypes.Structure):
    """``tune_call``, but for its arrays."""

    _fields_ = (
        ("streams", c_void_p),
        ("at", c_int64),
        ("inputs", c_int64),
        ("arrays", c_int64),
        ("report", Report),
        ("timeout_ns", c_int64),
        ("request", Request),
    )


class RunLayout:
    """How the arguments of runs of one program lie in memory: one block per run, for it is made for every request.

    Args:
        inputs, outputs: how many arrays; there may be more inputs, which are not read.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs_at = ctypes.sizeof(Report)
        self.outputs_at = self.inputs_at + inputs * ctypes.sizeof(c_void_p)
        self.block = c_char * (self.outputs_at + outputs * ctypes.sizeof(c_void_p))
        self.fill = struct.Struct(f"{inputs + outputs}P").pack_into
        self.inputs = inputs


class Run:
    """The arguments of one run.

    Attributes:
        inputs, outputs: the arrays.
        report, inputs_at, outputs_at: addresses that ``tune_core_run_request`` takes.
    """

    __slots__ = ("_block", "inputs", "inputs_at", "outputs", "outputs_at", "report")

    def __init__(self, layout: RunLayout, inputs: Sequence[NDArray[Any]], outputs: list[NDArray[Any]]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._block = block = layout.block()
        layout.fill(block, layout.inputs_at, *addresses((*inputs[: layout.inputs], *outputs)))
        self.report = at = ctypes.addressof(block)
        self.inputs_at, self.outputs_at = at + layout.inputs_at, at + layout.outputs_at

    def said(self) -> Report:
        """Return the core's report."""
        return Report.from_buffer(self._block)


class NativeLibrary:
    """The code in ``path`` as it is on disk now; it stays loaded as long as this object lives.

    For a path that it has loaded before, the system's loader returns the code of that time, even if the file was
    replaced since, as it is when a model is tuned again. So every load spells the path in a new way.

    Args:
        place: another path to the file, if ``path`` may lead to a newer one by now.

    Raises:
        ArtifactError: if it cannot be loaded.
    """

    def __init__(self, path: Path, place: Path | None = None) -> None:
        self._path = path
        try:
            self._library = ctypes.CDLL(new_spelling(place or path))
        except OSError as error:
            raise ArtifactError(f"{path} cannot be loaded ({error}); build the artifact again") from error
        # At exit it stays: a daemon thread may still be inside a kernel.
        weakref.finalize(self, dlclose, self._library._handle).atexit = False
        self.open = self.function("tune_core_open", c_int, POINTER(Program), POINTER(Settings), c_void_p, c_void_p)
        self.run = self.function("tune_core_run_request", c_int, *[c_void_p] * 6)
        self.cancel = self.function("tune_core_cancel", None, c_void_p)
        self.close = self.function("tune_core_close", None, c_void_p)
        self.fail = self.function("tune_core_raise", None, ctypes.c_char_p)

    @cached_property
    def run_sizes(self) -> ctypes._NamedFuncPointer | None:
        """``tune_core_run_sizes``; None of an artifact of an older version, which lacks it."""
        return self._optional("tune_core_run_sizes", *[c_void_p] * 7)

    @cached_property
    def growth_steps(self) -> int:
        """Steps in which rows of a result may follow an open size; 0 of an artifact of an older version."""
        function = self._optional("tune_core_growth_steps")
        return 0 if function is None else int(function())

    @cached_property
    def run_live(self) -> ctypes._NamedFuncPointer:
        """``tune_core_run_live``, for one open size: artifacts of 0.4.0 and older have it, not ``run_sizes``."""
        return self.function("tune_core_run_live", c_int, *[c_void_p] * 6, c_int64)

    @cached_property
    def run_rows(self) -> ctypes._NamedFuncPointer | None:
        """``tune_core_run_rows``; None of an artifact of an older version, which lacks it."""
        return self._optional("tune_core_run_rows", *[c_void_p] * 5, c_int64)

    def _optional(self, name: str, *arguments: object) -> ctypes._NamedFuncPointer | None:
        try:
            return self.function(name, c_int, *arguments)
        except ArtifactError:
            return None

    def function(self, name: str, result: type[c_int] | None, *arguments: object) -> ctypes._NamedFuncPointer:
        """A function of the core's.

        Raises:
            ArtifactError: if there is none of this name: the artifact was built by another version.
        """
        self._address(name)
        function = self._library[name]
        function.restype, function.argtypes = result, arguments  # type: ignore[assignment]
        return function

    def kernel(self, symbol: str) -> int:
        """Address of a kernel.

        Raises:
            ArtifactError: if there is none of this name.
        """
        return self._address(f"__tvm_ffi_{symbol}")

    def adopt(self, other: NativeLibrary) -> None:
        """Let the kernels of this library run their parallel loops on the core of ``other``."""
        hooks = (c_void_p * HOOKS)()
        other.function("tune_core_hooks", None, c_void_p)(hooks)
        self.function("tune_core_adopt", None, c_void_p)(hooks)

    def _address(self, name: str) -> int:
        try:
            return ctypes.cast(self._library[name], c_void_p).value or 0
        except AttributeError as error:
            raise ArtifactError(f"{self._path} has no {name}; build the artifact again") from error
