"""Batched product of two activations, as in attention, with the heads wherever the operands have them.

An einsum equation says which axis is which, so no transpose is ever stored: with q, k, v as the dense layers write
them, (b, s, h, d), the scores are ``bmhk,bnhk->bhmn`` and the context ``bhmk,bkhn->bmhn``. Every axis that is in both
operands and the result is a batch axis; m, n and k are one axis each, and n is the innermost of the result. The first
operand may lack batch axes, as in ``mk,bkn->bmn``.

    for b, h, m, n:                      parallel b·h·m/rows:
        for k:                               pack[n/l, k, l] = y of this b, h (knob ``pack``)
            c += x * y            →          for n/(tn·l), m/tm:
    epilogue                                     for k/u: unroll u, tm, tn: vectorize l
                                                 epilogue on the tile

The second operand is packed per job because each of its elements is used by every m, while as the dense layer left it
neighbours along k or n lie a whole token apart and fall into the same few lines of L1.

Where tiles do not divide m or n, the product is computed over whole tiles (the pack is zero beyond n, the last row is
repeated beyond m) and cropped together with the epilogue, once per job.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import CYCLES, ranked
from schedules.templates.common.register_tile import (
    few_registers,
    registers_of,
    spread,
    tile_order,
    tile_registers,
    unroll_tile,
)
from schedules.templates.common.structure import (
    MOST_BLOCKS,
    MOST_JOB_ROWS,
    MOST_UNROLLED,
    SPARE_REGISTERS,
    Anchor,
    balance,
    divisors,
    idle,
    inline_epilogue,
)
from schedules.templates.instructions.micro_kernel import Tile, tile_cycles
from schedules.templates.template import MarkedTemplate
from schedules.vocabulary.errors import UsageError, check

OP = "batch_matmul"
PACK = "batch_pack"
SINGLE = "float32"
FEWEST_JOB_ROWS = 16  # rows that share one pack of the second operand. Heuristic, not measured
ROWS = 4  # m is rounded up to a multiple of this, so that every shape has a register tile of some height


def batch_matmul(x: te.Tensor, y: te.Tensor, equation: str, lanes: int) -> te.Tensor:
    """The compute.

    Args:
        x: first operand, read as scalars.
        y: second operand, read as vectors along n. Both float32, or both bfloat16, which is multiplied as float32.
        equation: einsum of one m, one n and one k axis and any batch axes, such as ``bmhk,bnhk->bhmn``.
        lanes: elements of one vector.

    Raises:
        UsageError: if the equation is of another kind.
    """
    operands, _, result = equation.partition("->")
    left, _, right = operands.partition(",")
    sizes = dict(zip(left, (int(size) for size in x.shape), strict=True))
    sizes |= dict(zip(right, (int(size) for size in y.shape), strict=True))
    rows = [axis for axis in result if axis in left and axis not in right]
    columns = [axis for axis in result if axis in right and axis not in left]
    depth = [axis for axis in left if axis in right and axis not in result]
    *of_right, _ = columns or [""]  # the first operand is the same for all of these
    columns = columns[-1:]
    batch = [axis for axis in result if axis in right and (axis in left or axis in of_right)]
    if (len(rows), len(columns), len(depth)) != (1, 1, 1) or not result.endswith(columns[0]):
        raise UsageError(f"equation {equation} needs one m, one n and one k axis, n the last of the result")
    m, n, k = rows[0], columns[0], depth[0]
    whole = {**sizes, m: _up(sizes[m], ROWS if sizes[m] > ROWS else 1), n: _up(sizes[n], lanes)}

    def packed_element(*index: tirx.Var) -> tirx.Expr:
        at = dict(zip(batch, index, strict=False)) | {n: index[-3] * lanes + index[-1], k: index[-2]}
        element = _single(y[tuple(at[axis] for axis in right)])
        return (
            element if whole[n] == sizes[n] else tirx.if_then_else(at[n] < sizes[n], element, tirx.const(0.0, SINGLE))
        )

    shape = [sizes[axis] for axis in batch] + [whole[n] // lanes, sizes[k], lanes]
    pack = te.compute(shape, packed_element, name=PACK)
    inner = te.reduce_axis((0, sizes[k]), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        at = dict(zip(result, index, strict=True)) | {k: inner.var}
        there = (*(at[axis] for axis in batch), at[n] // lanes, inner, at[n] % lanes)
        if whole[m] != sizes[m]:
            at[m] = tirx.min(at[m], tirx.const(sizes[m] - 1, at[m].ty.dtype))
        return te.sum(_single(x[tuple(at[axis] for axis in left)]) * pack[there], axis=[inner])

    cropped = whole != sizes
    geometry = {"rows": result.index(m), "lanes": lanes, "contiguous": right.endswith(n), "cropped": cropped}
    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps(geometry)}
    product = te.compute([whole[axis] for axis in result], element, name=OP, attrs=attrs)
    if not cropped:
        return product
    return te.compute([sizes[axis] for axis in result], lambda *index: product[index], name="crop")


def _single(number: tirx.Expr) -> tirx.Expr:
    """A number of either type as a float32."""
    return number if str(number.dtype) == SINGLE else number.astype(SINGLE)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


class BatchMatmulTemplate(MarkedTemplate):
    """Match, space and rewrite for ``batch_matmul``."""

    name = OP
    version = 2

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tile, rows per job, reduction unrolling, loop order and packing."""
        row_axis, lanes = int(anchor.geometry["rows"]), int(anchor.geometry["lanes"])
        rows, blocks, depth = anchor.spatial[row_axis], anchor.spatial[-1] // lanes, anchor.reduction[0]
        batch = int(np.prod(anchor.spatial)) // (rows * anchor.spatial[-1])
        limit, per_block = target.vector_registers - SPARE_REGISTERS, registers_of(lanes, target)
        knobs = (
            Knob("tm", divisors(rows, limit)),
            Knob("tn", divisors(blocks, MOST_BLOCKS)),
            Knob("rows", tuple(d for d in divisors(rows, MOST_JOB_ROWS) if d >= min(rows, FEWEST_JOB_ROWS))),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8) if depth % d == 0)),
            Knob("outer", (0, 1)),
            Knob("pack", (0, 1) if anchor.geometry["contiguous"] else (1,)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["tm"] * columns["tn"]
            held = few_registers(columns["tn"] * per_block, columns["tm"], target)
            held &= tile_registers(columns["tn"] * per_block, columns["tm"], target) <= target.vector_registers
            whole: NDArray[np.bool_] = held & (columns["rows"] % columns["tm"] == 0)
            return whole & (tile * columns["unroll"] <= MOST_UNROLLED)

        def derive(columns: Columns) -> Columns:
            registers = Tile(columns["tn"] * per_block, columns["tm"], columns["unroll"], depth)
            tile = columns["tm"] * columns["tn"]
            jobs = batch * (rows / columns["rows"])
            return {
                "accumulators": tile,
                "loads_per_fma": (columns["tm"] + columns["tn"]) / tile,
                "balance": balance(jobs, target.threads),
                CYCLES: tile_cycles(registers, target, None),
                "packed_per_row": columns["pack"] / columns["rows"],
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            return {
                "loads": 4 * derived["loads_per_fma"],
                "tile": 0.2 * np.abs(derived["accumulators"] - 20),
                "idle": 6 * idle(derived["balance"], target.threads, derived[CYCLES]),
                "packs": 16 / columns["rows"],
                "unroll": 0.2 * np.abs(np.log2(columns["unroll"]) - 1),
                "unpacked": -0.5 * columns["pack"],
            }

        return ranked(Space(OP, self.version, knobs, fits, derive), terms, 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        product, pack = sch.get_sblock(anchor.block), sch.get_sblock(PACK)
        lanes, row_axis = int(anchor.geometry["lanes"]), int(anchor.geometry["rows"])
        tm, tn, rows = (config.integer(name) for name in ("tm", "tn", "rows"))
        check(rows % tm == 0, f"rows {rows} is not a multiple of tm {tm}")
        tail = inline_epilogue(sch, anchor)
        *loops, n, k = sch.get_loops(product)
        mo, mm, mi = sch.split(loops.pop(row_axis), [None, rows // tm, tm])
        no, ni, lane = sch.split(n, [None, tn, lanes])
        ko, ki = sch.split(k, [None, config.integer("unroll")])
        inside = (mm, no) if config.integer("outer") else (no, mm)
        tile = tile_order((ni, tn), (mi,), tm)
        sch.reorder(*loops, mo, *inside, ko, ki, *tile, lane)
        cropped = bool(anchor.geometry["cropped"])
        if tail is not None:
            sch.reverse_compute_at(tail, mo if cropped else inside[1], preserve_unit_loops=True)
        job = sch.fuse(*loops, mo)
        sch.parallel(job)
        if config.integer("pack"):
            sch.compute_at(pack, job, preserve_unit_loops=True)
            _copy_block(sch, pack, bool(anchor.geometry["contiguous"]))
        else:
            sch.compute_inline(pack)
        spread(sch, (ki, *tile, lane))
        if tail is not None and not cropped:  # LLVM masks the ends of cropped rows
            _tile_epilogue(sch, tail, lanes)
        init = sch.decompose_reduction(product, ko)
        unroll_tile(sch, init, 3)


def _copy_block(sch: s_tir.Schedule, pack: SBlockRV, contiguous: bool) -> None:
    """Vectors where the source is contiguous along n; else each line of it is read once, k innermost."""
    *_, k, lane = sch.get_loops(pack)
    if contiguous:
        sch.vectorize(lane)
        return
    line = next(size for size in (16, 8, 4, 2, 1) if int(sch.get(k).extent) % size == 0)
    outer, inner = sch.split(k, [None, line])
    sch.reorder(outer, lane, inner)
    sch.unroll(inner)


def _tile_epilogue(sch: s_tir.Schedule, tail: SBlockRV, lanes: int) -> None:
    """Below the loops over jobs, m and n: vectors of the last axis, everything else of the tile unrolled."""
    tile: list[LoopRV] = [loop for loop in sch.get_loops(tail)[3:] if int(sch.get(loop).extent) > 1]
    check(tile and int(sch.get(tile[-1]).extent) % lanes == 0, "the epilogue's tile is not made of whole vectors")
    spread(sch, (*tile[:-1], *sch.split(tile[-1], [None, lanes])))
