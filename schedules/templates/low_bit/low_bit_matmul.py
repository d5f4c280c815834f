"""Matrix product with a weight of 4 or 8 bits, scaled in groups along the sum; it stays packed in memory.

    x (m, k)   weight (n/b, k/Q, b, 4) bytes   scale (n/b, k/G, b)   output (m, n)
    Q = 8 numbers of 4 bits or 4 of 8 in the 4 bytes of a lane (``instructions/dots.py``), G numbers a group
    zero points, where they are not 2^(bits-1): (n/b, k/G, b), of 4 bits those of two groups in a byte, (n/b, k/2G, b)

    for m, n, g:                                        parallel n/(tn·b)·m/rows:
        for i: part[m, g, n] += x * weight        →         for m/tm, g:
        o += (part - zero · Σx of g) * scale                    for i/(Q·u): unroll u, tm, tn: part += dot(x, weight)
    epilogue                                                    o += (part - zero · Σx) * scale: vectorize b
                                                            epilogue on the tile

With int8 activations, each group of x is first rounded to 127 levels of its largest number, as ONNX Runtime's and
llama.cpp's CPU kernels do (``accuracy_level`` 4 of MatMulNBits), and its products are summed exactly.

The weights are one stream per tile, so a vector × matrix product runs at memory bandwidth; they are unpacked in
registers, which many rows share.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.prefetch import prefetch_ahead
from schedules.templates.common.ranking import ranked
from schedules.templates.common.register_tile import spread, unroll_tile
from schedules.templates.common.structure import (
    AT_READER,
    MOST_JOB_ROWS,
    MOST_UNROLLED,
    SPARE_REGISTERS,
    Anchor,
    balance,
    divisors,
    idle,
    inline_epilogue,
)
from schedules.templates.instructions.dots import FORMS, DotForm, use_dot
from schedules.templates.template import MarkedTemplate

OP = "low_bit_matmul"

LEVELS = 127
"""Largest magnitude of an activation rounded to int8."""

PART, ANCHOR = "part", "low_bit_matmul"
"""Blocks: the sums over one group, and those over groups."""

STREAMS = 4
"""Panels that a vector meets at once, each a stream from memory: 1, 2, 4 and 8 read 17.7, 20.1, 22.3 and 22.1 GB/s on a
two-core Ice Lake (4864 × 896 in 4 bits; memory's bandwidth there was 17.4 to 22.5)."""

AHEAD = 0, 1024, 2048, 4096
"""Bytes by which a panel's levels are asked for before a vector meets them. The hardware does not run ahead from one
page to the next. On a two-core Ice Lake four streams of 4 bits read 21.1, 25.3, 25.3 and 25.5 GB/s (896 × 4864), and
22.5, 26.6, 26.7 and 26.0 (896 × 151936), medians of 20 rounds."""

PARALLEL_ROWS = 8
"""Rows from which on activations are rounded by all threads. Heuristic: a parallel launch takes 1.2 µs, a row of 1,000
numbers 0.3."""


def low_bit_matmul(
    x: te.Tensor, weight: te.Tensor, scale: te.Tensor, zero: te.Tensor | None, form: DotForm
) -> te.Tensor:
    """x (m, k) float32, weight (n/b, k/Q, b, 4), scale (n/b, k/G, b), zero points or None for half → (m, n)."""
    panels, steps, lanes, _ = (int(size) for size in weight.shape)
    rows, groups = int(x.shape[0]), int(scale.shape[1])
    size = steps * form.depth // groups
    numbers, factor = _rounded(x, groups) if form.data == "int8" else (x, None)
    total = _sums(numbers, groups, form.sum)
    # A zero point of half is taken off as an integer: one instruction with an operand in memory, where floats take two.
    whole = form.data == "int8" and zero is None
    half = tirx.const(1 << (form.bits - 1), "int32")
    sums = total
    if form.data == "int8":
        sums = _each(total, lambda sum_: sum_ * half if whole else sum_.astype("float32"), "sums")
    within = [te.reduce_axis((0, extent), name) for name, extent in (("s", size // form.depth), ("q", 4))]
    halves = [te.reduce_axis((0, 2), "h")] if form.bits == 4 else []
    s, q = within

    def product(m: tirx.Var, g: tirx.Var, n: tirx.Var) -> tirx.Expr:
        byte = weight[n // lanes, g * (size // form.depth) + s, n % lanes, q]
        place = g * size + s * form.depth + q
        if halves:
            place = g * size + s * form.depth + halves[0] * 4 + q
            byte = tirx.Select(halves[0] == 0, byte & tirx.const(15, "uint8"), byte >> tirx.const(4, "uint8"))
        number = numbers[m, place]
        number = number if form.data == form.sum else number.astype(form.sum)
        return te.sum(number * byte.astype(form.sum), axis=[s, *halves, q])

    part = te.compute((rows, groups, panels * lanes), product, name=PART, attrs={AT_READER: 1})
    g = te.reduce_axis((0, groups), "g")

    def summed(m: tirx.Var, n: tirx.Var) -> tirx.Expr:
        term = part[m, g, n]
        if whole:
            term = (term - sums[m, g]).astype("float32")
        else:
            term = term if form.sum == "float32" else term.astype("float32")
            term = term - _zero_point(zero, form, n // lanes, g, n % lanes) * sums[m, g]
        term = term if factor is None else term * factor[m, g]
        return te.sum(term * scale[n // lanes, g, n % lanes], axis=g)

    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps({"dot": form.name, "lanes": lanes, "group": size})}
    return te.compute((rows, panels * lanes), summed, name=ANCHOR, attrs=attrs)


def _zero_point(zero: te.Tensor | None, form: DotForm, panel: tirx.Expr, g: tirx.Var, lane: tirx.Expr) -> tirx.Expr:
    if zero is None:
        return tirx.const(float(1 << (form.bits - 1)), "float32")
    if form.bits == 8:
        return zero[panel, g, lane].astype("float32")
    byte = zero[panel, g // 2, lane]
    half = tirx.Select(g % 2 == 0, byte & tirx.const(15, "uint8"), byte >> tirx.const(4, "uint8"))
    return half.astype("float32")


def _rounded(x: te.Tensor, groups: int) -> tuple[te.Tensor, te.Tensor]:
    """x in int8 (m, k), and what one level of each group stands for (m, k/G)."""
    rows, depth = (int(size) for size in x.shape)
    size = depth // groups
    i = te.reduce_axis((0, size), "i")
    # Magnitudes of floats are in the order of their bits, and of integers LLVM makes a vector's maximum.
    magnitude = tirx.const(0x7FFFFFFF, "int32")
    largest = te.compute(
        (rows, groups),
        lambda m, g: te.max(tirx.reinterpret("int32", x[m, g * size + i]) & magnitude, axis=i),
        name="largest",
    )
    factor = te.compute(
        (rows, groups),
        lambda m, g: tirx.reinterpret("float32", largest[m, g]) * tirx.const(1 / LEVELS, "float32"),
        name="factor",
    )

    def level(m: tirx.Var, k: tirx.Var) -> tirx.Expr:
        one = factor[m, k // size]
        inverse = tirx.Select(one > tirx.const(0.0, "float32"), tirx.const(1.0, "float32") / one, one)
        return tirx.nearbyint(x[m, k] * inverse).astype("int8")

    return te.compute((rows, depth), level, name="levels"), factor


def _sums(x: te.Tensor, groups: int, dtype: str) -> te.Tensor:
    """(m, k) → (m, k/G) of ``dtype``."""
    rows, depth = (int(size) for size in x.shape)
    size = depth // groups
    i = te.reduce_axis((0, size), "i")

    def of(m: tirx.Var, g: tirx.Var) -> tirx.Expr:
        number = x[m, g * size + i]
        return te.sum(number if x.dtype == dtype else number.astype(dtype), axis=i)

    return te.compute((rows, groups), of, name="total")


def _each(x: te.Tensor, function: Callable[[tirx.Expr], tirx.Expr], name: str) -> te.Tensor:
    return te.compute(x.shape, lambda *at: function(x[at]), name=name)


class LowBitMatmulTemplate(MarkedTemplate):
    """Match, space and rewrite for ``low_bit_matmul``."""

    name = OP
    version = 2

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tile, rows of x per job and steps of a group unrolled."""
        rows, columns_count = anchor.spatial
        lanes, form, steps = _shape(anchor)
        panels = columns_count // lanes
        limit = target.vector_registers - SPARE_REGISTERS
        knobs = (
            Knob("tm", divisors(rows, limit)),
            Knob("tn", divisors(panels, 8)),
            Knob("rows", divisors(rows, MOST_JOB_ROWS)),
            Knob("unroll", divisors(steps, 8)),
            Knob("outer", (0, 1) if rows > 1 else (0,)),
            Knob("ahead", AHEAD if rows == 1 else (0,)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["tm"] * columns["tn"]
            allowed = (tile <= limit) & (tile * columns["unroll"] * form.depth <= 4 * MOST_UNROLLED)
            legal: NDArray[np.bool_] = allowed & (columns["rows"] % columns["tm"] == 0)
            return legal

        def derive(columns: Columns) -> Columns:
            tile = columns["tm"] * columns["tn"]
            jobs = (panels / columns["tn"]) * (rows / columns["rows"])
            return {
                "accumulators": tile,
                "unpacked_per_row": 1.0 / columns["tm"],
                "balance": balance(jobs, target.threads),
                "spilled": np.maximum(0, 2 * tile + columns["tn"] * form.depth // 4 + 2 - target.vector_registers),
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            return {
                "unpacked": 2 * derived["unpacked_per_row"],
                "spilled": 0.1 * derived["spilled"],
                "idle": 3 * idle(derived["balance"], target.threads),
                "ahead": 0.1 * np.abs(np.log2((columns["ahead"] + 512) / 1536)),
                "streams": 0.1 * np.abs(np.log2(columns["tn"] / (STREAMS if rows == 1 else 1))),
                "unroll": 0.1 * np.abs(np.log2(columns["unroll"] / min(steps, 4))),
                "rows": -0.1 * np.log2(columns["rows"]),
            }

        return ranked(
            Space(OP, self.version, knobs, fits, derive, job_rows="rows"), terms, 8, apart=("tm", "tn", "outer")
        )

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        lanes, form, _ = _shape(anchor)
        block = sch.get_sblock(anchor.block)
        tail = inline_epilogue(sch, anchor) or sch.cache_write(block, 0, "global")
        m, n, g = sch.get_loops(block)
        tm, tn, rows = (config.integer(name) for name in ("tm", "tn", "rows"))
        mo, mm, mi = sch.split(m, [None, rows // tm, tm])
        no, ni, b = sch.split(n, [None, tn, lanes])
        order = (mo, no) if config.integer("outer") else (no, mo)
        sch.reorder(*order, mm, g, mi, ni, b)
        sch.reverse_compute_at(tail, mm, preserve_unit_loops=True)
        *_, row, column = sch.get_loops(tail)
        spread(sch, [row, *sch.split(column, [tn, lanes])])
        job = sch.fuse(*order)
        sch.parallel(job)
        part = sch.get_sblock(PART)
        sch.compute_at(part, g, preserve_unit_loops=True)
        lane = self._sum_group(sch, part, config, lanes)
        spread(sch, [mi, ni, b])
        init = sch.decompose_reduction(block, g)
        unroll_tile(sch, init, 3)
        self._round(sch, anchor)
        use_dot(sch, lane, form, target)
        if config.integer("ahead"):
            self._ask_ahead(sch, anchor, config, job, g)

    def _ask_ahead(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, job: LoopRV, g: LoopRV) -> None:
        """Every group of a vector × matrix product asks for a later one, at a panel's end for one of the next job."""
        lanes, _, steps = _shape(anchor)
        tn, panels, groups = config.integer("tn"), anchor.spatial[1] // lanes, int(sch.get(g).extent)
        later = sch.get(g).loop_var + -(-config.integer("ahead") // (4 * lanes * steps))
        later += tirx.Select(
            later < groups, tirx.const(0, later.ty.dtype), tirx.const((tn - 1) * groups, later.ty.dtype)
        )
        for parameter, count in (((panels, groups * steps, lanes, 4), steps), ((panels, groups, lanes), 1)):
            for panel in range(tn):
                first = ((sch.get(job).loop_var * tn + panel) * groups + later) * count
                prefetch_ahead(sch, anchor.shapes.index(parameter), lanes, g, [first + i for i in range(count)])

    def _sum_group(self, sch: s_tir.Schedule, part: SBlockRV, config: Config, lanes: int) -> LoopRV:
        """The loops over one group's sums; what comes back is that over the lanes of a dot product."""
        loops = sch.get_loops(part)
        s = len(sch.get(part).iter_vars) - 3
        row, _, column, step, *within = loops[-3 - s :]
        ni, lane = sch.split(column, [None, lanes])
        so, si = sch.split(step, [None, config.integer("unroll")])
        sch.reorder(so, si, row, ni, lane, *within)
        for loop in (si, row, ni):
            sch.unroll(loop)
        init = sch.decompose_reduction(part, so)
        unroll_tile(sch, init, 3)
        return lane

    def _round(self, sch: s_tir.Schedule, anchor: Anchor) -> None:
        """Schedule what is computed from the activations before the product."""
        rows = anchor.spatial[0]
        for name in anchor.prologue:
            if name == PART:
                continue
            loops = sch.get_loops(sch.get_sblock(name))
            if rows >= PARALLEL_ROWS:
                sch.parallel(loops[0])
            if name == "levels":
                _, inner = sch.split(loops[1], [None, int(anchor.geometry["group"])])
                sch.vectorize(inner)


def _shape(anchor: Anchor) -> tuple[int, DotForm, int]:
    """Lanes of a panel, what is multiplied, and dot products in a group."""
    form = FORMS[anchor.geometry["dot"]]
    return int(anchor.geometry["lanes"]), form, int(anchor.geometry["group"]) // form.depth
