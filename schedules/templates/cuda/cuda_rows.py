"""Reductions over trailing axes on a GPU, with everything elementwise around them: softmax, norms, means, sums.

What a function is, is decided as on the CPU (``rows``): with s for what is reduced, ``across`` when neighbours in
memory are reduced together, ``along`` when they are kept.

    for r, k: s1[r] += f(x[r, k])          blockIdx.x, rows of the block = r:
    for r, k: s2[r] += g(x, s1)[r, k]  →       threads along k: partial s1, folded by shuffles, shared
    for r, k: y[r, k] = h(x, s1, s2)           threads along k: partial s2, …
                                               threads along k: y

Across, threadIdx.x runs over k and threadIdx.y over rows; along, the other way round, so that in both neighbouring
threads read neighbouring elements. Stages that do not reduce are inlined: computing exp twice is cheaper than storing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.row_analysis import Rows, rows_of
from schedules.templates.common.structure import REDUCE, extents
from schedules.templates.cuda.cuda_structure import WARP, inline_all, whole_warps
from schedules.templates.template import OneAlgorithm

OP = "cuda_rows"


class CudaRowsTemplate(OneAlgorithm[Rows]):
    """Match, space and rewrite for reductions over trailing axes."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Rows | None:
        """As the CPU's ``rows``, if nothing but reductions and the last stage is left after inlining.

        Axes that count rows have to be the first ones: TVM recognises no sum whose threads count others, too.
        """
        rows = rows_of(func)
        if rows is None or rows.kept != tuple(range(len(rows.kept))):
            return None
        sch = s_tir.Schedule(func)
        names = inline_all(sch)
        kept = [sch.get(sch.get_sblock(name)) for name in names[:-1]]
        return rows if names[-1] == rows.block and all(extents(block, REDUCE) for block in kept) else None

    def space(self, anchor: Rows, target: Target) -> Space:
        """Threads that share a row's reduction, and rows of a block."""
        depth = math.prod(anchor.reduction)
        rows = anchor.rows * (1 if anchor.across else anchor.length)
        knobs = (
            Knob("inner", tuple(t for t in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if t < 2 * depth)),
            Knob("outer", tuple(t for t in (1, 2, 4, 8, 16, 32, 64, 128, 256) if t < 2 * rows)),
        )

        def derive(columns: Columns) -> Columns:
            threads = columns["inner"] * columns["outer"]
            blocks = np.ceil(rows / columns["outer"])
            return {
                "threads": np.log2(threads),
                "steps": np.log2(np.ceil(depth / columns["inner"])),
                "busy": np.log2(np.minimum(1.0, blocks * threads / (512 * target.threads))),
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            want = 1 if anchor.across else WARP  # neighbouring threads must read neighbouring elements
            return {
                "threads": np.abs(derived["threads"] - np.log2(256)),
                "steps": np.abs(derived["steps"] - 2),
                "idle": -2 * derived["busy"],
                "scattered": 3 * np.maximum(0, np.log2(want / columns["outer"])),
            }

        return ranked(Space(OP, self.version, knobs, whole_warps(knobs, target), derive), terms, 4)

    def apply(self, sch: s_tir.Schedule, anchor: Rows, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        inner, outer = config.integer("inner"), config.integer("outer")
        stages = [sch.get_sblock(name) for name in inline_all(sch)]
        last = stages[-1]
        across, along = ("threadIdx.x", "threadIdx.y") if anchor.across else ("threadIdx.y", "threadIdx.x")
        row = _row_loop(sch, last, anchor, outer, along)
        for stage in reversed(stages[:-1]):
            sch.compute_at(stage, row, preserve_unit_loops=True)
            sch.set_scope(stage, 0, "local")
        for stage in stages:
            _spread(sch, stage, row, inner, across)


def _row_loop(sch: s_tir.Schedule, last: SBlockRV, anchor: Rows, outer: int, axis: str) -> LoopRV:
    """Fuse the loops that count rows, and split them over blocks and their threads; the innermost of these."""
    loops = list(sch.get_loops(last))
    spatial = len(anchor.spatial)
    rows, rest = loops[: len(anchor.kept)], loops[len(anchor.kept) : spatial]
    if not anchor.across:
        rows, rest = [*rows, rest[-1]], rest[:-1]
        sch.reorder(*rows, *rest, *loops[spatial:])
    fused = sch.fuse(*rows) if len(rows) > 1 else rows[0]
    block, row = sch.split(fused, [None, outer])
    sch.bind(block, "blockIdx.x")
    sch.bind(row, axis)
    return row


def _spread(sch: s_tir.Schedule, stage: SBlockRV, row: LoopRV, inner: int, axis: str) -> None:
    """Share one stage of a row among ``inner`` threads: its reduction, or its elements."""
    below = _below(sch, stage, row)
    reduced = len(extents(sch.get(stage), REDUCE))
    shared = below[-reduced:] if reduced else below
    if not shared:
        return
    fused = sch.fuse(*shared) if len(shared) > 1 else shared[0]
    _, thread = sch.split(fused, [None, inner])
    sch.bind(thread, axis)


def _below(sch: s_tir.Schedule, stage: SBlockRV, row: LoopRV) -> Sequence[LoopRV]:
    """The stage's loops inside ``row``."""
    loops = list(sch.get_loops(stage))
    position = next(index for index, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(row)))
    return loops[position + 1 :]
