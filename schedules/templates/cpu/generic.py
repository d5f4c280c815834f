"""Everything that reduces and that no other template claims, through TVM's own CPU design space.

MetaSchedule's rules write *sketches*, lists of schedule steps in which some numbers are drawn (``sketches.py``). Those
numbers are our knobs, and applying a config is replaying its sketch with its own numbers:

    for i, j, k: c += a·b            parallel i0·j0·i1·j1:                 tile4x…: (i0, i1, i2, i3), (j0, j1, j2, j3)
    for i, j: d = f(c)        →          k0, i2, j2, k1, i3, vector j3     tile2x…: (k0, k1)
                                         f on a tile, or in a nest of      sketch, unroll, place
                                         its own

A knob that the chosen sketch does not draw is ignored by it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import lru_cache

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule

from schedules.config import Config
from schedules.errors import ScheduleError
from schedules.space import Space
from schedules.target import Target
from schedules.templates.common.sketches import UNROLL, Design, drawn
from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    OneAlgorithm,
    blocks_in_order,
    extents,
    parameter_shapes,
)
from schedules.templates.common.vector_math import vector_math

OP = "generic"
INNERMOST_LIMIT = 64  # elements of the innermost part of a tiling; MetaSchedule's own value for a CPU
JOBS_PER_THREAD = 16  # parallel jobs that a rule makes at most; MetaSchedule's own value for a CPU
VECTORS = 4  # an innermost axis up to this many vectors long becomes one vector operation
PROBE = Target(kind="llvm", isa="avx2", threads=2)
"""A common machine on which a function is tried before it is claimed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program(Anchor):
    """An anchor that keeps its function: the space is read off the program itself."""

    func: tirx.PrimFunc = field(compare=False, kw_only=True)


class GenericTemplate(OneAlgorithm):
    """Match, space and rewrite for functions that reduce in ways no other template knows."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Program | None:
        """The last block, if TVM's rules draw a number here and replaying the first guess succeeds."""
        program = reducing(func)
        return program if program is not None and _replays(tvm_ffi.StructuralKey(func)) else None

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with exp and its like as arithmetic; the sketches' steps apply to it all the same."""
        return vector_math(func)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Which sketch, and every number that the sketches draw."""
        assert isinstance(anchor, Program)
        return design(anchor.func, target).space(OP, self.version)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Replay the config's sketch on ``sch`` with its numbers, then TVM's own finishing steps."""
        assert isinstance(anchor, Program)
        design(anchor.func, target).apply(sch, config)


def reducing(func: tirx.PrimFunc) -> Program | None:
    """``func`` around its last block, if any of its blocks reduces."""
    blocks = blocks_in_order(func)
    if not any(extents(block, REDUCE) for block in blocks):
        return None
    return Program(
        block=blocks[-1].name_hint,
        spatial=extents(blocks[-1], SPATIAL),
        reduction=extents(blocks[-1], REDUCE),
        epilogue=(),
        prologue=tuple(block.name_hint for block in blocks[:-1]),
        shapes=parameter_shapes(func),
        func=func,
    )


def design(func: tirx.PrimFunc, target: Target) -> Design:
    """Every sketch of ``func`` for ``target``: the same in every process, and remembered, since each config asks."""
    return _design(tvm_ffi.StructuralKey(func), target)


@lru_cache(maxsize=64)
def _design(func: tvm_ffi.StructuralKey, target: Target) -> Design:
    lanes = target.lanes()
    native = tvm.target.Target({"kind": "llvm", "num-cores": target.threads})
    # Unrolled exponentials compile for seconds.
    unroll = 0 if not tvm_ffi.structural_equal(vector_math(func.key), func.key) else 1
    return drawn(func.key, native, _rules(lanes), _finishes(), lanes, unroll)


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


@lru_cache(maxsize=256)
def _replays(func: tvm_ffi.StructuralKey) -> bool:
    """Whether the first guess can be applied; a function on which it cannot is left to the baseline."""
    try:
        found = design(func.key, PROBE)
        if not found.usable or not any(found.samples):
            return False
        first = found.space(OP, GenericTemplate.version).initial[0]
        found.apply(s_tir.Schedule(vector_math(func.key)), first)
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError) as error:
        logger.debug("the generic space does not fit a function: %s", error)
        return False
    return True
