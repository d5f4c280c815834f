"""Inputs to run a candidate on, and whether what came out is right.

Inputs are seeded, so that every process makes the same ones. The reference is the untuned build of the same program.

Tolerance. Two right kernels differ only in the order of their sums. For K terms of like size and random sign the
difference has a standard deviation of about 3e-8·√K of the output's own spread (its root mean square s), near 1e-5·s
at the worst element of a large layer; Winograd is some ten times worse. A kernel that drops one of K terms is wrong by
s/√K, 6e-3·s for the largest dense layer in use. Between the two:

    |got − want| ≤ RTOL·|want| + ATOL·s          RTOL = 1e-3, ATOL = 2e-4

Shorter floats are given four of their own roundings where that is more. A NaN satisfies no inequality, so it counts as
wrong unless the reference has one in the same place.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.pages import KERNEL_ALIGNMENT
from schedules.task import Task

Array = NDArray[Any]

RTOL = 1e-3
ATOL = 2e-4
"""The tolerance; derived above."""

PERIOD = 1_000_003
"""Length of the block of normal numbers that inputs are cut from: prime, so that a shifted index does not line up."""

OUTLIERS = 61
OUTLIER = 6
"""Every ``OUTLIERS``-th activation is ``OUTLIER`` times as large: mistakes in code that saturates or guards against
large numbers, such as the ends of a tanh, show nowhere else. Heuristic, not measured."""

ORDINARY = 8.0
"""An output beyond this many times the 90th percentile of magnitudes counts as that much in their spread: otherwise
what an exponential makes of an outlier would widen the tolerance of all outputs. Heuristic, not measured."""

FEW = 4096
DRAWS = 8
"""Tasks that read and write fewer numbers are checked on several draws of activations: a scalar is above zero or below
it, and the least of 64 numbers stands in one half of them. Heuristic, not measured."""

SMALL_INTEGERS = 4
"""Integers that may be indices are drawn below this, or below the smallest axis longer than one."""

FENCE_BYTES = 4096
FENCE = 0x7F
"""Bytes on each side of every array that a kernel is checked on, and their value. A loop that runs once too often
writes a tile, at most some 2 KiB, next to its output. Heuristic, not measured.

A float of these bytes is 3.4e38 (fp64: 1.4e306, fp16: NaN), so that a result into which a read next to an array goes is
wrong. A number that a kernel reads there and multiplies by 0 does no harm. Two faults are not seen: a saturated int8 is
the same byte, so a kernel may write saturated values next to its output, and 127 is an ordinary byte to read."""

BYTES = (np.uint8, np.int8)
LEVELS = {"uint8": 48.0, "int8": 32.0}
"""Spread of quantised activations and weights. Heuristic, not measured: those of real models leave out most of a byte,
and of products of larger ones a program that is compiled for its scale would clip nearly all."""
WIDER = 2.0
"""Every second draw of quantised activations has a spread this many times as large: there sums reach the ends of what a
program may add up in, and a mistake is more levels of the byte that its result is rounded to. Evidence:
docs/lab: correctness, "Wrong kernels of quantised models"."""
BYTE_DRAWS = 2
"""Draws of activations of large tasks that read bytes; one of each spread."""
TOGETHER = 4
"""Neighbours that are at an end of their type together: numbers of one dot product, whose sum must not saturate."""
MIDDLE = 64.0
"""Spread of what a quantised product is scaled to, in levels of a byte: most are not clipped."""
ROUNDED_APART = 0.01
"""Share of bytes that may be one level off: two programs that add up floats in another order round some apart."""
TABLE = 256
"""Bytes of a table of a byte's function: every level its own, so that one level off is one level off behind it."""
ROUNDED_INSIDE = 0.001
BYTES_APART = 4
LEVELS_APART = BYTES_APART / MIDDLE
"""Share of results of products of bytes that may be further off, at least one, and how far, in levels of a byte and in
spreads of a float output: a sum that is quantised within a kernel, and read again, may be a level off. Of a residual
network's last block 3 of 100,352 results were, of an encoder's 1 of 98,304, and in two blocks of a quantised ResNet-18
1 of 200,704 and 1 of 50,176 bytes by two levels; a level is about 1 / ``MIDDLE`` of the spread of what is quantised."""


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array at the boundary that compiled kernels assume, with ``FENCE_BYTES`` on each side."""
    count = math.prod(shape) * dtype.itemsize
    raw = np.empty(count + KERNEL_ALIGNMENT + 2 * FENCE_BYTES, np.uint8)
    start = FENCE_BYTES + -(raw.ctypes.data + FENCE_BYTES) % KERNEL_ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)


def fence(array: Array) -> None:
    """Fill what surrounds an ``aligned`` array, for ``is_fenced``."""
    for side in _sides(array):
        side[...] = FENCE


def is_fenced(array: Array) -> bool:
    """Return whether nothing was written next to an array since ``fence``."""
    return all(bool((side == FENCE).all()) for side in _sides(array))


def with_fences(array: Array) -> Array:
    """The bytes of an ``aligned`` array and of its fences, ``FENCE_BYTES`` before it and behind it; no copy."""
    before, after = _sides(array)
    raw = array.base
    assert isinstance(raw, np.ndarray)
    start = len(before) - FENCE_BYTES if array.size else 0
    return raw[start : start + array.nbytes + 2 * FENCE_BYTES]


def _sides(array: Array) -> tuple[Array, Array]:
    raw = array.base
    assert isinstance(raw, np.ndarray)
    start = array.ctypes.data - raw.ctypes.data if array.size else len(raw)  # NumPy gives empty arrays no address
    return raw[:start], raw[start + array.nbytes :]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a TVM dtype name; bfloat16 travels as its bits."""
    return np.dtype({"bool": "bool", "bfloat16": "uint16"}.get(name, name))


