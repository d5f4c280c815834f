"""Nest → schedule: the loops of a ``Nest`` as TVM's steps, for LLVM to compile."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.target import Target
from schedules.templates.common.prefetch import Panel, prefetch_ahead, prefetch_next
from schedules.templates.common.register_tile import spread, unroll_tile
from schedules.templates.common.structure import Anchor, inline_epilogue, parallel_outer, places
from schedules.templates.common.windows import touches
from schedules.templates.instructions.dots import use_dot
from schedules.templates.instructions.row_pairs import apart, use_pairs
from schedules.templates.nests.loop_nest import IN_JOBS, Loop, Nest, Role

Handles = list[tuple[Loop, LoopRV]]
"""The loops of a nest with their handles in a schedule."""


def to_tir(sch: s_tir.Schedule, nest: Nest, target: Target) -> None:
    """Schedule the block of ``nest``, its padding and its epilogue in place."""
    block, form = sch.get_sblock(nest.anchor.block), nest.anchor.form
    tail, rows = _buffers(sch, nest, block)
    loops = _split(sch, nest, block)
    first_sum = next(at for at, (loop, _) in enumerate(loops) if loop.axis in nest.summed)
    around = loops[first_sum - 1][1]
    for following in (rows, tail):
        if following is not None:
            sch.reverse_compute_at(following, around, preserve_unit_loops=True)
    job = sch.fuse(*(handle for loop, handle in loops if loop.role is Role.JOB))
    sch.parallel(job)
    _pad(sch, nest, job)
    for loop, handle in loops:
        # Unrolled, a narrower last tile is separate code, whose number of columns is a constant.
        if loop.role in (Role.STEP, Role.REGISTER) or (loop.role is Role.TILE and loop.axis in nest.ragged):
            sch.unroll(handle)
    lanes = next(handle for loop, handle in loops if loop.role is Role.LANES)
    if form is None:
        sch.vectorize(lanes)
    tile = len(nest.of(Role.REGISTER, Role.PAIR))
    unroll_tile(sch, sch.decompose_reduction(block, loops[first_sum][1]), 1 + tile)
    if tail is not None:
        _spread_tail(sch, nest, tail)
    if int(nest.anchor.geometry.get("span", 1)) > 1:
        _skip_untouched(sch, block, loops, nest.anchor)
    elif nest.prefetches and (nest.anchor.epilogue or nest.own_sums):
        _prefetch(sch, nest, job, loops)
    if form is not None and rows is not None:
        _put_in_rows(sch, nest, rows)
        pair = next(handle for loop, handle in loops if loop.role is Role.PAIR)
        together = not nest.has_columns and nest.anchor.shapes[nest.anchor.data][-1] == form.depth
        use_pairs(sch, pair, form, target, together)
    elif form is not None:
        use_dot(sch, lanes, form, target)


def _buffers(sch: s_tir.Schedule, nest: Nest, block: SBlockRV) -> tuple[SBlockRV | None, SBlockRV | None]:
    """Return the block that writes results and the one that puts the sums of pairs in rows; None for those not needed.

    Both rows of a pair lie together: if lanes are part of an axis, sums and rows are stored as (n/b, m, b).
    """
    pairs, lanes = bool(nest.of(Role.PAIR)), nest.lanes
    tail = inline_epilogue(sch, nest.anchor)
    if tail is None and (nest.own_sums or pairs):
        tail = sch.cache_write(block, 0, "global")
    rows = sch.cache_write(block, 0, "global") if pairs else None
    if rows is not None and nest.has_columns:
        for stage in (block, rows):
            sch.transform_layout(stage, ("write", 0), lambda m, n: (n // lanes, m, n % lanes))
    return tail, rows


def _split(sch: s_tir.Schedule, nest: Nest, block: SBlockRV) -> Handles:
    """Split the block's loops and put them in the order of ``nest``."""
    handles: dict[int, LoopRV] = {}
    for axis, whole in zip(nest.axes, sch.get_loops(block), strict=True):
        own = [at for at, loop in enumerate(nest.loops) if loop.axis == axis]
        parts = [None, *(nest.loops[at].extent for at in own[1:])]
        handles |= zip(own, sch.split(whole, parts) if len(own) > 1 else [whole], strict=True)
    loops = [(loop, handles[at]) for at, loop in enumerate(nest.loops)]
    sch.reorder(*(handle for _, handle in loops))
    return loops


def _spread_tail(sch: s_tir.Schedule, nest: Nest, tail: SBlockRV) -> None:
    """Unroll the loops over a tile's results and vectorise the last one; after chunks, only the last one."""
    *outer, last = sch.get_loops(tail)
    if nest.has_columns:
        own: list[LoopRV] = sch.split(last, [None, int(nest.vectors), nest.lanes])[1:]
    else:
        own = [last]
    tile = {loop.axis for loop in nest.of(Role.REGISTER)} - {nest.of(Role.LANES)[0].axis}
    spread(sch, [*(outer[len(outer) - len(tile) :] if nest.chunks == 1 else []), *own])


