"""Reductions over trailing axes, with everything elementwise around them: softmax, norms, means, sums, maxima.

Two kinds, by what is contiguous in the data that is reduced.

``across``: the reduced axis itself, as in softmax. V partial results are kept, one per vector element, and folded at
the end of a row: vector by vector, then four by four, then one by one. With s for what is reduced, e for what is not:

    for r, k: s1[r] += f(x[r, k])            parallel r:
    for r, k: e[r, k] = g(x, s1[r])              for k/V: vector V: p[v] += f(x[r, k])
    for r, k: s2[r] += e[r, k]        →          fold p into s1
    for r, k: y[r, k] = h(e, s2[r])              for k/V: vector V: e[k] = g(x, s1)
                                                 …

``along``: an axis that is kept, as the channel block b of (n, C/b, h, w, b) averaged over h, w. Vectors run along it,
and a tile of t rows is reduced together, which gives enough independent sums to hide the latency of one:

    for r, b, k: s[r, b] += x[r, k, b]       parallel r/t, b/V:
    for r, b: y[r, b] = h(s[r, b])    →          for k: unroll t: vector V: s[t, v] += x[r, k, b]
                                                 unroll t: vector V: y = h(s)

Before that, stages that do not reduce are inlined where this repeats no costly function. Calls of exp and its like
become arithmetic (``vector_math``), or each vector of them would fall apart into calls of the C library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    OneAlgorithm,
    balance,
    blocks_in_order,
    divisors,
    extents,
    guided,
    nodes_below,
    parameter_shapes,
)
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.row_tails import can_split, split_tails

OP = "rows"
FREE_CALLS = frozenset({"tirx.if_then_else", "tirx.likely"})
"""Calls that cost nothing; a stage with any other is computed once."""
UNROLL = 16  # a reduction loop this short is unrolled: folds, mostly
FOLD = 4  # partial results folded one by one at the end
SMALL = 16 * 1024  # elements below which waking the other threads may cost more than they save


@dataclass(frozen=True)
class Rows(Anchor):
    """What the rewrite needs beyond the last block's extents.

    Attributes:
        across: whether the reduced axis is the contiguous one.
        leading: how many of the last block's axes count rows.
        length: elements that lie one after the other in the direction of a vector.
        splits: whether a part of ``length`` that no vector fills can be reduced apart.
    """

    across: bool = field(kw_only=True)
    leading: int = field(kw_only=True)
    length: int = field(kw_only=True)
    splits: bool = field(kw_only=True)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.spatial[: self.leading])

    @property
    def tiled(self) -> int:
        """Position of the row axis that tiles are cut from, -1 if there is none."""
        return max((axis for axis in range(self.leading) if self.spatial[axis] > 1), default=-1)


class RowsTemplate(OneAlgorithm):
    """Match, space and rewrite for reductions over trailing axes."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Rows | None:
        """The last block, if all stages can be computed row by row."""
        blocks = blocks_in_order(func)
        if any("tune.anchor" in block.annotations for block in blocks) or not any(_reduces(b) for b in blocks):
            return None
        sch = s_tir.Schedule(func)
        try:
            _inline_cheap(sch)
        except s_tir.ScheduleError:
            return None
        return _analyse(blocks_in_order(sch.mod["main"]), parameter_shapes(func))

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with cheap stages inlined, ragged ends of rows apart, and exp and its like as arithmetic."""
        assert isinstance(anchor, Rows)
        sch = s_tir.Schedule(func)
        _inline_cheap(sch)
        prepared = _without_division(sch.mod["main"])
        if anchor.splits and anchor.length % config.integer("vector"):
            prepared = split_tails(prepared, config.integer("vector"))
        return vector_math(prepared)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Vector length, rows reduced together, and whether other threads are woken."""
        assert isinstance(anchor, Rows)
        lanes = target.lanes()
        tiled = 1 if anchor.across or anchor.tiled < 0 else anchor.spatial[anchor.tiled]
        along = 1 if anchor.across else anchor.length
        knobs = (
            Knob("vector", _vectors(anchor.length, lanes, anchor.splits)),
            Knob("tile", tuple(d for d in divisors(tiled) if d <= 8)),
            Knob("parallel", (0, 1) if anchor.rows * along > 1 else (0,)),
        )
        work = math.prod(anchor.reduction) * anchor.rows * along

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            jobs = anchor.rows * (1 if anchor.across else along / columns["vector"]) / columns["tile"]
            threads = np.where(columns["parallel"] > 0, target.threads, 1)
            return {
                "balance": balance(jobs, threads),
                "work": np.log2(work / threads),
                "accumulators": columns["tile"] * columns["vector"] / lanes,
            }

        space = Space(OP, self.version, knobs, None, derive)
        columns, derived = space.columns(space.rows), derive(space.columns(space.rows))
        score = (
            np.abs(np.log2(derived["accumulators"] / 4))
            + (anchor.length % columns["vector"]) / lanes
            + 4 * (1 - derived["balance"])
            + 4 * np.abs(columns["parallel"] - (1 if work > SMALL else 0))
        )
        return guided(space, score, 4)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        assert isinstance(anchor, Rows)
        vector = config.integer("vector")
        last = sch.get_sblock(anchor.block)
        stages = [sch.get_sblock(block.name_hint) for block in blocks_in_order(sch.mod["main"])]
        if anchor.across:
            stages = [part for stage in stages for part in (*_partials(sch, stage, vector, target.lanes()), stage)]
            outer = sch.get_loops(last)[: anchor.leading]
        else:
            outer = _outer_along(sch, last, anchor, vector, config.integer("tile"))
        for stage in reversed(stages[:-1]):
            sch.compute_at(stage, outer[-1], preserve_unit_loops=True)
        job = sch.fuse(*outer)
        if config.integer("parallel"):
            sch.parallel(job)
        for stage in stages[:-1]:
            kinds = [axis.iter_type for axis in sch.get(stage).iter_vars]  # compute_at makes a loop of every axis
            _one_row(sch, stage, kinds, vector)
        own = len(sch.get_loops(last)) - 1
        reduced = len(extents(sch.get(last), REDUCE))
        _one_row(sch, last, [SPATIAL] * (own - reduced) + [REDUCE] * reduced, vector)


