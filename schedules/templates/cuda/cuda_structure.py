"""Common code of GPU templates: inlining, thread bindings, and the limits of a launch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.space import Columns, Knob
from schedules.target import Target
from schedules.templates.common.structure import REDUCE, blocks_in_order, extents, renamed

Derive = Callable[[Columns], Mapping[str, NDArray[np.float64]]]

WARP = 32
STATIC_BYTES = 48 * 1024
"""Shared memory of a block that needs no leave of the driver, on every device."""
PASSES = MappingProxyType({"tirx.use_async_copy": True, "tirx.disable_storage_rewrite": True})
"""TVM's options for GPU kernels. Copies to shared memory that a schedule marks as asynchronous become ``cp.async``; the
rewriting of storage would hide their vectors from that step, and the CUDA compiler shares registers by itself."""

UNROLL_STEPS = 512
"""Loops of up to so many steps in all get ``#pragma unroll``: registers cannot be indexed, so tiles must be."""


def derived(numbers: Callable[[Columns], Mapping[str, NDArray[np.float64]]]) -> Derive:
    """Return a cost model's features of a config besides its knobs: the logarithms of ``numbers``."""

    def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
        return {name: np.log2(np.maximum(value, 1e-6)) for name, value in numbers(columns).items()}

    return derive


def whole_warps(knobs: Sequence[Knob], target: Target) -> Callable[[Columns], NDArray[np.bool_]]:
    """Return which configs have a warp at least, where ``knobs``, of inner and outer threads, can make one."""
    few = min(WARP, knobs[0].numeric.max() * knobs[1].numeric.max())

    def fits(columns: Columns) -> NDArray[np.bool_]:
        threads = columns["inner"] * columns["outer"]
        legal: NDArray[np.bool_] = (threads >= few) & (threads <= target.max_threads)
        return legal

    return fits


def named(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with buffers whose names are C's, and tell them apart: they become parameters in CUDA source.

    Models name inputs as they like (``gpu_0/data_0``), and log-softmax calls two buffers ``compute``. C's own words
    need no care: TVM appends ``_ptr`` to every name that becomes a parameter.
    """
    taken: set[str] = set()
    names: dict[Var, Var] = {}
    for buffer in (*func.params, *func.body.block.alloc_buffers):
        plain = re.sub(r"\W|^(?=\d)", "_", str(buffer.name), flags=re.ASCII)
        name, count = plain, 1
        while name in taken:
            count += 1
            name = f"{plain}_{count}"
        taken.add(name)
        if name != buffer.name:
            names[buffer] = Var(name, buffer.ty)
    return renamed(func, names)


def inline_all(sch: s_tir.Schedule) -> list[str]:
    """Inline every stage that does not reduce; the names of the blocks that are left, in order.

    A stage that cannot go into its consumers (the last one, or one that a consumer reads in a way that TVM does not
    inline) goes into its producer where that is possible, and stays otherwise.
    """
    for block in blocks_in_order(sch.mod["main"])[:-1]:
        if extents(block, REDUCE):
            continue
        try:
            sch.compute_inline(sch.get_sblock(block.name_hint))
        except s_tir.ScheduleError:
            continue
    return [block.name_hint for block in blocks_in_order(sch.mod["main"])]


def bind_flat(sch: s_tir.Schedule, loops: Sequence[LoopRV], threads: int, vector: int = 1) -> list[LoopRV]:
    """Fuse ``loops``, and split them over blocks of ``threads`` threads with ``vector`` neighbours each.

    Neighbours are taken from the innermost loop that has any before the rest is fused: TVM then sees that what a thread
    keeps of a stage is ``vector`` elements, and not any of a row, which would be an array in local memory.

    Args:
        vector: divides the extent of that loop.

    Returns:
        The loops over blocks, threads and, if ``vector`` is more than 1, neighbours.
    """
    outer, inner = list(loops), None
    if vector > 1:
        at = max(index for index, loop in enumerate(outer) if int(sch.get(loop).extent) > 1)
        outer[at], inner = sch.split(outer[at], [None, vector])
        sch.reorder(*outer, inner)
    fused = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    block, thread = sch.split(fused, [None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return [block, thread] if inner is None else [block, thread, inner]


def fetch(sch: s_tir.Schedule, stage: SBlockRV, axes: int, threads: Sequence[tuple[str, int]], vector: int) -> None:
    """All threads of a block compute the tile of ``stage`` together, each ``vector`` neighbours at a time.

    Args:
        axes: how many of the innermost loops of the stage make its tile.
        threads: thread axes, outermost first, with their extents.
    """
    fused = sch.fuse(*sch.get_loops(stage)[-axes:])
    count = math.prod(extent for _, extent in threads)
    total = int(sch.get(fused).extent)
    vector = vector if total % (vector * count) == 0 or total >= 2 * vector * count else 1
    parts = sch.split(fused, [None, *(extent for _, extent in threads), vector])
    for loop, (axis, _) in zip(parts[1:-1], threads, strict=True):
        sch.bind(loop, axis)
    if vector > 1:
        sch.vectorize(parts[-1])


def unroll_below(sch: s_tir.Schedule, loop: LoopRV) -> None:
    """Ask the CUDA compiler to unroll all short loops below ``loop``."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", UNROLL_STEPS)
    sch.annotate(loop, "pragma_unroll_explicit", 0)