def _pad(sch: s_tir.Schedule, nest: Nest, job: LoopRV) -> None:
    """Pad the rows of each ``job`` inside it, or all rows before the jobs."""
    if not nest.padding:
        return
    pad = sch.get_sblock("pad")
    if nest.padding == IN_JOBS:
        sch.compute_at(pad, job, preserve_unit_loops=True)
    else:
        parallel_outer(sch, pad, 3)
    last = sch.get_loops(pad)[-1]
    if not nest.anchor.plain:
        sch.vectorize(last)


def _prefetch(sch: s_tir.Schedule, nest: Nest, job: LoopRV, loops: Handles) -> None:
    """Prefetch the weights of the next panel, or of this panel's next chunk, while the current tiles run."""
    if nest.bytes_ahead:
        _prefetch_ahead(sch, nest, job, loops)
        return
    jobs, number = nest.of(Role.JOB), sch.get(job).loop_var
    at = next(at for at, loop in enumerate(jobs) if loop.axis == nest.weight_axis)
    inside = nest.jobs_sharing_weights
    panel = number // inside if at < len(jobs) - 1 else number
    panel = panel % jobs[at].extent if at else panel
    tiles = [(loop, sch.get(handle).loop_var) for loop, handle in loops if loop.role is Role.TILE]
    (_, tile), *rest = tiles
    for loop, var in rest:
        tile = tile * loop.extent + var
    asking = [(loop, handle) for loop, handle in loops if loop.role in (Role.CHUNK, Role.SUM)]
    vectors = int(nest.vectors)
    starts: list[tirx.Expr] = [(panel + 1) * nest.panel]
    if nest.chunks > 1:
        # Behind a chunk of a block lies its next one, and behind the last the next block.
        (chunk, handle), *asking = asking
        depth, terms = nest.size(chunk.axis), nest.panel * nest.chunks // (vectors * nest.size(chunk.axis))
        step = (sch.get(handle).loop_var + 1) * (depth // nest.chunks)
        starts = [((panel * vectors + block) * depth + step) * terms for block in range(vectors)]
    elif at < len(jobs) - 1:
        tile = number % inside * int(nest.extent(Role.TILE)) + tile
    following = Panel(nest.panel, starts, tile, nest.tiles)
    prefetch_next(sch, nest.anchor.weight, nest.lanes, [handle for _, handle in asking], following)


def _prefetch_ahead(sch: s_tir.Schedule, nest: Nest, job: LoopRV, loops: Handles) -> None:
    """Prefetch a later step's weights in every step of a vector × matrix product; at a panel's end, the next job's."""
    (chunk, _), (steps, step) = ((loop, handle) for loop, handle in loops if loop.role in (Role.CHUNK, Role.SUM))
    first, at = (sch.get(handle).loop_var for loop, handle in loops if loop.role in (Role.CHUNK, Role.SUM))
    depth, unrolled, vectors = nest.size(steps.axis), int(nest.extent(Role.STEP)), int(nest.vectors)
    later = first * (depth // chunk.extent) + at * unrolled + nest.bytes_ahead // (4 * nest.lanes)
    zero = tirx.const(0, later.ty.dtype)
    later += tirx.Select(later < depth, zero, tirx.const((vectors - 1) * depth, later.ty.dtype))
    for panel in range(vectors):
        start = (sch.get(job).loop_var * vectors + panel) * depth + later
        prefetch_ahead(sch, nest.anchor.weight, nest.lanes, step, [start + number for number in range(unrolled)])


def _put_in_rows(sch: s_tir.Schedule, nest: Nest, rows: SBlockRV) -> None:
    """Schedule the block ``rows``, which separates the two rows of the sums of pairs."""
    *outer, row, column = sch.get_loops(rows)
    if nest.has_columns:
        (row, two), (column, lane) = sch.split(row, [None, 2]), sch.split(column, [None, nest.lanes])
        sch.reorder(row, column, two, lane)
        written_out = [row, column]
    else:
        written_out = [*outer[-2:], sch.split(row, [None, 2])[0]]
    for loop in written_out:
        sch.unroll(loop)
    apart(sch, rows)


def _skip_untouched(sch: s_tir.Schedule, block: SBlockRV, loops: Handles, anchor: Anchor) -> None:
    """Skip the groups that a block of output channels does not overlap: they would add zeros only."""
    touched = next(handle for loop, handle in loops if loop.role is Role.SUM)
    inner = next(handle for loop, handle in loops if (loop.role, loop.axis) == (Role.REGISTER, "o"))
    loop = sch.get(touched)
    alone = sch.get(inner).loop_var  # one block a tile: its loop is inside, and stands at zero
    realize = next(p.realize for p in places(sch.mod["main"]) if p.realize.block.same_as(sch.get(block)))
    number = tvm_ffi.structural_map(
        realize.iter_values[1],
        (tirx.Var, lambda var: tirx.const(0, var.ty.dtype) if var.same_as(alone) else var),
    )
    per_group = int(anchor.geometry["outputs"])
    condition = touches(number, loop.loop_var, per_group, anchor.groups, anchor.spatial[-1])
    body = tirx.IfThenElse(condition, loop.body, None)
    guarded = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations)
    sch.state.replace(sch.get_sref(touched), guarded, {})
