"""One thread per few neighbouring outputs: elementwise chains, layout changes, joins, pooling, depthwise convolution.

    for b, y, x, c, kh, kw: w += f(x)      blockIdx.x, threadIdx.x = b·y·x·c/v:
    for b, y, x, c: out = g(w)        →        unroll kh, kw: vector v: w[v] += f(x)
                                               vector v: out = g(w)

Neighbouring threads read neighbouring channels, so loads are coalesced; the taps of a window meet in the L1 cache.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    blocks_in_order,
    extents,
    find_anchor,
    parameter_shapes,
)
from schedules.templates.cuda.cuda_computes import GEMM
from schedules.templates.cuda.cuda_structure import bind_flat, inline_all
from schedules.templates.template import OneAlgorithm

OP = "cuda_map"
MOST_TAPS = 256  # a longer reduction deserves several threads
UNROLLED_TAPS = 64


class CudaMapTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for what needs no cooperation between threads."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The last stage, if all others can be inlined or are one short reduction that it reads element by element.

        Products are left to others: those with few outputs deserve several threads for each sum.
        """
        if find_anchor(func, GEMM) is not None:
            return None
        sch = s_tir.Schedule(func)
        names = inline_all(sch)
        blocks = {block.name_hint: block for block in blocks_in_order(sch.mod["main"])}
        if not names or len(names) > 2:
            return None
        last, first = blocks[names[-1]], blocks[names[0]]
        reduction = extents(first, REDUCE)
        if math.prod(reduction) > MOST_TAPS or not extents(last, SPATIAL):
            return None
        if len(names) == 2 and (not reduction or extents(last, REDUCE) or _size(first) != _size(last)):
            return None
        if any(len(sch.get_loops(sch.get_sblock(name))) != len(blocks[name].iter_vars) for name in names):
            return None
        return Anchor(names[0], extents(last, SPATIAL), reduction, tuple(names[1:]), (), parameter_shapes(func))

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Threads of a block and neighbours of a thread."""
        size = math.prod(anchor.spatial)
        inner = next((extent for extent in reversed(anchor.spatial) if extent > 1), 1)
        knobs = (
            Knob(
                "threads", tuple(t for t in (32, 64, 128, 256, 512) if t <= max(32, size) and t <= target.max_threads)
            ),
            Knob("vector", tuple(v for v in (1, 2, 4) if inner % v == 0)),
        )

        def derive(columns: Columns) -> Columns:
            count = size / (columns["threads"] * columns["vector"])
            return {"blocks": np.log2(count), "full": np.log2(np.minimum(1.0, count / target.threads))}

        def terms(columns: Columns, derived: Columns) -> Columns:
            return {
                "threads": np.abs(np.log2(columns["threads"] / 256)),
                "vector": np.abs(np.log2(columns["vector"] / (4 if size >= 1024 * target.threads else 1))),
                "idle": -2 * derived["full"],
            }

        return ranked(Space(OP, self.version, knobs, None, derive), terms, 4)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        inline_all(sch)
        threads, vector = config.integer("threads"), config.integer("vector")
        block = sch.get_sblock(anchor.block)
        last = sch.get_sblock(anchor.epilogue[-1]) if anchor.epilogue else block
        if anchor.reduction and not anchor.epilogue:
            last = sch.cache_write(block, 0, "local")  # the sum is kept in a register and stored once
        parts = bind_flat(sch, sch.get_loops(last), threads, vector)
        if anchor.reduction:
            _reduce(sch, block, parts[1], len(anchor.reduction), vector, math.prod(anchor.reduction) <= UNROLLED_TAPS)
        if vector > 1:
            sch.vectorize(parts[2])


def _reduce(sch: s_tir.Schedule, block: SBlockRV, thread: LoopRV, count: int, vector: int, unroll: bool) -> None:
    """The window's ``count`` reduction loops in one thread, around its neighbours."""
    sch.compute_at(block, thread, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    loops = sch.get_loops(block)
    own, reduced = loops[2:-count], loops[-count:]
    sch.reorder(*reduced, *own)
    for loop in reduced if unroll else ():
        sch.unroll(loop)
    # The first tap also sets the sum: TVM cannot take that apart where a block's last threads have nothing to do.
    if vector == 1:
        return
    try:
        sch.vectorize(own[-1])
    except s_tir.ScheduleError:  # TVM does not see through indices that a division into blocks made
        sch.unroll(own[-1])


def _size(block: s_tir.SBlock) -> int:
    return math.prod(extents(block, SPATIAL))
