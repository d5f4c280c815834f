"""Which functions are computed row by row, and what a row is there.

A row is what one element of a reduction's result depends on: a softmax over the last axis of (2, 5, 48) has ten rows of
48. Reductions of a function that share their rows can be computed together while a row is in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    about_last,
    blocks_in_order,
    extents,
    nodes_below,
    parameter_shapes,
    renamed,
)

COMBINATIONS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
"""How a reduction may combine elements if a part of it is to be reduced apart."""

MOST_ALONE = 16 * 1024
"""Elements of a single row beyond which it is left to templates that share one reduction among threads. Heuristic, not
measured."""

LEAST_VECTOR = 8
"""Elements of the contiguous axis from which rows beside those of other axes are worth a vector. Heuristic, not
measured."""


@dataclass(frozen=True)
class Rows(Anchor):
    """The facts that the rewrite needs beyond the last block's extents.

    Attributes:
        across: whether the reduced axis is the contiguous one.
        kept: positions of the last block's axes that count rows, in order; without the contiguous one if it is kept.
        length: elements that lie one after the other in the direction of a vector.
        splits: whether a part of ``length`` that no vector fills can be reduced apart.
        again: index of the parameter whose elements several stages read, -1 if there is none.
    """

    across: bool = field(kw_only=True)
    kept: tuple[int, ...] = field(kw_only=True)
    length: int = field(kw_only=True)
    splits: bool = field(kw_only=True)
    again: int = field(kw_only=True)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.spatial[axis] for axis in self.kept)

    @property
    def tiled(self) -> int:
        """Position of the row axis that tiles are cut from, -1 if there is none."""
        return max((axis for axis in self.kept if self.spatial[axis] > 1), default=-1)


def rows_of(func: tirx.PrimFunc) -> Rows | None:
    """The rows of ``func``, around its last block; None if not all of its stages can be computed row by row."""
    blocks = blocks_in_order(func)
    if any("tune.anchor" in block.annotations for block in blocks) or not any(map(reduces, blocks)):
        return None
    sch = s_tir.Schedule(func)
    try:
        inline_cheap(sch)
    except s_tir.ScheduleError:
        return None
    return _analyse(sch.mod["main"])


def reduces(block: s_tir.SBlock) -> bool:
    """Return whether ``block`` has a reduction axis."""
    return bool(extents(block, REDUCE))


def inline_cheap(sch: s_tir.Schedule) -> None:
    """Inline every stage that does not reduce, unless that makes a call twice."""
    for block in blocks_in_order(sch.mod["main"])[:-1]:
        stage = sch.get_sblock(block.name_hint)
        if not reduces(block) and (len(sch.get_consumers(stage)) == 1 or not nodes_below(sch.get(stage).body, Call)):
            sch.compute_inline(stage)


def _analyse(func: tirx.PrimFunc) -> Rows | None:
    """Rows of a function whose cheap stages are inlined, or None where one row needs another's results."""
    blocks = blocks_in_order(func)
    last = blocks[-1]
    reducers = [block for block in blocks if reduces(block)]
    directions = {_direction(block) for block in reducers}
    direction = directions.pop()
    reduction = extents(reducers[0], REDUCE)
    if directions or direction is None or any(extents(block, REDUCE) != reduction for block in reducers):
        return None
    across, length = direction
    spatial = extents(last, SPATIAL)
    axes = range(len(spatial) if across else len(spatial) - 1)
    counted = _counted_axes(last, reducers)
    if counted is None or (not across and (spatial[-1] != length or len(spatial) - 1 not in counted)):
        return None
    leading = next((axis for axis in axes if axis not in counted and spatial[axis] > 1), len(axes))
    behind = [axis for axis in axes[leading:] if axis in counted and spatial[axis] > 1]
    if behind and length < LEAST_VECTOR:
        return None
    kept = (*axes[:leading], *behind)
    rows = math.prod(spatial[axis] for axis in kept)
    inner = math.prod(spatial) // rows
    if across and ((inner > 1 and inner % length) or not kept or (rows == 1 and math.prod(reduction) > MOST_ALONE)):
        return None  # the last case is one long row: only splitting the reduction keeps several threads busy
    return Rows(
        **{**vars(about_last(blocks, parameter_shapes(func))), "reduction": reduction},
        across=across,
        kept=kept,
        length=length,
        splits=across and all(_can_split(block) for block in reducers),
        again=_read_again(func, blocks, rows * (1 if across else length) * math.prod(reduction)),
    )


