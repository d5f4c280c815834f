"""Chains without a reduction: elementwise, layout transforms, concat, pad, slices, gathers.

    several stages, each a loop nest   →   one nest: parallel(outer), vectorize(inner)

Stages are inlined into the last one, unless that would grow beyond measure (bfloat16 is rounded after every step, with
an expression that reads its argument three times); loops are fused and split into vectors and parallel chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.assembly.block_assembly import BlockAssembly
from schedules.templates.assembly.channel_assembly import ChannelPicksAssembly
from schedules.templates.assembly.elementwise_assembly import ConcatAssembly, ElementwiseAssembly
from schedules.templates.common.movements import blocks_to, concat_axis, picked_order
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    about_last,
    blocks_in_order,
    extents,
    is_choice,
    nodes_below,
    parameter_shapes,
)
from schedules.templates.common.vector_math import REPLACEMENTS, ROUNDINGS, vector_math
from schedules.templates.cpu.passes import CUT
from schedules.templates.instructions.bindings import read_once
from schedules.templates.instructions.outer_choices import APART
from schedules.templates.nests.merged_axes import FAR, merged, overlapping, simple_indices, steps_of_reads, turned_axis
from schedules.templates.nests.turned_tiles import SIDES, in_squares, turn_of
from schedules.templates.template import OneAlgorithm

OP = "elementwise"

SMALL = 4096
"""Elements below which the first guess is one thread. Heuristic: a parallel launch takes 1.2 µs."""

LEAST_ROW = 8
"""Elements of the innermost axis from which rows are loops of their own. Heuristic: shorter ones have few vectors."""

LEAST_VECTORS = 4
"""Vectors of a row from which they are a loop of their own. Heuristic: shorter ones have few turns."""

MOST_PARTS = 6
"""Conditions at which rows are cut. Heuristic: each of them doubles what the compiler sees."""

TURNED = {tirx.LT: tirx.GT, tirx.LE: tirx.GE, tirx.GT: tirx.LT, tirx.GE: tirx.LE}
"""Comparisons → the same of operands in the other order."""

BFLOAT16 = "bfloat16"

PARTS_OF_AXES = (tirx.Div, tirx.FloorDiv, tirx.FloorMod, tirx.Mod)

LONG_CHAIN, SIDE_BY_SIDE = 2, 2
"""Functions in a chain from which on a first guess has so many vectors side by side: the processor does not reach the
next one before a chain ends. Seven sigmoids in a row took 102 µs with one, 72 with two (25,088 numbers, Zen 5)."""

MOST_TEXT = 4000
"""Characters of a stage's text once it holds what it reads. Beyond, compiling takes seconds; at 15,000 minutes."""

MOST_TEXT_ONCE = 40_000
"""The same where each stage is read once, and no number is rounded to bfloat16 by an expression that reads it again."""


class ElementwiseTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for functions without reductions."""

    name = OP
    version = 7

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The last block, if no block reduces and each computes one element from its axes."""
        blocks = blocks_in_order(func)
        if not blocks or any(
            extents(block, REDUCE) or not isinstance(block.body, tirx.BufferStore) for block in blocks
        ):
            return None
        anchor = about_last(blocks, parameter_shapes(func))
        if picked_order(func) is not None:
            return replace(anchor, geometry={"picked": True})
        if blocks_to(func) is None and (side := _square_side(func)):
            return replace(anchor, geometry={"side": side})
        is_odd = bool(anchor.spatial) and anchor.spatial[-1] % 8 > 0 and blocks_to(func) is None
        row = _turned_row(func) if is_odd else 0
        if row:
            return replace(anchor, geometry={"turned": row})
        is_long = _functions(func) >= LONG_CHAIN
        return replace(anchor, geometry={"vectors": SIDE_BY_SIDE}) if is_long else anchor

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Vector length and number of parallel chunks; a small tensor may stay on one thread."""
        size = math.prod(anchor.spatial)
        lanes = target.lanes()
        first = lanes * int(anchor.geometry.get("vectors", 1))
        vectors = tuple(v for v in (1, lanes // 2, lanes, 2 * lanes, 4 * lanes) if v and size % v == 0)
        unrolled: tuple[int, ...] = (1, 4)
        if "side" in anchor.geometry:
            vectors, unrolled = tuple(side for side in SIDES if side <= int(anchor.geometry["side"])), (1,)
            first = min(lanes, vectors[0])
        elif "picked" in anchor.geometry and lanes in vectors:  # a vector is what a permutation makes
            vectors, unrolled = (lanes,), (1,)
        elif int(anchor.geometry.get("turned", 0)) > lanes and lanes not in vectors:
            vectors = (*vectors, lanes)  # the last one begins earlier
        chunks = tuple(
            dict.fromkeys(c for c in (1, target.threads, 4 * target.threads, 16 * target.threads) if c <= size)
        )
        knobs = (Knob("vector", vectors), Knob("chunks", chunks), Knob("unroll", unrolled))

        def derive(columns: Columns) -> Columns:
            return {"grain": np.log2(size / columns["chunks"])}

        def terms(columns: Columns, _: Columns) -> Columns:
            return {
                "vector": np.abs(np.log2(columns["vector"] / first)),
                "chunks": np.abs(np.log2(columns["chunks"] / (1 if size < SMALL else target.threads))),
                "unroll": columns["unroll"],
            }

        return ranked(Space(OP, self.version, knobs, None, derive, jobs="chunks"), terms, 4)

    def assembly(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> str:
        """In AVX-512 or AVX2."""
        if "turned" in anchor.geometry or "side" in anchor.geometry:
            return ""
        axis = concat_axis(func)
        if axis is not None:
            return ConcatAssembly(func, axis, config, target, symbol).text()
        to_blocks = blocks_to(func)
        if to_blocks is not None:
            return BlockAssembly(func, to_blocks, config, target, symbol).text()
        order = picked_order(func)
        if order is not None:
            return ChannelPicksAssembly(func, order, config, target, symbol).text()
        return ElementwiseAssembly(func, anchor, config, target, symbol).text()

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with its stages inlined, over the fewest axes."""
        func, vector = _inlined(func), config.integer("vector")
        turn = turn_of(func) if "side" in anchor.geometry else None
        if turn is not None:
            return in_squares(func, turn, vector, config.integer("chunks"))
        block = blocks_in_order(func)[-1]
        row = int(anchor.geometry.get("turned", 0))
        if row > vector > 1 and row % vector:
            return overlapping(func, vector)
        return _in_parts(func) if _by_rows(block, vector, config.integer("chunks")) else func

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        if "side" in anchor.geometry:
            return  # ``in_squares`` wrote loops
        knobs = {name: config.integer(name) for name in ("vector", "chunks", "unroll")}
        for block in blocks_in_order(sch.mod["main"]):
            size = math.prod(extents(block, SPATIAL))
            _nest(sch, block.name_hint, size, **{**knobs, "vector": math.gcd(knobs["vector"], size)})