def normal_block(seed: int) -> NDArray[np.float32]:
    """(PERIOD,) standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(PERIOD, dtype=np.float32)


def fill_normal(out: Array, block: NDArray[np.float32], offset: int) -> None:
    """Write ``block``, repeated and shifted by ``offset``, into ``out``."""
    flat = out.reshape(-1)
    done = 0
    start = offset % len(block)
    while done < flat.size:
        take = min(len(block) - start, flat.size - done)
        flat[done : done + take] = block[start : start + take]
        done, start = done + take, 0


def task_seed(task: Task, seed: int) -> int:
    """A seed that differs between tasks and is the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{task.key}/{seed}".encode()).digest()[:4], "little")


def draws(task: Task) -> int:
    """Return how many draws of activations a task's kernels are checked on."""
    if sum(map(math.prod, task.shapes)) < FEW:
        return DRAWS
    reads_bytes = any(
        numpy_dtype(name) in BYTES for index, name in enumerate(task.dtypes[:-1]) if index not in task.constants
    )
    return BYTE_DRAWS if reads_bytes else 1


def make_inputs(
    task: Task, block: NDArray[np.float32], seed: int, positive: bool = False, draw: int = 0
) -> list[Array]:
    """Random values for every parameter but the output; those of constants are the same in every ``draw``.

    Floats are standard normal, some activations larger (``OUTLIERS``); the largest weight is divided by √K
    (K = multiply-adds per output) so that what follows a sum, a sigmoid say, is met in its working range and not
    saturated. Integers are small enough to index any axis. ``positive`` gives the absolute values plus 0.1, for
    programs that take roots or logarithms.

    Bytes use all levels, the ends among them, and activations spread wider in odd draws. Of a product of bytes int32
    constants are as large as its sums, and float constants, and the scale that dynamic quantisation makes, scale these
    to levels of a byte. Numbers that kernels share a parameter for are those of one of them.
    """
    fixed, free = (np.random.default_rng([task_seed(task, seed), part]) for part in (0, 1 + draw))
    weight = max(task.constants, key=lambda i: math.prod(task.shapes[i]), default=-1)
    depth = max(1.0, task.flop / (2.0 * max(1, math.prod(task.shapes[-1]))))
    bound = min((extent for shape in task.shapes for extent in shape if extent > 1), default=1)
    quantised = is_quantised(task)
    sums = math.sqrt(depth) * math.prod(LEVELS.values())
    arrays: list[Array] = []
    for index, (shape, name) in enumerate(zip(task.shapes[:-1], task.dtypes[:-1], strict=True)):
        dtype = numpy_dtype(name)
        array = aligned(shape, dtype)
        rng = fixed if index in task.constants else free
        offset = int(rng.integers(PERIOD))
        if task.numbers and index == len(task.shapes) - 2:
            array[...] = task.numbers
        elif name == "bfloat16":
            values = aligned(shape, np.dtype("float32"))
            fill_normal(values, block, offset)
            array[...] = values.view(np.uint32) >> 16
        elif dtype.kind == "f":
            fill_normal(array, block, offset)
            if index not in task.constants:
                array.reshape(-1)[::OUTLIERS] *= OUTLIER
            if positive:
                np.abs(array, out=array)
                array += 0.1
            if index == weight:
                array *= 1 / math.sqrt(depth)
            elif quantised and (index in task.constants or not shape):
                array *= MIDDLE / sums
        elif index in task.constants and dtype.itemsize == 1 and shape == (TABLE,):
            array[...] = np.arange(TABLE, dtype=np.uint8).view(dtype)
        elif (dtype in BYTES and index not in task.constants) or (quantised and index in task.constants):
            values = aligned(shape, np.dtype("float32"))
            fill_normal(values, block, offset)
            spread = LEVELS.get(name, sums)
            array[...] = _levels(values, dtype, spread if index in task.constants or draw % 2 == 0 else WIDER * spread)
        elif index in task.constants and dtype.itemsize == 1 and dtype.kind in "iu":  # weights of few bits, packed
            array[...] = rng.integers(0, 256, size=shape, dtype=np.uint8).view(dtype)
        elif dtype.kind == "b":
            array[...] = rng.random(shape) < 0.5
        else:
            high = min(bound, SMALL_INTEGERS) if dtype.itemsize >= 4 else SMALL_INTEGERS
            array[...] = rng.integers(0, high, size=shape)
        arrays.append(array)
    return arrays


