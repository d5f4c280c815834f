"""Running sums and products along an axis, one step after the other, as ONNX Runtime adds them up.

    y[o, 0, c] = x[o, 0, c]                        exclusive: the neutral number
    y[o, i, c] = y[o, i - 1, c] + x[o, i, c]       exclusive: + x[o, i - 1, c]; in reverse, i counts from the end

Vectors run over the columns c. Where the axis is the innermost, ``ROWS`` rows are added up side by side: an addition
waits for the one before it in its row, not for those of other rows.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import math
from dataclasses import dataclass

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.common.structure import ITERATIONS

LANES = 16
"""Elements of a vector operation."""

COLUMNS = 64
"""Columns of a job, where they divide all columns: as many vectors as an addition takes cycles."""

ROWS = 8
"""Rows side by side where the axis is the innermost. Heuristic: an addition takes 3 to 4 cycles, two start in each."""


@dataclass(frozen=True)
class Running:
    """A running sum or product of (outer, steps, columns).

    Attributes:
        product: whether elements are multiplied, not added.
        exclusive: whether an element counts only for those behind it.
        reverse: whether steps are counted from the end.
    """

    outer: int
    steps: int
    columns: int
    dtype: str
    product: bool = False
    exclusive: bool = False
    reverse: bool = False

    def place(self, step: tirx.Expr | int) -> tirx.Expr | int:
        """Return the index of a step."""
        return self.steps - 1 - step if self.reverse else step

    def joined(self, total: tirx.Expr, element: tirx.Expr) -> tirx.Expr:
        """Return the total with one more element."""
        return total * element if self.product else total + element

    def neutral(self) -> tirx.Expr:
        """Return the total of nothing."""
        return tirx.const(1 if self.product else 0, self.dtype)


def running(form: Running) -> tirx.PrimFunc:
    """The kernel: x → y, both (outer, steps, columns)."""
    return _along_rows(form) if form.columns == 1 else _across_columns(form)


@scripted.inline
def _step(y, x, o, i, first, count, form):  # type: ignore[no-untyped-def]
    """Elements ``first`` to ``first + count`` of step ``i``."""
    if i == 0:
        for u in T.vectorized(count):
            y[o, form.place(0), first + u] = form.neutral() if form.exclusive else x[o, form.place(0), first + u]
    else:
        for u in T.vectorized(count):
            y[o, form.place(i), first + u] = form.joined(
                y[o, form.place(i - 1), first + u],
                x[o, form.place(i - 1 if form.exclusive else i), first + u],
            )


def _across_columns(form: Running) -> tirx.PrimFunc:
    outer, steps, columns, dtype = form.outer, form.steps, form.columns, form.dtype
    width = COLUMNS if columns % COLUMNS == 0 else LANES if columns % LANES == 0 else columns

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((outer, steps, columns), dtype),  # type: ignore[valid-type]
        y: T.Buffer((outer, steps, columns), dtype),  # type: ignore[valid-type]
    ):
        # The axis of one element is for schedules that make vectors of the last.
        for a, b, c in T.grid(outer, columns // width, 1):
            with T.sblock("running"):
                o, part, one = T.axis.remap("SSS", [a, b, c])
                T.reads(x[o, 0:steps, 0:columns])
                T.writes(y[o, one:steps, 0:columns])
                T.sblock_attr({ITERATIONS: outer * steps * columns})
                for i in range(steps):
                    for v in range(width // LANES):
                        _step(y, x, o, i, part * width + v * LANES, LANES, form)
                    if width % LANES > 0:
                        _step(y, x, o, i, part * width + width // LANES * LANES, width % LANES, form)

    return kernel


def _along_rows(form: Running) -> tirx.PrimFunc:
    outer, steps, dtype = form.outer, form.steps, form.dtype
    rows = math.gcd(outer, ROWS)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((outer, steps, 1), dtype),  # type: ignore[valid-type]
        y: T.Buffer((outer, steps, 1), dtype),  # type: ignore[valid-type]
    ):
        for a, b in T.grid(outer // rows, 1):
            with T.sblock("running"):
                o, one = T.axis.remap("SS", [a, b])
                T.reads(x[o * rows : o * rows + rows, 0:steps, 0])
                T.writes(y[o * rows : o * rows + rows, one:steps, 0])
                T.sblock_attr({ITERATIONS: outer * steps})
                total = T.alloc_buffer((rows,), dtype, scope="local")
                for r in T.unroll(rows):
                    total[r] = form.neutral()
                for i in range(steps):
                    for r in T.unroll(rows):
                        if form.exclusive:
                            y[o * rows + r, form.place(i), 0] = total[r]
                        total[r] = form.joined(total[r], x[o * rows + r, form.place(i), 0])
                        if not form.exclusive:
                            y[o * rows + r, form.place(i), 0] = total[r]

    return kernel
