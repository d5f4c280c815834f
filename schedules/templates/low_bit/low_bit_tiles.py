"""Matrix product of many rows with a weight of 4 or 8 bits, in AMX tiles: the weight becomes bfloat16 in the cache.

    x (m, k)   weight, scale and zero points as ``low_bit_matmul`` has them, b = 16   output (m, n)

    short = bf16(x)                                    in parallel
    for m/rows, n/(tn·16):                             in parallel
        tiles = bf16((number - zero) · scale)          of tn·16 columns, in L2
        wide = short · tiles                           in AMX tiles (``amx_product.py``)
        epilogue

The weight is read from memory once for each job, in its few bits, as with few rows. Activations lose less than by
rounding to int8, which the model allows: bfloat16 is level 3 of MatMulNBits' ``accuracy_level``, int8 level 4.
"""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.amx.amx_ir import MOST_ROWS
from schedules.templates.amx.amx_product import (
    MOST_COLUMNS,
    WIDE,
    amx_cycles,
    has_amx,
    terms,
    tile_jobs,
    use_amx,
)
from schedules.templates.common.ranking import CYCLES, ranked
from schedules.templates.common.structure import (
    MOST_JOB_ROWS,
    Anchor,
    balance,
    divisors,
    idle,
    inline_epilogue,
)
from schedules.templates.instructions.dots import BF16, FORMS, DotForm
from schedules.templates.instructions.llvm_target import features_of
from schedules.templates.instructions.low_bit_ir import WIDENING, widened_symbol
from schedules.templates.low_bit.widening import widen, widened
from schedules.templates.template import MarkedTemplate

OP = "low_bit_tiles"

SHORT, TILES = "short", "tiles"
"""Blocks: the activations and the weight in bfloat16."""

LEAST_ROWS = MOST_ROWS
"""Rows from which on tiles are used: one whole tile. By instructions: 64 bytes of weights of 4 bits are widened in 40,
and multiplied by dot products of int8 in 3 to 4 for each row."""


def has_tiles(target: Target) -> bool:
    """Return whether ``target`` widens weights and multiplies them in tiles."""
    return has_amx(BF16, target) and features_of(target) >= WIDENING


def in_tiles(rows: int, depth: int, lanes: int) -> bool:
    """Return whether a product of ``rows`` by ``depth`` terms is worth tiles, with panels of ``lanes`` columns."""
    return rows >= LEAST_ROWS and depth % terms(BF16) == 0 and lanes == MOST_ROWS


def low_bit_tiles(
    x: te.Tensor, weight: te.Tensor, scale: te.Tensor, zero: te.Tensor | None, form: DotForm
) -> te.Tensor:
    """x (m, k) float32, weight (n/16, k/Q, 16, 4), scale (n/16, k/G, 16), zero points or None for half → (m, n)."""
    panels, vectors, lanes, _ = (int(size) for size in weight.shape)
    rows, groups, together = int(x.shape[0]), int(scale.shape[1]), form.depth
    depth = vectors * together
    size = depth // groups
    short = te.compute((rows, depth), lambda m, k: _bits(x[m, k]), name=SHORT)

    def number(o: tirx.Var, v: tirx.Var, j: tirx.Var, i: tirx.Var) -> tirx.Expr:
        return _bits(widened(weight, scale, zero, form, (o, v, 2 * j + i % 2, i // 2)))

    tiles = te.compute((panels, vectors, together // 2, 2 * lanes), number, name=TILES)
    step_terms = terms(BF16)
    k, i = (te.reduce_axis((0, extent), name) for extent, name in ((depth // step_terms, "k"), (step_terms, "i")))
    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps({"dot": form.name, "group": size})}

    def product(o: tirx.Var, p: tirx.Var, b: tirx.Var) -> tirx.Expr:
        place = k * step_terms + i
        weights = tiles[o, place // together, place % together // 2, 2 * b + place % 2]
        return te.sum(_float(short[p, place]) * _float(weights), axis=[k, i])

    wide = te.compute((panels, rows, lanes), product, name=WIDE, attrs=attrs)
    return te.compute((rows, panels * lanes), lambda m, n: wide[n // lanes, m, n % lanes], name="rows")


def _bits(number: tirx.Expr) -> tirx.Expr:
    """``number`` rounded to bfloat16, to even, as a word: a bfloat16 between two stages TVM keeps in float32."""
    word = tirx.reinterpret("uint32", number)
    even = (word >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
    return ((word + (even + tirx.const(0x7FFF, "uint32"))) >> tirx.const(16, "uint32")).astype("uint16")


def _float(bits: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret("float32", bits.astype("uint32") << tirx.const(16, "uint32"))


class LowBitTilesTemplate(MarkedTemplate):
    """Match, space and rewrite for ``low_bit_tiles``."""

    name = OP
    version = 2

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Rows and tiles of columns of a job."""
        panels, rows, _ = anchor.spatial
        depth = math.prod(anchor.reduction)
        knobs = (
            Knob("tn", divisors(panels, MOST_COLUMNS)),
            Knob("rows", tuple(d for d in divisors(rows, MOST_JOB_ROWS) if d >= LEAST_ROWS) or (rows,)),
            Knob("outer", (0, 1)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            return np.ones(len(columns["tn"]), np.bool_)

        def derive(columns: Columns) -> Columns:
            jobs = (panels / columns["tn"]) * (rows / columns["rows"])
            return {
                "balance": balance(jobs, target.threads),
                CYCLES: amx_cycles(columns["tn"], columns["rows"], columns["rows"]),
                "widened_per_row": 1.0 / columns["rows"],
                "panel_l2": np.log2(columns["tn"] * MOST_ROWS * depth * 2.0 / target.l2_bytes),
            }

        def ranks(_: Columns, derived: Columns) -> Columns:
            return {
                "amx": 8 * derived[CYCLES],
                "idle": 3 * idle(derived["balance"], target.threads, derived[CYCLES]),
                "widened": 32 * derived["widened_per_row"],
                "panel": 0.3 * np.maximum(0, derived["panel_l2"] + 1),
            }

        return ranked(Space(OP, self.version, knobs, fits, derive), ranks, 8, apart=("tn", "outer"))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place; plain loops where ``target`` has no tiles."""
        tail = inline_epilogue(sch, anchor)
        assert tail is not None
        job = tile_jobs(sch, tail, config)
        wide, tiles = sch.get_sblock(WIDE), sch.get_sblock(TILES)
        sch.compute_at(wide, job, preserve_unit_loops=True)
        sch.compute_at(tiles, job, preserve_unit_loops=True)
        row, column = sch.get_loops(sch.get_sblock(SHORT))
        sch.parallel(row)
        sch.vectorize(sch.split(column, [None, terms(BF16)])[1])
        if not has_tiles(target):
            *_, lane, k, i = sch.get_loops(wide)
            sch.reorder(k, i, lane)
            sch.vectorize(lane)
            sch.vectorize(sch.get_loops(sch.decompose_reduction(wide, k))[-1])
            return
        form = FORMS[anchor.geometry["dot"]]
        vector = sch.get_loops(sch.get_sblock(TILES))[-2]
        widen(sch, vector, form, form.depth // 2, partial(widened_symbol, form.bits))
        shape = config.integer("rows"), config.integer("tn"), 2 * math.prod(anchor.reduction)
        use_amx(sch, sch.get_loops(wide)[1], job, shape, BF16, ahead=False)
