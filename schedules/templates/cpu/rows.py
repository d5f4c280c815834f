"""Reductions over trailing axes, with everything elementwise around them: softmax, norms, means, sums, maxima.

There are two kinds, depending on which axis of the input is contiguous in memory.

``across``: the reduced axis is contiguous, as in softmax. A vector of V partial results is kept and combined at the end
of each row: first whole vectors, then groups of four, then single numbers. Below, s is a reduced result and e a stage
that does not reduce:

    for r, k: s1[r] += f(x[r, k])            parallel r:
    for r, k: e[r, k] = g(x, s1[r])              for k/V: vector V: p[v] += f(x[r, k])
    for r, k: s2[r] += e[r, k]        →          fold p into s1
    for r, k: y[r, k] = h(e, s2[r])              for k/V: vector V: e[k] = g(x, s1)
                                                 …

``along``: an axis that is kept is contiguous, as the channel block b when (n, C/b, h, w, b) is averaged over h and w.
Vectors run along it, and t rows are reduced together, so that there are enough independent sums to hide latency:

    for r, b, k: s[r, b] += x[r, k, b]       parallel r/t, b/V:
    for r, b: y[r, b] = h(s[r, b])    →          for k: unroll t: vector V: s[t, v] += x[r, k, b]
                                                 unroll t: vector V: y = h(s)

Before that, stages that do not reduce are inlined, unless this would compute a costly function twice. In every
CPU program, calls such as exp are then replaced by arithmetic (``vector_math``): otherwise a vector would become one
call of the C library per element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.extremes import register_extremes
from schedules.templates.common.ranking import ranked
from schedules.templates.common.register_tile import spread
from schedules.templates.common.row_analysis import Rows, inline_cheap, reduces, rows_of
from schedules.templates.common.structure import (
    FEW_THREADS,
    REDUCE,
    SPATIAL,
    balance,
    blocks_in_order,
    divisors,
    extents,
    idle,
    nodes_below,
)
from schedules.templates.nests.joined_axes import joined
from schedules.templates.nests.row_tails import split_tails
from schedules.templates.template import OneAlgorithm

OP = "rows"
UNROLL = 16
"""Longest reduction loop that is unrolled, mostly those that combine partial results. Heuristic, not measured."""

FOLD = 4
"""Partial results that are combined one by one at the end. Heuristic, not measured."""

COPIED = 4096
"""Elements of a tile up to which it is copied where rows lie pages apart: a third of a first cache of 48 KiB."""

PAGE = 1024
"""Elements of 4 bytes in a page of memory."""

GOOD, WIDE = 4, 16
"""Registers of partial results: enough to hide latency, and those that read a whole KiB in one step. The mean of 512
rows of 512 numbers took 10.4 us with 4 of them, 6.3 with 16 (Zen 5)."""

ODD_HALVES = (3, 5, 7)
"""Half registers of vectors in rows that no whole register divides. 768 numbers times 768 × 1000 took 98 µs
with vectors of 8 sums, 54 with vectors of 40 (Zen 4)."""

SMALL = 16 * 1024
"""Elements below which the first guess uses one thread. Heuristic, not measured: waking threads takes some µs."""

register_extremes()


class RowsTemplate(OneAlgorithm[Rows]):
    """Match, space and rewrite for reductions over trailing axes."""

    name = OP
    version = 2

    def match(self, func: tirx.PrimFunc) -> Rows | None:
        """The last block, if all stages can be computed row by row."""
        return rows_of(joined(func))

    def prepare(self, func: tirx.PrimFunc, anchor: Rows, config: Config) -> tirx.PrimFunc:
        """``func`` with cheap stages inlined and ragged ends of rows apart."""
        sch = s_tir.Schedule(joined(func))
        inline_cheap(sch)
        prepared = _without_division(sch.mod["main"])
        if anchor.splits and anchor.length % config.integer("vector"):
            return split_tails(prepared, config.integer("vector"))
        return prepared

    def space(self, anchor: Rows, target: Target) -> Space:
        """Vector length, rows reduced together, and whether other threads are woken."""
        lanes = target.lanes()
        tiled = 1 if anchor.across or anchor.tiled < 0 else anchor.spatial[anchor.tiled]
        along = 1 if anchor.across else anchor.length
        knobs = (
            Knob("vector", _vectors(anchor, lanes)),
            Knob("tile", divisors(tiled, 8)),
            Knob("parallel", (0, 1) if anchor.rows * along > 1 else (0,)),
            *((Knob("copy", (0, 1)),) if anchor.again >= 0 and not anchor.across else ()),
        )
        work = math.prod(anchor.reduction) * anchor.rows * along
        alone = 1 / target.threads if work > SMALL and target.threads > FEW_THREADS else 1.0

        def derive(columns: Columns) -> Columns:
            jobs = anchor.rows * (1 if anchor.across else along / columns["vector"]) / columns["tile"]
            threads = np.where(columns["parallel"] > 0, target.threads, 1)
            return {
                "balance": balance(jobs, threads),
                "work": np.log2(work / threads),
                "accumulators": columns["tile"] * columns["vector"] / lanes,
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            return {
                "tile": np.abs(np.log2(derived["accumulators"] / _registers(anchor))),
                "ragged": _ragged(columns["vector"], anchor.length, lanes),
                "copied": _copied(columns, anchor),
                "idle": 4 * idle(np.where(columns["parallel"] > 0, derived["balance"], alone), target.threads),
                "threads": 4 * np.abs(columns["parallel"] - (1 if work > SMALL else 0)),
            }

        return ranked(Space(OP, self.version, knobs, None, derive), terms, 4)

    def apply(self, sch: s_tir.Schedule, anchor: Rows, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        vector = config.integer("vector")
        last = sch.get_sblock(anchor.block)
        stages = [sch.get_sblock(block.name_hint) for block in blocks_in_order(sch.mod["main"])]
        if anchor.across:
            stages = [part for stage in stages for part in (*_partials(sch, stage, vector, target.lanes()), stage)]
            loops = sch.get_loops(last)
            outer = [loops[axis] for axis in anchor.kept]
            sch.reorder(*outer, *(loop for axis, loop in enumerate(loops) if axis not in anchor.kept))
        else:
            copies = _copies(sch, stages, anchor) if anchor.again >= 0 and config.integer("copy") else []
            outer = _outer_along(sch, last, anchor, vector, config.integer("tile"))
            stages = [*copies, *stages]
        for stage in reversed(stages[:-1]):
            sch.compute_at(stage, outer[-1], preserve_unit_loops=True)
        job = sch.fuse(*outer)
        if config.integer("parallel"):
            sch.parallel(job)
        for stage in stages[:-1]:
            kinds = [axis.iter_type for axis in sch.get(stage).iter_vars]  # compute_at makes a loop of every axis
            _one_row(sch, stage, kinds, vector)
        own = len(sch.get_loops(last)) - 1
        reduced = len(extents(sch.get(last), REDUCE))
        _one_row(sch, last, [SPATIAL] * (own - reduced) + [REDUCE] * reduced, vector)


def _vectors(anchor: Rows, lanes: int) -> tuple[int, ...]:
    """Vectors of half to four registers that divide a row; if no whole one does, those that fit.

    Odd numbers of halves too where one half divides it. Those that divide it where its end cannot be reduced apart. Up
    to ``WIDE`` registers where one row is reduced along another axis once: each step reads so much from one place in
    memory.
    """
    length, wide = anchor.length, (lanes << n for n in range(_registers(anchor).bit_length()))
    sizes = tuple(size for size in (lanes // 2, *wide) if 1 < size <= length)
    whole = tuple(size for size in sizes if length % size == 0)
    if anchor.splits and max(whole, default=0) < lanes:
        return sizes or (1,)
    if max(whole, default=lanes) < lanes:  # one half of a register is one sum after the other
        whole += tuple(size for size in (lanes // 2 * odd for odd in ODD_HALVES) if length % size == 0)
    return whole or tuple(d for d in divisors(length, 4 * lanes) if d >= 4) or (1,)


def _registers(anchor: Rows) -> int:
    """Registers of partial results that a first guess has."""
    return GOOD if anchor.across or anchor.tiled >= 0 or anchor.again >= 0 else WIDE


def _ragged(vectors: NDArray[np.float64], length: int, lanes: int) -> NDArray[np.float64]:
    """Cost of vectors that are not full, and of what is left over, which is reduced number by number."""
    steps = length // vectors * np.ceil(vectors / lanes) + length % vectors
    cost: NDArray[np.float64] = 4 * np.log2(np.maximum(1, steps * lanes / length))
    return cost


def _copied(columns: Columns, anchor: Rows) -> NDArray[np.float64]:
    """Cost of a tile that is copied although it needs not, or the other way round.

    Rows that lie a multiple of a page apart compete for the same few places of a cache, where a second stage does not
    find them any more. A copy that does not fit the first cache is of no use.
    """
    elements = columns["vector"] * columns["tile"] * math.prod(anchor.reduction)
    wanted = ((elements <= COPIED) & (anchor.length % PAGE == 0)).astype(np.float64)
    return np.abs(columns.get("copy", wanted) - wanted)


def _without_division(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``x[r, k] / s[r]`` → ``x[r, k] * (1 / s[r])``: one division per row, where a vector of them takes 16 cycles."""
    innermost = set()
    for block in blocks_in_order(func):
        wide = [axis.var for axis in block.iter_vars if int(axis.dom.extent) > 1]
        innermost.update(wide[-1:])

    def varies(expr: tirx.Expr) -> bool:
        return any(var in innermost for var in nodes_below(expr, tirx.Var))

    def inverted(division: tirx.Div) -> tirx.Expr:
        if str(division.ty.dtype) != "float32" or not varies(division.a) or varies(division.b):
            return division
        return division.a * (tirx.const(1.0, "float32") / division.b)

    return tvm_ffi.structural_map(func, (tirx.Div, inverted), order="post")