def _inlined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with its stages inlined, unless that would grow beyond measure, over the fewest axes."""
    sch = s_tir.Schedule(vector_math(read_once(simple_indices(func))))
    for block in blocks_in_order(func)[:-1]:
        if not _grows(sch, block.name_hint):
            sch.compute_inline(sch.get_sblock(block.name_hint))
    # What is inlined twice names its intermediate values twice, which TVM takes for one name of two values.
    return merged(tirx.transform.ConvertSSA()(sch.mod)["main"])


def _square_side(func: tirx.PrimFunc) -> int:
    """Return the side of squares that ``func`` turns a tensor by; 0 if it turns none."""
    kinds = (tirx.FloorMod, tirx.FloorDiv)
    blocks = blocks_in_order(func)
    if not any(turned_axis(b) is not None or any(nodes_below(b.body, kind) for kind in kinds) for b in blocks):
        return 0
    try:
        turn = turn_of(_inlined(func))
    except s_tir.ScheduleError:
        return 0
    return 0 if turn is None else turn.side


def _turned_row(func: tirx.PrimFunc) -> int:
    """Elements of the innermost axis if ``func`` turns a tensor, so that neighbours are read far apart; else 0."""
    try:
        *before, block = blocks_in_order(_inlined(func))
    except s_tir.ScheduleError:
        return 0
    return extents(block, SPATIAL)[-1] if not before and turned_axis(block) is not None else 0


def _functions(func: tirx.PrimFunc) -> int:
    """Return the number of calls that are many steps, one after the other."""
    calls = (call for call in nodes_below(func.body, Call) if str(call.ty.dtype) == "float32")
    names = [str(getattr(call.op, "name", "")) for call in calls]
    return sum(name in REPLACEMENTS and name not in ROUNDINGS for name in names)


def _grows(sch: s_tir.Schedule, name: str) -> bool:
    """Return whether a stage makes a reader too large: what is read twice doubles; code generation sees each copy."""
    blocks = blocks_in_order(sch.mod["main"])
    stage = next(block for block in blocks if block.name_hint == name)
    access = f"{stage.writes[0].source.name}["
    size = len(str(stage.body))
    texts = [str(block.body) for block in blocks if block is not stage]
    is_copied = sum(text.count(access) for text in texts) > 1 or BFLOAT16 in "".join(texts)
    most = MOST_TEXT if is_copied else MOST_TEXT_ONCE
    return any(len(text) + text.count(access) * size > most for text in texts if access in text)


def _by_rows(block: tirx.SBlock, vector: int, chunks: int) -> bool:
    """Return whether a stage is left to LLVM row by row."""
    sizes = extents(block, SPATIAL)
    rows, row = math.prod(sizes[:-1]), sizes[-1] if sizes else 1
    within = vector == 1 or row % vector != 0 or _is_cut(block, vector) or _is_spread(block)
    fits = within and row >= LEAST_ROW and rows >= max(2, chunks)
    return fits and not _branches_by_remainders(block)


def _has_rows_of_vectors(block: tirx.SBlock, vector: int, chunks: int) -> bool:
    """Return whether vectors get a loop in each row: in one loop over all, divisions find the row of each of them."""
    sizes = extents(block, SPATIAL)
    rows, row = math.prod(sizes[:-1]), sizes[-1] if sizes else 1
    fits = vector > 1 and row % vector == 0 and row >= LEAST_VECTORS * vector and rows >= max(2, chunks)
    return fits and turned_axis(block) is None


def _is_spread(block: tirx.SBlock) -> bool:
    """Return whether lanes read every second, third … element: LLVM permutes vectors, where TVM inserts each number."""
    return any(steps[-1] not in (0, 1) and abs(steps[-1]) < FAR for steps in steps_of_reads(block))


def _pixel_axes(block: tirx.SBlock) -> tuple[int, int] | None:
    """Axes of pixels and of their few channels, if pixels are put together or taken apart; else None.

    LLVM makes vectors of neighbouring pixels and permutes them, if the few channels are written out.
    """
    sizes, steps = extents(block, SPATIAL), steps_of_reads(block)
    few = [axis for axis, size in enumerate(sizes) if 1 < size < LEAST_ROW]
    last = len(sizes) - 1
    if last in few and last and sizes[-2] >= LEAST_ROW:
        return (last - 1, last) if any(own[-2] == 1 and own[-1] >= FAR for own in steps) else None
    apart = [axis for axis in few if any(own[axis] == 1 and own[-1] == sizes[axis] for own in steps)]
    return (last, apart[0]) if apart and sizes[-1] >= LEAST_ROW else None


def _is_cut(block: tirx.SBlock, vector: int) -> bool:
    """Return whether a condition on the innermost axis changes within a vector, which falls apart into scalars then."""
    axis = block.iter_vars[-1].var
    conditions = (condition for kind in TURNED for condition in nodes_below(block.body, kind))
    borders = (_border(condition, [axis]) for condition in conditions)
    return any(border is not None and border[1] % vector for border in borders)


def _branches_by_remainders(block: tirx.SBlock) -> bool:
    """Return whether branches depend on divisions or remainders of the innermost axis.

    LLVM 22 makes vectors of a loop over such an axis that compute wrong numbers: see ``passes._branches_apart``.
    """
    axis = block.iter_vars[-1].var
    calls = filter(is_choice, nodes_below(block.body, Call))
    parts = (part for call in calls for kind in PARTS_OF_AXES for part in nodes_below(call, kind))
    return any(var.same_as(axis) for part in parts for var in nodes_below(part, tirx.Var))


def _in_parts(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with marks on conditions of the innermost axis, at which ``LoopPartition`` cuts rows.

    A row of a concatenation or of a border becomes a loop per part, each of which LLVM can make vectors of.
    """
    axes = [block.iter_vars[-1].var for block in blocks_in_order(func) if block.iter_vars]

    def choice(condition: tirx.Expr, value: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
        if isinstance(condition, tirx.And):
            return choice(condition.a, choice(condition.b, value, other), other)
        border = _border(condition, axes)
        if border is None:
            return tirx.if_then_else(condition, value, other)
        axis, first, is_below = border
        below = tirx.likely(axis < tirx.const(first, axis.ty.dtype))
        return tirx.if_then_else(below, value, other) if is_below else tirx.if_then_else(below, other, value)

    def chosen(call: Call) -> tirx.Expr:
        return choice(*call.args) if is_choice(call) else call

    parts = tvm_ffi.structural_map(func, (Call, chosen), order="post")
    return parts if len(_marks(parts)) <= MOST_PARTS else func


def _border(condition: tirx.Expr, axes: Sequence[tirx.Var]) -> tuple[tirx.Var, int, bool] | None:
    """(axis, n, whether ``condition`` is axis < n rather than axis >= n); None if it compares no axis with a number.

    ``LoopPartition`` solves no inequality of an axis that is converted or on the right.
    """
    if not isinstance(condition, (tirx.LT, tirx.LE, tirx.GT, tirx.GE)):
        return None
    kind, one, other = type(condition), _bare(condition.a), _bare(condition.b)
    if isinstance(one, tirx.IntImm):
        kind, one, other = TURNED[kind], other, one
    if not isinstance(other, tirx.IntImm) or not any(one.same_as(axis) for axis in axes):
        return None
    return one, int(other) + (kind in (tirx.LE, tirx.GT)), kind in (tirx.LT, tirx.LE)


def _bare(expr: tirx.Expr) -> tirx.Expr:
    return expr.value if isinstance(expr, tirx.Cast) else expr


def _marks(root: object) -> list[Call]:
    return [call for call in nodes_below(root, Call) if str(getattr(call.op, "name", "")).endswith("likely")]


def _nest(sch: s_tir.Schedule, name: str, size: int, vector: int, chunks: int, unroll: int) -> None:
    """One stage as parallel chunks of vectors.

    Where vectors do not divide the innermost axis of several, or there are none, LLVM gets loops over rows: in one loop
    over all elements, the indices of each would be found by division.
    """
    block = sch.get_sblock(name)
    loops = sch.get_loops(block)
    by_pixels = _pixel_axes(sch.get(block))
    if by_pixels is not None:
        pixels, channels = (loops[axis] for axis in by_pixels)
        outside = [loop for axis, loop in enumerate(loops) if axis not in by_pixels]
        sch.reorder(*outside, pixels, channels)
        sch.unroll(channels)
        outer = sch.fuse(*outside) if outside else pixels
        steps, unroll = int(sch.get(outer).extent), 1
    elif _by_rows(sch.get(block), vector, chunks):
        outer, steps, unroll = sch.fuse(*loops[:-1]), size // int(sch.get(loops[-1]).extent), 1
        if _marks(sch.get(block).body):
            sch.annotate(loops[-1], CUT, 1)
        else:
            sch.annotate(loops[-1], APART, 1)
    elif _has_rows_of_vectors(sch.get(block), vector, chunks):
        outer, steps, unroll = sch.fuse(*loops[:-1]), size // int(sch.get(loops[-1]).extent), 1
        _, inner = sch.split(loops[-1], [None, vector])
        sch.vectorize(inner)
    else:
        outer, steps = _vectors(sch, block, loops, vector), size // vector
    if unroll > 1 and steps % unroll == 0 and steps // unroll >= chunks:
        outer, body = sch.split(outer, [None, unroll])
        sch.unroll(body)
    if 1 < chunks <= steps:
        chunk, _ = sch.split(outer, [chunks, None])
        sch.parallel(chunk)


def _vectors(sch: s_tir.Schedule, block: SBlockRV, loops: Sequence[LoopRV], vector: int) -> LoopRV:
    """Loops over vectors, and the one loop around them: along what is read as it lies, where it is turned."""
    if not loops:
        return sch.add_unit_loop(block)  # what makes one number may have no loop
    if vector == 1:
        return sch.fuse(*loops)
    if int(sch.get(loops[-1]).extent) % vector:
        fused, inner = sch.split(sch.fuse(*loops), [None, vector])
        sch.vectorize(inner)
        return fused
    turned = turned_axis(sch.get(block))
    outer, inner = sch.split(loops[-1], [None, vector])
    sch.vectorize(inner)
    if turned is None:  # whole vectors of rows: a condition on another axis is none on their lanes
        return sch.fuse(*loops[:-1], outer)
    along = loops[turned]
    rest = [loop for loop in loops[:-1] if loop is not along]
    sch.reorder(*rest, outer, along, inner)
    return sch.fuse(*rest, outer, along)