def _read_again(func: tirx.PrimFunc, blocks: Sequence[s_tir.SBlock], size: int) -> int:
    """The first parameter of ``size`` elements that several of ``blocks`` read; -1 if there is none."""
    for index, param in enumerate(func.params):
        readers = sum(any(region.source.same_as(param) for region in block.reads) for block in blocks)
        if readers > 1 and math.prod(int(extent) for extent in param.ty.shape) == size:
            return index
    return -1


def _direction(block: s_tir.SBlock) -> tuple[bool, int] | None:
    """Return whether ``block`` reduces across its contiguous axis, and that axis's extent; None if it does neither."""
    if not isinstance(block.body, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return None
    reduced = [axis for axis in block.iter_vars if axis.iter_type == REDUCE]
    data = [load for load in nodes_below(block.body, TensorLoad) if not load.source.same_as(block.body.buffer)]
    if not data:
        return None
    widest = max(data, key=lambda load: _named(load, block))
    if not widest.indices:
        return None  # a sum of one number
    named = nodes_below(list(widest.indices), tirx.Var)
    if any(axis.var not in named for axis in block.iter_vars if int(axis.dom.extent) > 1):
        return None  # a product such as a matmul or convolution: an operand is read again for another output
    indices = [_without_unit_axes(index, block) for index in widest.indices]
    if not indices[-1].same_as(reduced[-1].var):
        kept = [axis for axis in block.iter_vars if axis.iter_type == SPATIAL and indices[-1].same_as(axis.var)]
        return (False, int(kept[0].dom.extent)) if kept else None
    length = 1
    for index, axis, size in zip(reversed(indices), reversed(reduced), reversed(widest.source.ty.shape), strict=False):
        if not index.same_as(axis.var):
            break
        length *= int(axis.dom.extent)
        if int(axis.dom.extent) != int(size):
            break  # only part of this axis is read: the next one out is not contiguous with it
    return True, length


def _named(load: TensorLoad, block: s_tir.SBlock) -> tuple[int, int]:
    """Count the axes of ``block`` that an access names, and its own: a mean beside the data has all."""
    variables = nodes_below(list(load.indices), tirx.Var)
    return sum(axis.var in variables for axis in block.iter_vars if int(axis.dom.extent) > 1), len(load.indices)


def _without_unit_axes(index: tirx.Expr, block: s_tir.SBlock) -> tirx.Expr:
    zeros = {axis.var: tirx.const(0, axis.var.ty.dtype) for axis in block.iter_vars if int(axis.dom.extent) == 1}
    return Analyzer().simplify(renamed(index, zeros))


def _counted_axes(last: s_tir.SBlock, reducers: Sequence[s_tir.SBlock]) -> set[int] | None:
    """Return the spatial axes of ``last`` that index what was reduced, and so tell rows apart; None if computed."""
    axes = [axis.var for axis in last.iter_vars if axis.iter_type == SPATIAL]
    if any(last.same_as(block) for block in reducers):
        return set(range(len(axes)))
    results = [block.body.buffer for block in reducers]
    loads = [
        load for load in nodes_below(last.body, TensorLoad) if any(load.source.same_as(result) for result in results)
    ]
    counted: set[int] = set()
    for index in (index for load in loads for index in load.indices):
        position = next((at for at, var in enumerate(axes) if index.same_as(var)), None)
        if position is None and not isinstance(index, tirx.IntImm):
            return None
        counted |= {position} if position is not None else set()
    return counted or None


def _can_split(block: s_tir.SBlock) -> bool:
    """Return whether ``block`` reduces over one axis by ``s = s + f`` or another of ``COMBINATIONS``."""
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    if len(extents(block, REDUCE)) != 1 or not isinstance(value, COMBINATIONS) or block.init is None:
        return False
    return isinstance(value.a, TensorLoad) and value.a.source.same_as(block.body.buffer)
