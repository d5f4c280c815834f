"""A second input set for the check of candidates: NaN, infinities, minus zero, denormals and the largest numbers.

A candidate runs on these inputs first, then on ordinary ones (``output_check``). They are the ordinary activations in
reverse order with a few elements replaced, so most outputs stay finite where rows and windows are independent. A kernel
that never sets its sums to zero would find them in its workspace afterwards, and be wrong on the ordinary inputs.

Right kernels differ in the order of their sums, so other finite outputs are not compared again. Checked is which
outputs are finite, and the sign of infinities:

    finite(got) = finite(want), and not got = −want where want = ±∞

So are outputs near the largest number, which come from one input: what is left where two cancel is far smaller.

Winograd's transforms add an element to all outputs of its tile. There, outputs of NaN and infinity must not be finite,
but others may be so as well: finite(got) ⊆ finite(want). Outputs that are no floats are compared as ever.

Integers of 32 and 64 bits keep their values: they may be indices, which a kernel before this one holds within bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.measure.output_check import BYTES, Array, Expected, aligned, draws
from schedules.task import Task

LARGE = 0.88
"""A large edge, as a share of the largest number of a type: 3e38 of fp32. Twice that is infinite."""

HUGE = 0.003
"""Share of the largest number of fp32 and fp64 from which on outputs are compared. Rounding leaves a 10⁵th of it."""

HUGE_RTOL = 0.5
"""Relative difference that a huge output may have. Heuristic: bf16 operands are off by a 250th."""

KINDS = 6
"""NaN, +∞, −∞, large, −large; minus zero and a denormal. A task with several draws gets one kind in each."""

FRACTION = 0.618
"""Elements are replaced at multiples of this share of an array, so that they lie in different rows. Heuristic."""

APART = 8
"""Multiples that the first elements of two parameters are apart, so that no two are at one place."""


def edged(task: Task, inputs: Sequence[Array], draw: int = 0) -> list[Array]:
    """``inputs`` with the activations in reverse order and a few of their numbers replaced.

    Args:
        inputs: from ``make_inputs``; constants are passed on as they are.
        draw: which of the task's draws they are. If a task has only one, it gets all kinds.
    """
    several = draws(task) > KINDS
    return [
        array
        if index in task.constants or not array.size
        else _edged(array, task.dtypes[index], index, draw if several else None)
        for index, array in enumerate(inputs)
    ]


def _edged(array: Array, name: str, index: int, draw: int | None) -> Array:
    """A copy of parameter ``index`` with edges; the array itself where its numbers may be indices."""
    kinds = float_edges(name) if name == "bfloat16" or array.dtype.kind == "f" else None
    if kinds is None and array.dtype not in BYTES:
        return array
    copy = aligned(array.shape, array.dtype)
    flat = copy.reshape(-1)
    flat[...] = array.reshape(-1)[::-1]
    if kinds is None or (flat.size == 1 and (draw is None or draw % 2 == 0)):
        return copy  # bytes reach the ends of their type already; a scalar may decide all outputs
    chosen = [number for kind in kinds for number in kind] if draw is None else kinds[draw % KINDS]
    for place, number in enumerate(chosen):
        flat[int(flat.size * (FRACTION * (1 + place + APART * index) % 1))] = number
    return copy


def float_edges(name: str) -> list[list[Any]]:
    """The edges of a floating-point type, by kind; those of bfloat16 as its bits."""
    if name == "bfloat16":
        return [[0x7FC0], [0x7F80], [0xFF80], [0x7F61], [0xFF61], [0x8000, 0x0001]]
    info = np.finfo(name)
    large = LARGE * float(info.max)
    return [[np.nan], [np.inf], [-np.inf], [large], [-large], [-0.0, float(info.smallest_subnormal)]]


class ExpectedEdges:
    """The right output of one task on edge inputs.

    Args:
        want: the untuned build's output.
        expected: makes what decides of outputs that are no floats.
    """

    def __init__(self, want: Array, dtype: str, expected: Callable[[Array], Expected]) -> None:
        self._short = dtype == "bfloat16"
        self._whole = None if self._short or want.dtype.kind == "f" else expected(want)
        flat = self._numbers(want)
        self._finite = np.isfinite(flat)
        self._infinite = np.flatnonzero(np.isinf(flat))
        self._opposite = -flat[self._infinite] if self._infinite.size else flat[:0]
        self._bound = HUGE * float(np.finfo(flat.dtype).max) if flat.dtype in (np.float32, np.float64) else np.inf
        self._huge = np.flatnonzero(self._finite & (np.abs(flat) > self._bound))
        self._values = flat[self._huge].astype(np.float64)

    @classmethod
    def of(cls, task: Task, want: Array) -> ExpectedEdges:
        """Return the expectations ``want`` of a task's kernels."""
        return cls(want, task.dtypes[-1], lambda array: Expected.of(task, array))

    def _numbers(self, array: Array) -> NDArray[Any]:
        flat = array.reshape(-1)
        return (flat.astype(np.uint32) << 16).view(np.float32) if self._short else flat

    def _is_other_size(self, flat: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether an output is huge, or should be, and is another number."""
        other: NDArray[np.bool_] = np.isfinite(flat) & self._finite & (np.abs(flat) > self._bound / (1 - HUGE_RTOL))
        got = flat[self._huge].astype(np.float64)
        other[self._huge] = np.isfinite(got) & (np.abs(got - self._values) > HUGE_RTOL * np.abs(self._values))
        return other

    def mismatch(self, got: Array, spreads: bool = False) -> str:
        """Return the first error of ``got`` in words; empty if there is none.

        Args:
            spreads: whether the kernel's transforms add an element to neighbours.
        """
        if self._whole is not None:
            return self._whole.mismatch(got)
        flat = self._numbers(got)
        finite = np.isfinite(flat)
        bad = finite & ~self._finite if spreads else finite != self._finite
        if not spreads:
            bad[self._infinite[flat[self._infinite] == self._opposite]] = True
            bad |= self._is_other_size(flat)
        count = int(np.count_nonzero(bad))
        if not count:
            return ""
        first = int(np.argmax(bad))
        place = [int(i) for i in np.unravel_index(first, got.shape)] if got.ndim else []
        wanted = "a finite number" if self._finite[first] else "NaN or infinity"
        if self._finite[first] and np.isfinite(flat[first]):
            wanted = "a number of another size"
        return (
            f"{count} of {got.size} outputs differ from the untuned build where inputs are NaN, infinite or extreme, "
            f"first at {place}: {flat[first]!s} instead of {wanted}"
        )
