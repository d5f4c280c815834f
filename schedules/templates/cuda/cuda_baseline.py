"""The untuned form of a function on a GPU: one thread per output element, nothing shared, no knob.

    every stage that is left after inlining:   for i, j, k: …   →   blockIdx.x, threadIdx.x = i·j   for k: …

It is the untuned build and the reference of every candidate, so it takes the fewest and safest steps.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from schedules.target import Target
from schedules.templates.common.structure import axis_loops, blocks_in_order
from schedules.templates.cuda.cuda_recurrent_steps import untuned, walk_of
from schedules.templates.cuda.cuda_structure import bind_flat, inline_all
from schedules.vocabulary.errors import check

THREADS = 128


def cuda_baseline(func: tirx.PrimFunc, _target: Target) -> s_tir.Schedule:
    """``func`` as one kernel per stage.

    Raises:
        ScheduleError: if a stage is no nest of loops around one block, as sorting is written.
    """
    layer = walk_of(func)
    if layer is not None:
        return s_tir.Schedule(untuned(layer).with_attr("global_symbol", "main"))
    sch = s_tir.Schedule(func)
    for name in inline_all(sch):
        block = sch.get_sblock(name)
        # A single number has an axis, but no loop over it.
        spatial, rest = axis_loops(sch, block) if sch.get_loops(block) else ([], [])
        if not spatial:
            spatial = [sch.add_unit_loop(rest[0] if rest else block)]
        sch.reorder(*spatial, *rest)
        bind_flat(sch, spatial, THREADS)
    check(blocks_in_order(sch.mod["main"]), "the function computes nothing")
    return sch
