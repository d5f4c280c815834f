"""Memory for weights and activations in huge pages, where the operating system has them.

A core's first-level TLB holds 64 to 96 pages, so with pages of 4 KiB anything beyond a few hundred KiB misses it. Small
pages also lie anywhere in physical memory, so that some of a cache's sets get too many of them and others too few,
differently in every process. Pages of 2 MiB avoid both. Linux gives them on request (``transparent_hugepage`` =
``madvise``), for whole aligned stretches only.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = 2 << 20
"""Bytes of a huge page on x86-64 and AArch64."""

SMALL = 1 << 18
"""Bytes up to which memory comes from the allocator, so that no huge page is mostly empty. Heuristic, not measured."""

ALIGNMENT = 4096
"""Bytes: the boundary of memory that is mapped from files or shared, a page of the CPU."""

KERNEL_ALIGNMENT = 64
"""Bytes: the boundary that compiled kernels assume of every tensor, a cache line and a vector of AVX-512."""


def paged(size: int) -> NDArray[np.uint8]:
    """(size,) zeros, aligned to 4 KiB at least, in pages of 2 MiB where that is possible."""
    advice: Any = getattr(mmap, "MADV_HUGEPAGE", None)
    if size <= SMALL or advice is None:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size]
    whole = -(-size // PAGE) * PAGE
    mapped = mmap.mmap(-1, whole + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        mapped.madvise(advice)
    raw = np.frombuffer(mapped, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + size]


POPULATE_READ = 22
"""``MADV_POPULATE_READ`` of Linux 5.14, which Python does not name: fault every page in with one call."""


def mapped_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file that is not empty, in memory that processes share: small pages of the system's file cache.

    What is written into them stays in this process.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    with contextlib.suppress(OSError):  # an older kernel: pages come as they are used
        mapped.madvise(POPULATE_READ)
    return np.frombuffer(mapped, np.uint8)


_spellings = itertools.count(1)


def new_spelling(path: Path) -> str:
    """An absolute path of a file, spelled as no call before spelled one.

    The system's loader knows a library by the text of its path, so it takes another text for another library.
    """
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)  # not the last part: a link of /proc/self/fd leads to a file that has no path
    detours = "".join("./" if digit == "1" else "/" for digit in f"{next(_spellings):b}")
    return f"{folder}/{detours}{name}"


ADDRESS_AT = object.__basicsize__
"""Offset of an array's address: in the first field behind an object's own, by NumPy's ABI
(``PyArrayObject_fields`` of ``ndarraytypes.h``)."""


_size_at = ctypes.c_size_t.from_address


def addresses(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Return where the arrays lie.

    As ``array.ctypes.data``, of which it takes an eighth: 0.1 µs an array. A session of a small model runs in less time
    than asking takes, and a decoder of 24 layers has 48 caches.
    """
    return [_size_at(id(array) + ADDRESS_AT).value for array in arrays]


FRESH_BYTES = 32 << 20
"""Size from which glibc's allocator maps fresh memory every time (``DEFAULT_MMAP_THRESHOLD_MAX``), whose every page is
then found and cleared anew: 78 MB of logits took 30 to 90 ms of a prompt of 120."""

MOST_RECYCLED = 4
"""Blocks of memory that are kept. Heuristic: outputs of that size of one run, or of some callers."""


class RecycledMemory:
    """Memory for results, which takes that of earlier results again once nobody holds them, nor any part of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[NDArray[np.uint8], int]] = []  # with the references to it while nobody holds it

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], NDArray[Any]]:
        """Return a function that makes an array of this shape and type, as ``np.empty`` does."""
        size = math.prod(shape) * dtype.itemsize
        if size < FRESH_BYTES:
            return partial(np.empty, shape, dtype)

        def taken() -> NDArray[Any]:
            with self._lock:
                return self._block(size).view(dtype).reshape(shape)

        return taken

    def _block(self, size: int) -> NDArray[np.uint8]:
        for memory, unheld in self._kept:
            if memory.size == size and sys.getrefcount(memory) == unheld:
                return memory
        self._kept = [*self._kept[1 - MOST_RECYCLED :], (np.empty(size, np.uint8), 0)]
        for memory, _ in self._kept:  # NumPy's views refer to the array that owns the memory
            count = sys.getrefcount(memory)
        self._kept[-1] = memory, count
        return memory
