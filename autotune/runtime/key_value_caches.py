"""Buffers of keys and values that a decoder's kernels read and append to, from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.pages import KERNEL_ALIGNMENT, paged
from autotune.interface import TensorSpec
from schedules.vocabulary.errors import UsageError

Array = NDArray[Any]


class KeyValueCaches:
    """One buffer per cache, and how many positions of them are in use. For one sequence, or one batch of them.

    Args:
        specs: name, shape (batch, groups, capacity, size) and type of every buffer.
        buffers: buffers of the caller's by name; the others are made here, of zeros.

    Attributes:
        lengths: (batch,) int32, positions in use.
        bytes_copied: bytes of keys and values that were copied between buffers, all in all.

    Raises:
        UsageError: for a buffer that kernels cannot write into.
    """

    def __init__(self, specs: Sequence[TensorSpec], buffers: Mapping[str, Array] | None = None) -> None:
        own = buffers or {}
        self.buffers = [_checked(spec, own[spec.name]) if spec.name in own else _zeros(spec) for spec in specs]
        self.lengths = np.zeros(specs[0].shape[0], np.int32)
        self.bytes_copied = 0
        self._specs = specs

    @property
    def capacity(self) -> int:
        """Positions that fit."""
        return self._specs[0].shape[2]

    @property
    def length(self) -> int:
        """Positions in use, of the longest row."""
        return int(max(self.lengths.tolist()))  # of so few numbers in a quarter of the time that NumPy's takes

    @property
    def nbytes(self) -> int:
        """Size of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def row(self, row: int) -> KeyValueCaches:
        """The caches of one sequence, in the same memory."""
        own = object.__new__(KeyValueCaches)
        own.buffers = [buffer[row : row + 1] for buffer in self.buffers]
        own.lengths, own.bytes_copied = self.lengths[row : row + 1], 0
        own._specs = [TensorSpec(s.name, (1, *s.shape[1:]), s.dtype) for s in self._specs]
        return own

    def rewind(self, length: int = 0) -> None:
        """Forget what is behind position ``length``: the next call goes on from there.

        Raises:
            UsageError: if fewer positions are in use.
        """
        if not 0 <= length <= self.length:
            raise UsageError(f"cannot rewind to position {length}: {self.length} are in use")
        np.minimum(self.lengths, np.int32(length), out=self.lengths)

    def fill(self, pasts: Sequence[Array]) -> None:
        """Copy ``pasts`` (batch, groups, positions, size) into the buffers."""
        for buffer, past in zip(self.buffers, pasts, strict=True):
            buffer[:, :, : past.shape[2]] = past
            self.bytes_copied += past.nbytes

    def presents(self, length: int) -> list[Array]:
        """Copies of the first ``length`` positions."""
        copies = [np.ascontiguousarray(buffer[:, :, :length]) for buffer in self.buffers]
        copies = [
            array.copy() if array is buffer else array for array, buffer in zip(copies, self.buffers, strict=True)
        ]
        self.bytes_copied += sum(array.nbytes for array in copies)
        return copies


def _zeros(spec: TensorSpec) -> Array:
    size = int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize
    return paged(size).view(spec.dtype).reshape(spec.shape)


def _checked(spec: TensorSpec, buffer: Array) -> Array:
    wanted = f"{'x'.join(map(str, spec.shape))} {spec.dtype}"
    if buffer.shape != spec.shape or str(buffer.dtype) != spec.dtype:
        actual = f"{'x'.join(map(str, buffer.shape))} {buffer.dtype}"
        raise UsageError(
            f"the buffer for cache {spec.name!r} is {actual}; it must be {wanted}, or leave it to the session"
        )
    if not buffer.flags.c_contiguous or not buffer.flags.writeable or buffer.ctypes.data % KERNEL_ALIGNMENT:
        raise UsageError(
            f"the buffer for cache {spec.name!r} must be writeable, dense and aligned to {KERNEL_ALIGNMENT} bytes; "
            "binding.empty_cache(NAME) makes one"
        )
    return buffer
