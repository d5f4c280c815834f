"""Reductions that no other GPU template knows, such as products with few outputs: threads share each sum.

Stages that do not reduce are inlined where TVM can do that. Every other stage becomes a kernel of its own, except that
a stage of as many elements as the sums before it ends their kernel:

    for i, k: s[i] += f(x[i, k])           blockIdx.x, outputs of the block = i:
    for i: y[i] = g(s[i])          →           threads along k: partial s, folded by shuffles or in shared memory
    for j: z[j] = h(y, j)                      y
                                           blockIdx.x, threadIdx.x = j: z

Neighbouring threads are neighbours along k, or along i: whichever reads neighbouring elements of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    axis_loops,
    divisors,
    extents,
    parameter_shapes,
)
from schedules.templates.cuda.cuda_structure import bind_flat, inline_all, whole_warps
from schedules.templates.template import OneAlgorithm
from schedules.vocabulary.errors import ScheduleError

OP = "cuda_reduce"
THREADS = 128  # of a block of a stage that does not reduce
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class CudaReduceTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for functions with a reduction."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The longest reduction, if every stage is a nest of loops around one block."""
        sch = s_tir.Schedule(func)
        names = inline_all(sch)
        blocks = [sch.get(sch.get_sblock(name)) for name in names]
        if any(
            len(sch.get_loops(sch.get_sblock(name))) != len(sch.get(sch.get_sblock(name)).iter_vars) for name in names
        ):
            return None
        reducing = [block for block in blocks if extents(block, REDUCE)]
        if not reducing or not all(_has_end(blocks, number) for number in range(len(blocks))):
            return None
        longest = max(reducing, key=lambda block: math.prod((*extents(block, SPATIAL), *extents(block, REDUCE))))
        spatial, reduction = extents(longest, SPATIAL), extents(longest, REDUCE)
        return Anchor(longest.name_hint, spatial, reduction, (), (), parameter_shapes(func))

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Threads that share a sum, outputs of a block, and what neighbouring threads are neighbours along."""
        depth, outputs = math.prod(anchor.reduction), math.prod(anchor.spatial)
        knobs = (
            Knob("inner", tuple(size for size in SIZES if size < 2 * depth)),
            Knob("outer", tuple(size for size in SIZES if size < 2 * outputs)),
            Knob("across", (0, 1)),
        )

        def derive(columns: Columns) -> Columns:
            threads = columns["inner"] * columns["outer"]
            return {
                "threads": np.log2(threads),
                "steps": np.log2(np.ceil(depth / columns["inner"])),
                "busy": np.log2(np.minimum(1.0, np.ceil(outputs / columns["outer"]) / target.threads)),
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            # Weights of a product (k, n) are neighbours along its outputs; other operands along what is summed up.
            near = np.where(columns["across"] == 1, columns["inner"], columns["outer"])
            return {
                "threads": np.abs(derived["threads"] - np.log2(256)),
                "steps": np.maximum(0, derived["steps"] - 3),
                "idle": -0.5 * derived["busy"],
                "scattered": np.maximum(0, np.log2(8 / near)),
                "across": 0.5 * columns["across"] * (outputs >= 8),
            }

        return ranked(Space(OP, self.version, knobs, whole_warps(knobs, target), derive), terms, 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        names = inline_all(sch)
        while names:
            stage, *names = names
            if not extents(sch.get(sch.get_sblock(stage)), REDUCE):
                spatial, _ = axis_loops(sch, sch.get_sblock(stage))
                bind_flat(sch, spatial or [sch.add_unit_loop(sch.get_sblock(stage))], THREADS)
            elif names and _ends_with(sch, stage, names[0], config):
                names = names[1:]
            elif not _shared(sch, stage, "", config):
                outer = _recognised(extents(sch.get(sch.get_sblock(stage)), SPATIAL), config.integer("outer"))
                _share(sch, stage, "", Config(config.space, tuple({**dict(config.items), "outer": outer}.items())))


def _recognised(sizes: Sequence[int], most: int) -> int:
    """The largest part, up to ``most``, of axes fused to one from which TVM's schedules still recognise every axis.

    It is a divisor of the last axis, or all of it times a divisor of the axis before, and so on.
    """
    whole = 1
    for size in reversed(sizes):
        part = max(divisors(size, most // whole))
        whole *= part
        if part < size:
            break
    return whole


def _has_end(blocks: Sequence[s_tir.SBlock], number: int) -> bool:
    """Return whether a kernel can end with the stage ``number``: several sums at once need a stage that reads each.

    A stage that makes two results cannot be copied from registers to memory by a schedule.
    """
    block, after = blocks[number], blocks[number + 1 : number + 2]
    sizes = [math.prod(extents(member, SPATIAL)) for member in (block, *after)]
    return len(block.writes) == 1 or (len(set(sizes)) == 1 and any(not extents(member, REDUCE) for member in after))


def _ends_with(sch: s_tir.Schedule, stage: str, after: str, config: Config) -> bool:
    """Make ``after`` the end of the kernel of ``stage``, if it has one element for each of its sums."""
    block, last = sch.get_sblock(stage), sch.get_sblock(after)
    consumers = [sch.get(consumer).name_hint for consumer in sch.get_consumers(block)]
    sizes = [math.prod(extents(sch.get(member), SPATIAL)) for member in (block, last)]
    if consumers != [after] or extents(sch.get(last), REDUCE) or sizes[0] != sizes[1]:
        return False
    return _shared(sch, stage, after, config)  # else it is a kernel of its own


def _shared(sch: s_tir.Schedule, stage: str, after: str, config: Config) -> bool:
    """Do what ``_share`` does, or nothing where that does not apply."""
    try:
        _share(sch.copy(), stage, after, config)
    except (s_tir.ScheduleError, ScheduleError):
        return False
    _share(sch, stage, after, config)
    return True


def _share(sch: s_tir.Schedule, stage: str, after: str, config: Config) -> None:
    """Make one kernel of the sums of ``stage`` and of ``after``, which reads them element by element; "" for a copy.

    A sum is never stored by the stage that makes it: TVM forgets there that the last block has fewer outputs.
    """
    block = sch.get_sblock(stage)
    last = sch.get_sblock(after) if after else sch.cache_write(block, 0, "local")
    inner, outer, across = (config.integer(name) for name in ("inner", "outer", "across"))
    along_k, along_outputs = ("threadIdx.x", "threadIdx.y") if across else ("threadIdx.y", "threadIdx.x")
    spatial, rest = axis_loops(sch, last)
    spatial = list(spatial) or [sch.add_unit_loop(rest[0] if rest else last)]
    sch.reorder(*spatial, *rest)
    fused = sch.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    tile, row = sch.split(fused, [None, outer])
    sch.bind(tile, "blockIdx.x")
    sch.bind(row, along_outputs)
    sch.compute_at(block, row, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    reduced: Sequence[s_tir.schedule.LoopRV] = sch.get_loops(block)[-len(extents(sch.get(block), REDUCE)) :]
    _, thread = sch.split(sch.fuse(*reduced) if len(reduced) > 1 else reduced[0], [None, inner])
    sch.bind(thread, along_k)
