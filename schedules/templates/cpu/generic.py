"""Everything that reduces and that no other template claims, through TVM's own CPU design space.

The numbers that the rules draw are knobs (``sketch_template``):

    for i, j, k: c += a·b            parallel i0·j0·i1·j1:                 tile4x…: (i0, i1, i2, i3), (j0, j1, j2, j3)
    for i, j: d = f(c)        →          k0, i2, j2, k1, i3, vector j3     tile2x…: (k0, k1)
                                         f on a tile, or in a nest of      sketch, unroll, place
                                         its own
"""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule

from schedules.target import Target
from schedules.templates.common.sketch_template import Program, SketchTemplate
from schedules.templates.common.sketches import UNROLL, Design, drawn
from schedules.templates.common.structure import blocks_in_order
from schedules.templates.common.vector_math import vector_math

OP = "generic"
INNERMOST_LIMIT = 64  # elements of the innermost part of a tiling; MetaSchedule's own value for a CPU
JOBS_PER_THREAD = 16  # parallel jobs that a rule makes at most; MetaSchedule's own value for a CPU
LEAST = 1024
"""Iterations of all stages below which a function is left as it is before tuning. The rules make parallel jobs of
whatever they get, and waking a thread takes 0.5 to 1.2 µs, in which one thread does as many: a sum of 20 numbers took
0.8 µs (Zen 4)."""
VECTORS = 4  # an innermost axis up to this many vectors long becomes one vector operation


class GenericTemplate(SketchTemplate):
    """Match, space and rewrite for functions that reduce in ways no other template knows."""

    name = OP
    version = 1
    probe = Target(kind="llvm", isa="avx2", threads=2)

    def match(self, func: tirx.PrimFunc) -> Program | None:
        """Implement ``SketchTemplate.match``, of functions that are worth it."""
        work = sum(math.prod(int(axis.dom.extent) for axis in block.iter_vars) for block in blocks_in_order(func))
        return None if work < LEAST else super().match(func)

    def expand(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """``func`` with exp and its like as arithmetic; the sketches' steps apply to it all the same."""
        return vector_math(func)

    def draw(self, func: tirx.PrimFunc, target: Target) -> Design:
        """Return the design that MetaSchedule's rules for a CPU write for ``func``."""
        lanes = target.lanes()
        native = tvm.target.Target({"kind": "llvm", "num-cores": target.threads})
        # Unrolled exponentials compile for seconds.
        unroll = 0 if not tvm_ffi.structural_equal(vector_math(func), func) else 1
        return drawn(func, native, _rules(lanes), _finishes(), lanes, unroll)


def _rules(lanes: int) -> list[meta_schedule.ScheduleRule]:
    """MetaSchedule's rules for a CPU, with our limits."""
    rules = meta_schedule.schedule_rule
    return [
        rules.InlineConstantScalars(),
        rules.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        rules.AddRFactor(JOBS_PER_THREAD, INNERMOST_LIMIT),
        rules.MultiLevelTiling(
            "SSRSRS",
            max_innermost_factor=INNERMOST_LIMIT,
            reuse_write=rules.ReuseType(req="may", levels=[1, 2], scope="global"),
        ),
        rules.ParallelizeVectorizeUnroll(JOBS_PER_THREAD, VECTORS * lanes, list(UNROLL), unroll_explicit=True),
        rules.RandomComputeLocation(),
    ]


def _finishes() -> list[meta_schedule.Postproc]:
    steps = meta_schedule.postproc
    return [steps.DisallowDynamicLoop(), steps.RewriteParallelVectorizeUnroll(), steps.RewriteReductionBlock()]
