"""Weights asked for before they are needed.

A model's weights are larger than its caches, so every kernel meets its own beyond L2. Within a panel of weights the
hardware runs ahead by itself; at the start of each panel it does not, and the first tile that reads it waits. So while
the tiles of one panel are computed, each asks for its share of the next one:

    for panel:                              for panel:
        for tile:                               for tile:
            for k: c += x * weight       →          for k: prefetch a line of panel + 1; c += x * weight

One instruction per some hundred multiply-adds: unmeasurable where the weights are near already; 128 × 768 × 768 went
from 506 to 448 µs with weights from L3 (docs/lab: benchmarks). The tile's sums must lie in an ``alloca``
(``pipeline``): a prefetch reads memory, as LLVM sees it, so sums in a workspace, or in the function's result, would be
stored before each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.s_tir.schedule import LoopRV

INTRINSIC = "llvm.prefetch.p0"

LINE = 64
"""Bytes of a cache line."""

FEWEST_TILES = 3
"""Tiles that must share a panel; with fewer, a kernel reads weights as fast as they come and the hardware is ahead."""

OFTEN = 0.5
"""Lines per iteration below which the next outer loop asks instead; with fewer there, the panel is small beside its
tiles, and the wait too."""

INTO_L1, INTO_L2 = 3, 2
"""LLVM's locality: into L2, which a panel fits, rather than L1, which it would leave again before it is read."""


@dataclass(frozen=True)
class Panel:
    """The weights that one pass over its tiles reads.

    Attributes:
        vectors: of ``lanes`` elements that the panel has.
        following: where what is read next begins, as the index of a vector of the weight: one place, or several that
            are read in step and share ``vectors`` equally.
        tile: number of the tile being computed, among ``tiles``.
    """

    vectors: int
    following: Sequence[tirx.Expr]
    tile: tirx.Expr
    tiles: int


def prefetch_next(sch: s_tir.Schedule, weight: int, lanes: int, loops: Sequence[LoopRV], panel: Panel) -> None:
    """Put prefetches into one of ``loops``; none where they would not pay. The last step of a schedule.

    Args:
        weight: index of the parameter, contiguous in the order in which it is read.
        lanes: of 4 bytes each in one vector: one number, or those of a lane of a dot product.
        loops: those over a tile's sum that are not unrolled, outermost first.
    """
    per_line = LINE // (4 * lanes)
    if per_line * 4 * lanes != LINE:
        return
    trips = [int(sch.get(loop).extent) for loop in loops]
    share = share_of_lines(panel.vectors / per_line, len(panel.following), panel.tiles, trips)
    if share is None:
        return
    level, count = share
    at: tirx.Expr = panel.tile
    for loop, trip in zip(loops[: level + 1], trips, strict=False):
        at = at * trip + sch.get(loop).loop_var
    offsets = [at * (count * per_line) + number * per_line for number in range(count)]
    _insert(sch, weight, loops[level], [start + offset for start in panel.following for offset in offsets])


def share_of_lines(lines: float, streams: int, tiles: int, trips: Sequence[int]) -> tuple[int, int] | None:
    """(loop, lines): in every turn of which loop of a tile's sum to ask for how many lines; None if it would not pay.

    Args:
        lines: of the panel.
        streams: places that are read in step and share them equally; the answer is for each.
        tiles: that share the panel.
        trips: of the sum's loops, outermost first.
    """
    if tiles < FEWEST_TILES:
        return None
    share = lines / tiles / streams
    level = next((at for at in reversed(range(len(trips))) if share / math.prod(trips[: at + 1]) >= OFTEN), None)
    return None if level is None else (level, math.ceil(share / math.prod(trips[: level + 1])))


def prefetch_ahead(
    sch: s_tir.Schedule,
    weight: int,
    lanes: int,
    loop: LoopRV,
    vectors: Sequence[tirx.Expr],
    locality: int = INTO_L1,
) -> None:
    """Ask for what is read soon, at the start of each iteration of ``loop``. The last step of a schedule.

    Args:
        weight, lanes: as of ``prefetch_next``.
        vectors: one behind the other in memory, as indices of vectors of the weight.
        locality: ``INTO_L1`` or ``INTO_L2``.
    """
    _insert(sch, weight, loop, vectors[:: max(1, LINE // (4 * lanes))], locality)


def _insert(
    sch: s_tir.Schedule, weight: int, loop: LoopRV, vectors: Sequence[tirx.Expr], locality: int = INTO_L2
) -> None:
    """Ask for these vectors of the weight at the start of each iteration; beyond its end the processor ignores it."""
    parameter = sch.mod["main"].params[weight]
    zero = tirx.const(0, "int64")
    within = 1 if tvm.DataType(str(parameter.ty.dtype)).bits == 32 else 2  # axes of a vector: lanes, and numbers of one
    before = len(parameter.ty.shape) - 1 - within
    asked = []
    for vector in vectors:
        element = tirx.BufferLoad(parameter, [*[zero] * before, vector, *[zero] * within])
        hint = [tirx.const(value, "int32") for value in (0, locality, 1)]  # to read, how near, data
        asked.append(tirx.Evaluate(tirx.call_llvm_intrin("void", INTRINSIC, tirx.address_of(element), *hint)))
    old = sch.get(loop)
    body = tirx.SeqStmt([*asked, old.body])
    new = tirx.For(old.loop_var, old.min, old.extent, old.kind, body, None, old.annotations)
    sch.state.replace(sch.get_sref(loop), new, {})


def without_prefetches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` as it was before ``prefetch_next``: it computes the same, only later."""
    sample = tirx.call_llvm_intrin("void", INTRINSIC, *[tirx.const(0, "int32")] * 4)

    def asks(statement: tirx.Stmt) -> bool:
        call = statement.value if isinstance(statement, tirx.Evaluate) else None
        return isinstance(call, Call) and call.op.same_as(sample.op) and int(call.args[0]) == int(sample.args[0])

    def kept(sequence: tirx.SeqStmt) -> tirx.Stmt:
        rest = [statement for statement in sequence.seq if not asks(statement)]
        return sequence if len(rest) == len(sequence.seq) else rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)

    return tvm_ffi.structural_map(func, (tirx.SeqStmt, kept))
