"""Memory that a timed kernel reads: weights out of an arena, and activations that a producer has just written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.script import from_source

from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.measure.output_check import (
    Array,
    aligned,
    fill_normal,
)
from schedules.lower import tvm_target
from schedules.target import Target

WORD = 4
"""Bytes of one."""

ROW = 16
"""Words of 4 bytes that one step of the producer writes: one vector of AVX-512."""

PRODUCER = f"""
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(x: T.handle, rows: T.int64, vectors: T.int64):
    n = T.int64()
    X = T.match_buffer(x, (n, {ROW}), "int32")
    for r in T.parallel(rows):
        for p, v in T.grid(n // (rows * vectors), vectors):
            for i in T.vectorized({ROW}):
                with T.sblock("negate"):
                    vn = T.axis.spatial(n, (p * rows + r) * vectors + v)
                    vi = T.axis.spatial({ROW}, i)
                    X[vn, vi] = T.bitwise_xor(X[vn, vi], T.int32(-2147483648))
"""

Kernel = Callable[..., Any]


def compile_producer(target: Target) -> Kernel:
    """The kernel that flips the uppermost bit of 4-byte words in place, each thread those of its share of the rows.

    It takes an (n, ROW) array, and of its planes the rows and the vectors of ROW words in each (``planes_of``). So
    floats are negated; of bfloat16 and bytes it is every second and every fourth number.
    """
    kernel: Kernel = tvm.compile(from_source(PRODUCER), target=tvm_target(target))["main"]
    return kernel


IMAGE_AXES = 5
"""Number of axes of a blocked image, (n, C/b, h, w, b)."""


def planes_of(shape: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Rows of a plane, and vectors of ROW words in a row, of an array that the producer writes.

    In a model, a layer's threads read mostly what they wrote in the layer before, where both split the image's rows. So
    the planes of a blocked image are its own; other arrays are one plane, of one vector a row.
    """
    vectors, rest = divmod(math.prod(shape[3:]) * itemsize, WORD * ROW)
    if len(shape) == IMAGE_AXES and not rest:
        return shape[2], vectors
    return math.prod(shape) * itemsize // (WORD * ROW), 1


SHORT = tuple(map(np.dtype, ("uint16", "int8", "uint8")))
"""Types of numbers that are no floats here: bfloat16 as its bits, and bytes. Other integers may say where to read."""


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether any value of ``dtype`` will do where time is measured."""
    return dtype.kind == "f" or dtype in SHORT


def ordinary(block: Array, dtype: np.dtype[Any]) -> Array:
    """The normal numbers of ``block`` as ``dtype`` has them; bytes are four standard deviations wide."""
    if dtype.kind == "f":
        return block
    return (
        (block.view(np.uint32) >> 16).astype(dtype) if dtype.itemsize == 2 else (block * 32).astype(np.int8).view(dtype)
    )


class Arena:
    """Memory that weights are cut from, another stretch for every run.

    Args:
        block: normal numbers to fill it with; values do not matter for timing as long as they are ordinary.

    Attributes:
        least_bytes: how far apart two uses of the same stretch must be.
    """

    def __init__(self, block: Array) -> None:
        self.least_bytes = 0
        self._block = block
        self._memory: dict[np.dtype[Any], Array] = {}
        self._next = 0

    def views(self, like: Sequence[Array]) -> list[Array]:
        """An array of the size and type of each from the next stretch; types share the memory as they share bytes."""
        views: dict[int, Array] = {}
        for dtype in {array.dtype for array in like}:
            step = KERNEL_ALIGNMENT // dtype.itemsize
            sizes = {i: -(-array.size // step) * step for i, array in enumerate(like) if array.dtype == dtype}
            total = sum(sizes.values())
            share = sum(like[i].nbytes for i in sizes) / sum(array.nbytes for array in like)
            memory = self._grown(dtype, max(total, int(self.least_bytes * share) // dtype.itemsize))
            start = self._next % (memory.size // total) * total
            for i, size in sizes.items():
                views[i] = memory[start : start + like[i].size].reshape(like[i].shape)
                start += size
        self._next += 1
        return [views[i] for i in range(len(like))]

    def _grown(self, dtype: np.dtype[Any], count: int) -> Array:
        memory = self._memory.get(dtype)
        if memory is None or memory.size < count:
            memory = aligned((count,), dtype)
            if is_number(dtype):
                fill_normal(memory, ordinary(self._block, dtype), 0)
            else:
                memory[...] = 0
            self._memory[dtype] = memory
        return memory