def _vectors(length: int, lanes: int, splits: bool) -> tuple[int, ...]:
    """Vectors of half to four registers that divide ``length``; if none does, those that fit, or what divides it."""
    sizes = [size for size in (lanes // 2, lanes, 2 * lanes, 4 * lanes) if 1 < size <= length]
    whole = tuple(size for size in sizes if length % size == 0)
    fitting = tuple(sizes) if splits else tuple(d for d in divisors(length) if 4 <= d <= 4 * lanes)
    return whole or fitting or (1,)


# -- what a function is ----------------------------------------------------------------------------------------------


def _reduces(block: s_tir.SBlock) -> bool:
    return bool(extents(block, REDUCE))


def _costly(block: s_tir.SBlock) -> bool:
    return any(str(getattr(call.op, "name", "")) not in FREE_CALLS for call in nodes_below(block.body, Call))


def _inline_cheap(sch: s_tir.Schedule) -> None:
    """Inline every stage that does not reduce, unless that computes something costly twice."""
    for block in blocks_in_order(sch.mod["main"])[:-1]:
        stage = sch.get_sblock(block.name_hint)
        if not _reduces(block) and (len(sch.get_consumers(stage)) == 1 or not _costly(sch.get(stage))):
            sch.compute_inline(stage)


def _without_division(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``x[r, k] / s[r]`` → ``x[r, k] * (1 / s[r])``: one division per row, where a vector of them takes 16 cycles."""
    innermost = set()
    for block in blocks_in_order(func):
        wide = [axis.var for axis in block.iter_vars if int(axis.dom.extent) > 1]
        innermost.update(wide[-1:])

    def varies(expr: tirx.Expr) -> bool:
        return any(var in innermost for var in nodes_below(expr, tirx.Var))

    def inverted(division: tirx.Div) -> tirx.Expr:
        if str(division.ty.dtype) != "float32" or not varies(division.a) or varies(division.b):
            return division
        return division.a * (tirx.const(1.0, "float32") / division.b)

    return tvm_ffi.structural_map(func, (tirx.Div, inverted), order="post")


def _analyse(blocks: Sequence[s_tir.SBlock], shapes: tuple[tuple[int, ...], ...]) -> Rows | None:
    """Rows of a function whose cheap stages are inlined, or None where one row needs another's results."""
    last = blocks[-1]
    reducers = [block for block in blocks if _reduces(block)]
    directions = {_direction(block) for block in reducers}
    direction = directions.pop()
    reduction = extents(reducers[0], REDUCE)
    if directions or direction is None or any(extents(block, REDUCE) != reduction for block in reducers):
        return None
    across, length = direction
    spatial = extents(last, SPATIAL)
    axes = list(range(len(spatial) if across else len(spatial) - 1))
    counted = _counted_axes(last, reducers)
    if counted is None or (not across and (spatial[-1] != length or len(spatial) - 1 not in counted)):
        return None
    leading = next((axis for axis in axes if axis not in counted and spatial[axis] > 1), len(axes))
    if any(axis in counted and spatial[axis] > 1 for axis in axes[leading:]):
        return None
    rows, inner = math.prod(spatial[:leading]), math.prod(spatial[leading:])
    if across and ((inner > 1 and inner % length) or leading == 0 or (rows == 1 and math.prod(reduction) > SMALL)):
        return None  # the last case is one long row: only splitting the reduction keeps several threads busy
    return Rows(
        block=last.name_hint,
        spatial=spatial,
        reduction=reduction,
        epilogue=(),
        prologue=tuple(block.name_hint for block in blocks[:-1]),
        shapes=shapes,
        across=across,
        leading=leading,
        length=length,
        splits=across and all(can_split(block) for block in reducers),
    )


def _direction(block: s_tir.SBlock) -> tuple[bool, int] | None:
    """Whether ``block`` reduces across its contiguous axis, and that axis's extent; None if it does neither."""
    if not isinstance(block.body, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return None
    reduced = [axis for axis in block.iter_vars if axis.iter_type == REDUCE]
    data = [load for load in nodes_below(block.body, TensorLoad) if not load.source.same_as(block.body.buffer)]
    if not data:
        return None
    widest = max(data, key=lambda load: len(load.indices))
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


def _without_unit_axes(index: tirx.Expr, block: s_tir.SBlock) -> tirx.Expr:
    zeros = {axis.var: tirx.const(0, axis.var.ty.dtype) for axis in block.iter_vars if int(axis.dom.extent) == 1}
    return Analyzer().simplify(tvm_ffi.structural_map(index, (tirx.Var, lambda var: zeros.get(var, var))))


def _counted_axes(last: s_tir.SBlock, reducers: Sequence[s_tir.SBlock]) -> set[int] | None:
    """Which spatial axes of ``last`` index what was reduced, and so tell rows apart; None if an index is computed."""
    axes = [axis.var for axis in last.iter_vars if axis.iter_type == SPATIAL]
    if any(last.same_as(block) for block in reducers):
        return set(range(len(axes)))
    results = [block.body.buffer for block in reducers]
    loads = [
        load for load in nodes_below(last.body, TensorLoad) if any(load.source.same_as(result) for result in results)
    ]
    found: set[int] = set()
    for index in (index for load in loads for index in load.indices):
        position = next((at for at, var in enumerate(axes) if index.same_as(var)), None)
        if position is None and not isinstance(index, tirx.IntImm):
            return None
        found |= {position} if position is not None else set()
    return found or None


# -- the rewrite -----------------------------------------------------------------------------------------------------


def _partials(sch: s_tir.Schedule, stage: SBlockRV, vector: int, lanes: int) -> list[SBlockRV]:
    """Split a reduction into ``vector`` partial ones and a fold, the fold by vectors and by fours again."""
    block = sch.get(stage)
    if vector == 1 or not _reduces(block) or math.prod(extents(block, REDUCE)) % vector:
        return []
    parts = []
    spatial = len(extents(block, SPATIAL))
    for width in [vector, *(width for width in (lanes, FOLD) if width < vector and vector % width == 0)]:
        reduced = sch.fuse(*sch.get_loops(stage)[spatial:])
        _, inner = sch.split(reduced, [None, width])
        parts.append(sch.rfactor(inner, spatial))
    return parts


def _extent(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> int:
    return math.prod(int(sch.get(loop).extent) for loop in loops)


def _one_row(sch: s_tir.Schedule, stage: SBlockRV, kinds: Sequence[int], vector: int) -> None:
    """One stage below the loop over rows: vectors over the row, or over partial results of a reduction.

    Args:
        kinds: SPATIAL or REDUCE for each loop below the one over rows.
    """
    loops = sch.get_loops(stage)[1:]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    if reduced:
        _reduce(sch, stage, spatial, reduced)
    elif vector > 1 and _extent(sch, spatial) % vector == 0:  # a ragged row is left to LLVM, which masks its end
        _, inner = sch.split(sch.fuse(*spatial), [None, vector])
        sch.vectorize(inner)


def _reduce(sch: s_tir.Schedule, stage: SBlockRV, spatial: Sequence[LoopRV], reduced: Sequence[LoopRV]) -> None:
    """Reduction loops outside, the tile inside: its last loop a vector, the others unrolled."""
    tile = [loop for loop in spatial if _extent(sch, [loop]) > 1]
    units = [loop for loop in spatial if _extent(sch, [loop]) == 1]
    sch.reorder(*units, *reduced, *tile)
    if _extent(sch, reduced) <= UNROLL:
        for loop in reduced:
            sch.unroll(loop)
    _spread(sch, tile)
    init = sch.decompose_reduction(stage, reduced[0])
    _spread(sch, [loop for loop in sch.get_loops(init)[-len(tile) :] if tile])


def _spread(sch: s_tir.Schedule, tile: Sequence[LoopRV]) -> None:
    """Vectorise the last loop, unroll the others."""
    for loop in tile[:-1]:
        sch.unroll(loop)
    if tile:
        sch.vectorize(tile[-1])


def _outer_along(sch: s_tir.Schedule, last: SBlockRV, anchor: Rows, vector: int, tile: int) -> list[LoopRV]:
    """Bring the last block into the order rows, tile, free axes, vector; the loops around a tile."""
    loops = sch.get_loops(last)
    count = len(anchor.spatial)
    rows, free, reduced = loops[: anchor.leading], loops[anchor.leading : count - 1], loops[count:]
    part, inner = sch.split(loops[count - 1], [None, vector])
    tiles = []
    if anchor.tiled >= 0:
        rows[anchor.tiled], rest = sch.split(rows[anchor.tiled], [None, tile])
        tiles = [rest]
    sch.reorder(*rows, part, *tiles, *free, inner, *reduced)
    return [*rows, part]
