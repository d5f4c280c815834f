"""The untuned form of a function: every block parallel over its outer axes, vectors over its inner one.

No tile, no fusion of stages, no knob. It is the untuned build, and the reference against which every candidate's
numbers are checked, so it takes the fewest and safest steps that make it fast enough to run once.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from schedules.target import Target
from schedules.templates.by_hand import attention, plain_attention, recurrent, scatter
from schedules.templates.by_hand.recurrent_steps import SCHEDULED
from schedules.templates.common.structure import AT_READER, ITERATIONS, REDUCE, axis_loops, blocks_in_order
from schedules.templates.common.vector_math import vector_math
from schedules.vocabulary.errors import ScheduleError

VECTOR_LIMIT = 64  # an innermost axis longer than this is split before it becomes a vector

LEAST_PARALLEL = 1024
"""Iterations of a block below which one thread runs it, which takes it no longer than waking another: 0.5 to 1.2 µs."""


def baseline(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule:
    """``func`` with each block parallel and vectorised where that is legal.

    A function that is scheduled by hand is made for the target's threads.

    Returns:
        A schedule of a module with ``func`` as ``main``; a block that cannot be rewritten stays as it was.
    """
    if func.attrs and SCHEDULED in func.attrs:
        label = str(func.attrs[SCHEDULED])
        if label.startswith(plain_attention.LABEL):
            return s_tir.Schedule(vector_math(plain_attention.for_target(func, target)))
        families = {attention.LABEL: attention.for_threads, scatter.LABEL: scatter.for_threads}
        for_threads = next((make for begin, make in families.items() if label.startswith(begin)), recurrent.for_threads)
        return s_tir.Schedule(vector_math(for_threads(func, target.threads)))
    sch = s_tir.Schedule(func)
    blocks = blocks_in_order(func)
    for block in blocks:
        trial = sch.copy()
        try:
            if AT_READER not in block.annotations:
                _schedule_block(trial, block.name_hint, target.lanes())
        except (s_tir.ScheduleError, ScheduleError, ValueError):
            continue  # legal as it stands, only slower
        sch = trial
    for block in blocks:
        if AT_READER in block.annotations:
            _sum_at_reader(sch, block.name_hint)
    return sch


def _sum_at_reader(sch: s_tir.Schedule, name: str) -> None:
    """Sums within the loop that adds them up: all of them at once may take more memory than there is."""
    block = sch.get_sblock(name)
    around = sch.get_loops(sch.get_consumers(block)[0])
    sch.compute_at(block, around[-2])
    count = sum(axis.iter_type == REDUCE for axis in sch.get(block).iter_vars)
    inner, *reduce = sch.get_loops(block)[-1 - count :]
    sch.reorder(*reduce, inner)
    sch.vectorize(inner)
    sch.vectorize(sch.get_loops(sch.decompose_reduction(block, reduce[0]))[-1])


def _schedule_block(sch: s_tir.Schedule, name: str, lanes: int) -> None:
    block = sch.get_sblock(name)
    spatial, reduce = axis_loops(sch, block)
    if not spatial or any(int(axis.dom.extent) == 0 for axis in sch.get(block).iter_vars):
        return
    inner = spatial[-1]
    extent = int(sch.get(inner).extent)
    outer = spatial[:-1]
    exact = extent <= VECTOR_LIMIT or extent % lanes == 0
    if extent > VECTOR_LIMIT:
        outer_part, inner = sch.split(inner, [None, lanes])
        outer.append(outer_part)
    sch.reorder(*outer, *reduce, inner)
    iterations = math.prod(int(axis.dom.extent) for axis in sch.get(block).iter_vars)
    if outer and int(sch.get(block).annotations.get(ITERATIONS, iterations)) >= LEAST_PARALLEL:
        sch.parallel(sch.fuse(*outer))
    if exact and min(extent, VECTOR_LIMIT) > 1:
        sch.vectorize(inner)
    if reduce:
        init = sch.decompose_reduction(block, reduce[0])
        if exact and min(extent, VECTOR_LIMIT) > 1:
            sch.vectorize(sch.get_loops(init)[-1])
