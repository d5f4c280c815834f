"""Running the kernels of an artifact one call at a time, whole or some of their jobs, on memory of the caller's choice.

Kernels run their parallel loops through functions that the library holds pointers to (``core.h``). While one is stepped
these lead here, so it must not run elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p

from autotune.backends.cpu.native_library import HOOKS, NativeLibrary
from autotune.backends.cpu.program_words import BFLOAT, CODES
from autotune.graph.steps import Step
from autotune.host.dtypes import numpy_type
from autotune.host.pages import paged
from schedules.vocabulary.errors import RunError

EACH = 1 << 20
"""Threads that a loop is told it has, so that each of them gets one job: no kernel has so many."""

TENSOR = 7
"""TVM's type code of an argument that is a bare ``DLTensor``."""

ON_CPU = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    )


class _Any(ctypes.Structure):
    _fields_ = (("type_index", c_int32), ("padding", c_int32), ("pointer", c_void_p))


class _Env(ctypes.Structure):
    _fields_ = (("sync", c_void_p), ("num_task", c_int32))


_KERNEL = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int32, c_void_p)
_LOOP = CFUNCTYPE(c_int, c_int, c_void_p, c_void_p)
_LAUNCH = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_BARRIER = CFUNCTYPE(c_int, c_int, c_void_p)
_ALLOCATE = CFUNCTYPE(c_void_p, c_int, c_int, c_uint64, c_int, c_int)
_FREE = CFUNCTYPE(c_int, c_int, c_int, c_void_p)


class SteppedCalls:
    """The kernels of one library. Use within ``attached``.

    Attributes:
        loops: parallel loops that the last call had.
        barriers: barriers that its threads met.
    """

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._jobs: Sequence[int] | None = None
        self._loop = 0
        self._spaces: dict[int, object] = {}
        self.loops = self.barriers = 0
        self._hooks = (_LAUNCH(self._launch), _BARRIER(self._barrier), _ALLOCATE(self._allocate), _FREE(self._free))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Lead the library's loops here for the body."""
        adopt = self._library.function("tune_core_adopt", None, c_void_p)
        before, own = (c_void_p * HOOKS)(), (c_void_p * HOOKS)()
        self._library.function("tune_core_hooks", None, c_void_p)(before)
        for number, hook in enumerate(self._hooks):
            own[number] = ctypes.cast(hook, c_void_p).value
        adopt(own)
        try:
            yield
        finally:
            adopt(before)

    def run(self, step: Step, places: Sequence[int], jobs: Sequence[int] | None = None, loop: int = 0) -> None:
        """Make one call.

        Args:
            places: address of every operand.
            jobs: of one of its parallel loops, in order; None for all of them.
            loop: number of that loop.

        Raises:
            RunError: if the kernel fails.
        """
        kept, arguments = [], (_Any * len(places))()
        for number, (operand, place) in enumerate(zip(step.operands, places, strict=True)):
            rank, dtype = len(operand.shape), numpy_type(operand.dtype)
            shape, strides = (c_int64 * max(rank, 1))(*operand.shape), (c_int64 * max(rank, 1))()
            stride = 1
            for axis in reversed(range(rank)):
                strides[axis] = stride
                stride *= operand.shape[axis]
            code = CODES.get(dtype.kind, BFLOAT)
            where = (ctypes.addressof(shape), ctypes.addressof(strides))
            tensor = _Tensor(place, ON_CPU, 0, rank, code, 8 * dtype.itemsize, 1, *where, 0)
            kept += [shape, strides, tensor]
            arguments[number] = _Any(TENSOR, 0, ctypes.addressof(tensor))
        self._jobs, self._loop, self.loops, self.barriers = jobs, loop, 0, 0
        result = _Any()
        kernel = _KERNEL(self._library.kernel(step.symbol))
        if kernel(None, ctypes.addressof(arguments), len(places), ctypes.addressof(result)) != 0:
            raise RunError(f"kernel {step.symbol} failed; build the artifact again, and report the model if it stays")

    def _launch(self, loop: int, data: int, _threads: int) -> int:
        self.loops += 1
        call: Callable[[int, int, int], int] = _LOOP(loop)
        if self._jobs is None or self.loops != self._loop + 1:
            alone = _Env(None, 1)
            return call(0, ctypes.addressof(alone), data)
        env, failed = _Env(None, EACH), 0
        for job in self._jobs:
            failed |= call(job, ctypes.addressof(env), data)
        return failed

    def _barrier(self, _number: int, _env: int) -> int:
        self.barriers += 1
        return 0

    def _allocate(self, _kind: int, _device: int, size: int, _code: int, _bits: int) -> int:
        space = paged(max(1, size))
        self._spaces[space.ctypes.data] = space
        return space.ctypes.data

    def _free(self, _kind: int, _device: int, place: int) -> int:
        return 0 if self._spaces.pop(place, None) is not None else -1