def is_quantised(task: Task) -> bool:
    """Return whether a task multiplies bytes by bytes."""
    return {"uint8", "int8"} <= set(task.dtypes[:-1])


def _levels(values: NDArray[np.float32], dtype: np.dtype[Any], spread: float) -> Array:
    """Integers of ``dtype`` and this spread; some bytes are the largest and the least there are."""
    limits = np.iinfo(dtype)
    numbers = np.clip(np.round((np.abs(values) if limits.min == 0 else values) * spread), limits.min, limits.max)
    if dtype.itemsize == 1:
        flat = numbers.reshape(-1)
        for place in range(TOGETHER):
            flat[place :: TOGETHER * OUTLIERS] = limits.max
            flat[place + TOGETHER * (OUTLIERS // 2) :: TOGETHER * OUTLIERS] = limits.min
    return numbers.astype(dtype)


def poison(array: Array) -> None:
    """Fill an output with values that no right kernel leaves behind; 0x7FC0 is a NaN among bfloat16's bits."""
    fills: dict[str, object] = {"f": np.nan, "b": True, "u": 0x7FC0 if array.dtype.itemsize > 1 else 113}
    array[...] = fills.get(array.dtype.kind, 113)


def _spread(flat: Array) -> float:
    """Root mean square of finite numbers, those far beyond the ordinary cut down to it."""
    magnitude = np.abs(flat).astype(np.float64)
    met = magnitude[magnitude > 0]
    if not met.size:
        return 0.0
    most = ORDINARY * float(np.quantile(met, 0.9))
    return math.sqrt(float(np.mean(np.square(np.minimum(magnitude, most)))))


class Expected:
    """The right output of one task and how far a candidate's may be from it.

    Args:
        want: the untuned build's output.
        dtype: TVM's name of its type.
        quantised: whether it is made of products of bytes.
    """

    def __init__(self, want: Array, dtype: str = "float32", quantised: bool = False) -> None:
        self._short = dtype == "bfloat16"
        self.want = self._numbers(want)
        flat = self.want.reshape(-1)
        self._floating = flat.dtype.kind == "f"
        self._quantised = quantised
        if self._floating:
            finite = np.isfinite(flat)
            self._all_finite = bool(finite.all())
            scale = _spread(flat[finite])
            # Where the reference is not finite no distance will do: only the same value is right.
            rounding = 4 * (2.0**-8 if self._short else float(np.finfo(flat.dtype).eps))
            bound = max(RTOL, rounding) * np.abs(flat) + max(ATOL, rounding) * scale
            self._bound = np.where(finite, bound, -1.0).astype(flat.dtype)
            self._level = LEVELS_APART * scale if quantised else 0.0

    @classmethod
    def of(cls, task: Task, want: Array) -> Expected:
        """Return the expectation ``want`` of a task's kernels."""
        return cls(want, task.dtypes[-1], is_quantised(task))

    def _numbers(self, array: Array) -> Array:
        """bfloat16 travels as its bits; everything else as it is."""
        return (array.astype(np.uint32) << 16).view(np.float32) if self._short else array

    def mismatch(self, got: Array) -> str:
        """Return the first error of ``got`` in words; empty if there is none."""
        want, flat = self.want.reshape(-1), self._numbers(got).reshape(-1)
        if not self._floating:
            bad = flat != want
            if flat.dtype in (np.uint8, np.int8) and np.count_nonzero(bad) <= ROUNDED_APART * bad.size:
                apart = np.abs(flat.astype(np.int16) - want)
                bad = apart > 1
                if self._quantised and np.count_nonzero(bad) <= max(1.0, ROUNDED_INSIDE * bad.size):
                    bad = apart > BYTES_APART
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.subtract(flat, want)
                np.abs(difference, out=difference)
                bad = ~(difference <= self._bound)
            if not self._all_finite:
                bad &= ~((flat == want) | (np.isnan(flat) & np.isnan(want)))
            if self._level and np.count_nonzero(bad) <= max(1.0, ROUNDED_INSIDE * bad.size):
                bad &= ~(difference <= self._level)
        count = int(np.count_nonzero(bad))
        if not count:
            return ""
        first = int(np.argmax(bad))
        place = [int(i) for i in np.unravel_index(first, got.shape)] if got.ndim else []
        return (
            f"{count} of {got.size} outputs differ from the untuned build, first at {place}: "
            f"{flat[first]!s} instead of {want[first]!s}"
        )
