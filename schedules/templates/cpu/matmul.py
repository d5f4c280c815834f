"""Matrix product with a weight packed at compile time.

    x (m, k)   weight (n/b, k, b)   output (m, n)
    short types, Q numbers a lane (``instructions/dots.py``): weight (n/b, k/Q, b, Q)

    for m, n:                      parallel n/(tn·b)·m/rows:
        for k:                         for m/tm:
            o += x * weight    →           for k/u: unroll u, tm, tn: vectorize b
    epilogue                               epilogue on the tile

With knob ``depth`` below k, the sum is cut in chunks of so many terms: all rows of a job pass over one chunk of the
panel before the next, and what is summed so far lies in memory between. It pays where x and a panel outgrow L2.

Packing makes the weight one stream per tile, so a vector × matrix product runs at memory bandwidth and a real
matrix product finds the next vector of weights in the next line.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.amx import amx_matmul
from schedules.templates.amx.amx_ir import MOST_ROWS
from schedules.templates.amx.amx_product import ALGORITHM, MOST_COLUMNS, amx_cycles, chosen, has_amx, pack_tiles, terms
from schedules.templates.common.ranking import CYCLES, ranked
from schedules.templates.common.register_tile import few_registers, registers_of
from schedules.templates.common.splice import replace_anchor
from schedules.templates.common.structure import (
    MOST_BLOCKS,
    MOST_JOB_ROWS,
    MOST_UNROLLED,
    SPARE_REGISTERS,
    Anchor,
    Repack,
    divisors,
    idle,
)
from schedules.templates.instructions.dots import depth_axes, form_of, multiplied
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nest_features import product_features, unordered
from schedules.templates.nests.nested_template import NestedTemplate
from schedules.templates.nests.product_nests import MATMUL_AXES, matmul_loops, matmul_nest

OP = "matmul"

AHEAD = 4096
"""Bytes of each panel by which a vector × matrix product prefetches its weights: it reads them once, as fast as memory
gives them, and the processor's own prefetching ends at every page. Best tiles without and with, weights cold, on a
two-core Sapphire Rapids: 512 × 1376 51.6 and 55.0 GB/s, 1280 × 1008 54.5 and 58.2, and no difference where memory was
fully used without (1376 × 512, 4096 × 4096: 59 to 60); 8192 did no more, and less than 4096 no better."""

CHUNKS = 192, 1024
"""Terms that a chunk of the sum may have: enough to make little of passing over the sums again, few enough for a panel
of weights, the next one and all rows of x to share an L2."""

RAGGED = 4, 6, 8, 9, 10, 12, 13, 14
"""Rows of ragged tiles: with 1 to 6 vectors of weights the tiles of 24 to 28 sums, and a few less. Heuristic."""

FEW_TILES = 1
"""Sizes of at least ``RAGGED[0]`` rows that divide the rows of x up to which ragged ones are offered too. None divides
the 197 tokens of a vision transformer: with one row a tile its products reached 61 to 66 % of a Zen 4's peak, with
ragged tiles 90 to 98 %."""


def matmul(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x (m, k), weight (n/b, k, b) or (n/b, k/Q, b, Q) → (m, n)."""
    blocks, depth, lanes, *quad = (int(size) for size in weight.shape)
    form = form_of(str(x.dtype), str(weight.dtype), *quad)
    k, within = te.reduce_axis((0, depth), "k"), depth_axes(form)
    attrs = {"tune.anchor": OP, "tune.lanes": lanes}
    if form is not None:
        attrs["tune.geometry"] = json.dumps({"dot": form.name})

    def product(m: tirx.Var, n: tirx.Var) -> tirx.Expr:
        number = x[m, k if form is None else k * form.depth + within[0]]
        return te.sum(multiplied(number, weight[(n // lanes, k, n % lanes, *within)], form), axis=[k, *within])

    return te.compute((x.shape[0], blocks * lanes), product, name="matmul", attrs=attrs)


class MatmulTemplate(NestedTemplate):
    """Match, space and rewrite for ``matmul``."""

    name = OP
    version = 3

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tile, rows of x per job and reduction unrolling."""
        rows, columns_count = anchor.spatial
        lanes = _lanes(anchor)
        blocks = columns_count // lanes
        depth = anchor.reduction[0]
        limit = target.vector_registers - SPARE_REGISTERS
        per_block, pairs = registers_of(lanes, target), _has_pairs(anchor)
        amx = _amx_applies(anchor, target)
        ragged = _ragged(anchor, limit) if target.broadcast_operands and not (pairs or amx) else ()
        knobs = (
            *((Knob("algorithm", (0, ALGORITHM)),) if amx else ()),
            Knob("tm", tuple(sorted({*divisors(rows, limit), *ragged}))),
            Knob("tn", divisors(blocks, MOST_BLOCKS)),
            Knob("rows", tuple(sorted({*divisors(rows, MOST_JOB_ROWS), *((rows,) if ragged else ())}))),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8, 16) if depth % d == 0)),
            Knob("outer", (0, 1)),
            Knob("depth", _chunks(rows, depth)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["tm"] * columns["tn"]
            allowed = few_registers(columns["tn"] * per_block, columns["tm"], target)
            whole = columns["rows"] % columns["tm"] == 0
            whole |= np.isin(columns["tm"], ragged) & (columns["tm"] <= columns["rows"]) & (columns["depth"] == depth)
            allowed &= (tile * columns["unroll"] <= MOST_UNROLLED) & whole
            if pairs:
                allowed &= (columns["tm"] % 2 == 0) & (columns["depth"] == depth)
            allowed &= (columns["depth"] == depth) | (columns["rows"] >= 4 * columns["tm"])
            if amx:
                tiled = columns["tn"] * (lanes // MOST_ROWS) <= MOST_COLUMNS
                tiled &= (columns["tm"] == 1) & (columns["unroll"] == 1) & (columns["depth"] == depth)
                allowed = np.where(columns["algorithm"] == ALGORITHM, tiled, allowed)
            legal: NDArray[np.bool_] = allowed
            return legal

        def derive(columns: Columns) -> Columns:
            nest = unordered(anchor, MATMUL_AXES, matmul_loops(anchor, columns, lanes), "n")
            features = product_features(nest, target)
            features[CYCLES] *= _computed(columns)
            if amx:
                tiled = amx_cycles(columns["tn"] * (lanes // MOST_ROWS), columns["rows"], columns["rows"])
                features[CYCLES] = np.where(columns["algorithm"] == ALGORITHM, tiled, features[CYCLES])
            return {**features, "panel_l2": np.log2(columns["tn"] * lanes * columns["depth"] * 4.0 / target.l2_bytes)}

        def terms(columns: Columns, derived: Columns) -> Columns:
            tile = derived["accumulators"]
            vectors = columns["algorithm"] != ALGORITHM if amx else np.ones(len(tile))
            return {
                "amx": 8 * (1 - vectors) * derived[CYCLES],
                "loads": 4 * vectors * (columns["tm"] + 2 * columns["tn"]) / tile,
                "twice": 4 * vectors * (_computed(columns) - 1),
                "tile": 0.3 * vectors * np.abs(tile - (24 if rows > 1 else 4)),
                # Weights that are read once come no faster than memory gives them, whatever the tile.
                "idle": 3 * idle(derived["balance"], target.threads, derived[CYCLES] if rows > 1 else 1.0),
                "unroll": 0.2 * np.abs(np.log2(columns["unroll"]) - 2),
                "rows": -0.1 * np.log2(columns["rows"]),
                "long_sum": 0.3 * (columns["depth"] > CHUNKS[1]),
                "passes": 0.1 * np.abs(np.log2(columns["depth"] / 256)) * (columns["depth"] < depth),
            }

        apart = ("algorithm", "tm", "tn", "outer") if amx else ("tm", "tn", "outer")
        return ranked(Space(OP, self.version, knobs, fits, derive, job_rows="rows"), terms, 8, apart)

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with the product computed by the chosen algorithm."""
        if not chosen(config):
            return func
        return replace_anchor(func, anchor.block, amx_matmul.stages(anchor), anchor.data, anchor.weight)

    def repack(self, anchor: Anchor, config: Config) -> dict[int, Repack]:
        """Return how weights must be transformed for ``config``: parameter index → function."""
        if not chosen(config) or anchor.form is None:
            return {}
        return {anchor.weight: Repack("amx", partial(pack_tiles, quad=anchor.form.depth))}

    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """The loops of vectors; a product of one row prefetches its own panel."""
        return matmul_nest(anchor, dict(config.items), _lanes(anchor), AHEAD)

    def assembly(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> str:
        """Return the text for AVX-512 or AVX2; empty for AMX tiles."""
        return "" if chosen(config) else super().assembly(func, anchor, config, target, symbol)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        if chosen(config):
            amx_matmul.apply(sch, anchor, config)
        else:
            super().apply(sch, anchor, in_whole_tiles(config), target)


def _ragged(anchor: Anchor, limit: int) -> tuple[int, ...]:
    """Rows of tiles that do not divide those of x, where few divide: the last tile then begins early enough to fit.

    It computes some rows a second time, so a result that is added to must not be cut into chunks of the sum.
    """
    rows = anchor.spatial[0]
    if rows <= limit or anchor.prologue or len([d for d in divisors(rows, limit) if d >= RAGGED[0]]) > FEW_TILES:
        return ()
    return tuple(size for size in RAGGED if rows % size)


def _computed(columns: Columns) -> NDArray[np.float64]:
    """(n,) rows that a job computes over those that it has: more than 1 where its last tile is ragged."""
    return np.asarray(np.ceil(columns["rows"] / columns["tm"]) * columns["tm"] / columns["rows"])


def in_whole_tiles(config: Config) -> Config:
    """``config`` for the compiler, which knows no ragged tiles: the most rows that divide those of a job."""
    rows = max(divisors(config.integer("rows"), config.integer("tm")))
    return replace(config, items=tuple((name, rows if name == "tm" else value) for name, value in config.items))


def _chunks(rows: int, depth: int) -> tuple[int, ...]:
    """Choices of the knob ``depth``: all of the sum, and parts of it that are worth a pass."""
    parts = [d for d in divisors(depth) if CHUNKS[0] <= d <= CHUNKS[1] and d < depth] if rows >= 4 else []
    return (*parts, depth)


def _amx_applies(anchor: Anchor, target: Target) -> bool:
    """Return whether sums have whole tiles of terms, and columns whole tiles."""
    form = anchor.form
    if form is None or not has_amx(form, target) or anchor.weight < 0 or anchor.data < 0:
        return False
    return anchor.reduction[0] * form.depth % terms(form) == 0 and _lanes(anchor) % MOST_ROWS == 0


def _has_pairs(anchor: Anchor) -> bool:
    return anchor.form is not None and anchor.form.rows == 2


def _lanes(anchor: Anchor) -> int:
    """Width b of the packed weight's vectors: the parameter of shape (n/b, k, b) or (n/b, k/Q, b, Q)."""
    columns, depth = anchor.spatial[1], anchor.reduction[0]
    for shape in anchor.shapes:
        if len(shape) == (3 if anchor.form is None else 4) and shape[1] == depth and shape[0] * shape[2] == columns:
            return shape[2]
    raise ValueError(f"matmul without a packed weight among {anchor.shapes}")
