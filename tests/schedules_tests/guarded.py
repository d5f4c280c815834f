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


class GuardedTensor:
    """A copy of an array that ends where its memory ends, or begins where it begins.

    Args:
        at_end: whether the last byte is followed by a page that nobody may touch, as closely as alignment allows;
            else the first one has such a page in front.

    Attributes:
        tensor: TVM's view of it.
    """

    def __init__(self, array: Array, at_end: bool) -> None:
        page = mmap.PAGESIZE
        within = -(-max(array.nbytes, 1) // page) * page
        self._memory = mmap.mmap(-1, within + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for guard in (start, start + page + within):
            if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = page + ((within - array.nbytes) // ALIGNMENT * ALIGNMENT if at_end else 0)
        self._bytes = np.frombuffer(self._memory, np.uint8, array.nbytes, offset)
        self._bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        view = tvm_ffi.from_dlpack(self._bytes, require_alignment=ALIGNMENT)
        self.tensor = view._create_view(array.shape, str(array.dtype))  # no public name; DLPack has no bfloat16

    def read(self) -> Array:
        """A copy of what it holds."""
        return self.tensor.numpy()