def _partials(sch: s_tir.Schedule, stage: SBlockRV, vector: int, lanes: int) -> list[SBlockRV]:
    """Split a reduction into ``vector`` partial ones and a fold, the fold by vectors and by fours again."""
    block = sch.get(stage)
    if vector == 1 or not reduces(block) or math.prod(extents(block, REDUCE)) % vector:
        return []
    parts = []
    spatial = len(extents(block, SPATIAL))
    for width in [vector, *(width for width in (lanes, FOLD) if width < vector and vector % width == 0)]:
        reduced = sch.fuse(*sch.get_loops(stage)[spatial:])
        _, inner = sch.split(reduced, [None, width])
        parts.append(sch.rfactor(inner, spatial))
    return parts


def _copies(sch: s_tir.Schedule, stages: Sequence[SBlockRV], anchor: Rows) -> list[SBlockRV]:
    """Copy what several stages read of the data."""
    data = sch.mod["main"].params[anchor.again]
    reads = [[region.source.same_as(data) for region in sch.get(stage).reads] for stage in stages]
    readers = [stage for stage, own in zip(stages, reads, strict=True) if any(own)]
    first = next(own for own in reads if any(own))
    return [sch.cache_read(readers[0], first.index(True), "global", readers)]


def _extent(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> int:
    return math.prod(int(sch.get(loop).extent) for loop in loops)


def _one_row(sch: s_tir.Schedule, stage: SBlockRV, kinds: Sequence[int], vector: int) -> None:
    """One stage below the loop over rows: vectors over the row, or over partial results of a reduction.

    Args:
        kinds: SPATIAL or REDUCE for each loop below the one over rows.
    """
    loops = sch.get_loops(stage)[1:]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    if reduced:
        _reduce(sch, stage, spatial, reduced)
    elif vector > 1 and _extent(sch, spatial) % vector == 0:  # a ragged row is left to LLVM, which masks its end
        _, inner = sch.split(sch.fuse(*spatial), [None, vector])
        sch.vectorize(inner)


def _reduce(sch: s_tir.Schedule, stage: SBlockRV, spatial: Sequence[LoopRV], reduced: Sequence[LoopRV]) -> None:
    """Reduction loops outside, the tile inside: its last loop a vector, the others unrolled."""
    tile = [loop for loop in spatial if _extent(sch, [loop]) > 1]
    units = [loop for loop in spatial if _extent(sch, [loop]) == 1]
    sch.reorder(*units, *reduced, *tile)
    if _extent(sch, reduced) <= UNROLL:
        for loop in reduced:
            sch.unroll(loop)
    spread(sch, tile)
    init = sch.decompose_reduction(stage, reduced[0])
    spread(sch, [loop for loop in sch.get_loops(init)[-len(tile) :] if tile])


def _outer_along(sch: s_tir.Schedule, last: SBlockRV, anchor: Rows, vector: int, tile: int) -> list[LoopRV]:
    """Bring the last block into the order rows, tile, free axes, vector; the loops around a tile."""
    loops = sch.get_loops(last)
    count = len(anchor.spatial)
    rows = {axis: loops[axis] for axis in anchor.kept}
    free, reduced = [loops[axis] for axis in range(count - 1) if axis not in rows], loops[count:]
    part, inner = sch.split(loops[count - 1], [None, vector])
    tiles = []
    if anchor.tiled >= 0:
        rows[anchor.tiled], rest = sch.split(rows[anchor.tiled], [None, tile])
        tiles = [rest]
    sch.reorder(*rows.values(), part, *tiles, *free, inner, *reduced)
    return [*rows.values(), part]
