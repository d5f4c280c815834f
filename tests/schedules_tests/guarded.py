"""Arrays beside pages that nobody may touch: a kernel that reads or writes outside of its tensors ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from schedules.templates.cpu.passes import ALIGNMENT

Array = NDArray[Any]

_LIBC = ctypes.CDLL(None, use_errno=True)


def fenced(count: int, at_end: bool, alignment: int = ALIGNMENT) -> tuple[Array, Array]:
    """``count`` bytes beside a page that nobody may touch, and all bytes between that page and another one.

    Args:
        at_end: whether that page follows, as closely as ``alignment`` allows, or goes before.
    """
    page = mmap.PAGESIZE
    within = -(-max(count, 1) // page) * page
    memory = mmap.mmap(-1, within + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (start, start + page + within):
        if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    whole = np.frombuffer(memory, np.uint8, within, page)
    first = (within - count) // alignment * alignment if at_end else 0
    return whole[first : first + count], whole


class GuardedTensor:
    """A copy of an array that ends where its memory ends, or begins where it begins.

    Args:
        at_end: see ``fenced``.

    Attributes:
        tensor: TVM's view of it.
    """

    def __init__(self, array: Array, at_end: bool) -> None:
        self._bytes, _ = fenced(array.nbytes, at_end)
        self._bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        view = tvm_ffi.from_dlpack(self._bytes, require_alignment=ALIGNMENT)
        self.tensor = view._create_view(array.shape, str(array.dtype))  # no public name; DLPack has no bfloat16

    def read(self) -> Array:
        """A copy of what it holds."""
        return self.tensor.numpy()
