"""Matrix product with a weight packed at compile time.

    x (m, k)   weight (n/b, k, b)   output (m, n)

    for m, n:                      parallel n/(tn·b)·m/rows:
        for k:                         for m/tm:
            o += x * weight    →           for k/u: unroll u, tm, tn: vectorize b
    epilogue                               epilogue on the tile

Packing makes the weight one stream per tile, so a vector × matrix product runs at memory bandwidth and a real
matrix product finds the next vector of weights in the next line.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.prefetch import FEWEST_TILES, OFTEN, Panel, prefetch_next
from schedules.templates.structure import Anchor, OneAlgorithm, divisors, find_anchor, inline_epilogue, unroll_tile

OP = "matmul"


def matmul(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x (m, k), weight (n/b, k, b) → (m, n)."""
    blocks, depth, lanes = (int(size) for size in weight.shape)
    k = te.reduce_axis((0, depth), "k")
    return te.compute(
        (x.shape[0], blocks * lanes),
        lambda m, n: te.sum(x[m, k] * weight[n // lanes, k, n % lanes], axis=[k]),
        name="matmul",
        attrs={"tune.anchor": OP, "tune.lanes": lanes},
    )


class MatmulTemplate(OneAlgorithm):
    """Match, space and rewrite for ``matmul``."""

    name = OP
    version = 2

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The product this function is about, if it is one."""
        return find_anchor(func, OP)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tile, rows of x per job and reduction unrolling."""
        rows, columns_count = anchor.spatial
        lanes = _lanes(anchor)
        blocks = columns_count // lanes
        depth = anchor.reduction[0]
        limit = target.vector_registers - 4
        knobs = (
            Knob("tm", tuple(d for d in divisors(rows) if d <= limit)),
            Knob("tn", tuple(d for d in divisors(blocks) if d <= 8)),
            Knob("rows", tuple(d for d in divisors(rows) if d <= 512)),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8, 16) if depth % d == 0)),
            Knob("outer", (0, 1)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["tm"] * columns["tn"]
            allowed = (tile <= limit) & (tile * columns["unroll"] <= 256)
            legal: NDArray[np.bool_] = allowed & (columns["rows"] % columns["tm"] == 0)
            return legal

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            tile = columns["tm"] * columns["tn"]
            jobs = (blocks / columns["tn"]) * (rows / columns["rows"])
            return {
                "accumulators": tile,
                "loads_per_fma": (columns["tm"] + columns["tn"]) / tile,
                "balance": jobs / (np.ceil(jobs / target.threads) * target.threads),
                "starved": np.maximum(0.0, 8.0 - tile),
                "panel_l2": np.log2(columns["tn"] * lanes * depth * 4.0 / target.l2_bytes),
            }

        space = Space(OP, self.version, knobs, fits, derive)
        columns, derived = space.columns(space.rows), derive(space.columns(space.rows))
        tile = derived["accumulators"]
        want = 16 if rows > 1 else 4
        penalty = (
            4 * derived["loads_per_fma"]
            + 0.3 * np.abs(tile - want)
            + 3 * (1 - derived["balance"])
            + 0.2 * np.abs(np.log2(columns["unroll"]) - 2)
            - 0.1 * np.log2(columns["rows"])
        )
        best = np.argsort(penalty, kind="stable")[:8]
        return Space(OP, self.version, knobs, fits, derive, first=tuple(space.config(space.rows[i]) for i in best))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        block = sch.get_sblock(anchor.block)
        tail = inline_epilogue(sch, anchor)
        m, n, k = sch.get_loops(block)
        tm, tn, rows = (config.integer(name) for name in ("tm", "tn", "rows"))
        mo, mm, mi = sch.split(m, [None, rows // tm, tm])
        no, ni, b = sch.split(n, [None, tn, _lanes(anchor)])
        ko, ki = sch.split(k, [None, config.integer("unroll")])
        order = (mo, no) if config.integer("outer") else (no, mo)
        sch.reorder(*order, mm, ko, ki, mi, ni, b)
        if tail is not None:
            sch.reverse_compute_at(tail, mm, preserve_unit_loops=True)
            fused = sch.get_loops(tail)[-1]
            _, inner, lane = sch.split(fused, [None, tn, _lanes(anchor)])
            row = sch.get_loops(tail)[-4]
            for loop in (row, inner):
                sch.unroll(loop)
            sch.vectorize(lane)
        job = sch.fuse(*order)
        sch.parallel(job)
        sch.vectorize(b)
        if between := self._between_prefetches(anchor, config):
            ko, _ = sch.split(ko, [None, between])
        for loop in (ki, mi, ni):
            sch.unroll(loop)
        init = sch.decompose_reduction(block, ko)
        unroll_tile(sch, init, 3)
        self._prefetch(sch, anchor, config, (job, mm, ko))

    def _tiles(self, anchor: Anchor, config: Config) -> int:
        """Tiles that pass over one panel of weights before the next."""
        rows = config.integer("rows") if config.integer("outer") else anchor.spatial[0]
        return rows // config.integer("tm")

    def _between_prefetches(self, anchor: Anchor, config: Config) -> int:
        """Steps of the sum between two prefetches where one each is more than a panel has lines for; else 0."""
        unroll, tiles = config.integer("unroll"), self._tiles(anchor, config)
        share = config.integer("tn") * unroll / tiles
        if share >= OFTEN or tiles < FEWEST_TILES:
            return 0
        return next((d for d in divisors(anchor.reduction[0] // unroll) if d * share >= OFTEN), 0)

    def _prefetch(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, loops: tuple[LoopRV, ...]) -> None:
        """The next ``tn`` blocks of columns while this panel's rows are computed."""
        job, mm, ko = loops
        number, tile = sch.get(job).loop_var, sch.get(mm).loop_var
        lanes, tn, rows = _lanes(anchor), config.integer("tn"), config.integer("rows")
        groups = anchor.spatial[0] // rows
        if config.integer("outer"):
            panel = number % (anchor.spatial[1] // (tn * lanes))
        else:
            panel, tile = number // groups, number % groups * (rows // config.integer("tm")) + tile
        vectors = tn * anchor.reduction[0]
        following = Panel(vectors, (panel + 1) * vectors, tile, self._tiles(anchor, config))
        prefetch_next(sch, anchor.weight, lanes, [ko], following)


def _lanes(anchor: Anchor) -> int:
    """Width of the packed weight's innermost axis: the parameter of shape (n/b, k, b)."""
    columns, depth = anchor.spatial[1], anchor.reduction[0]
    for shape in anchor.shapes:
        if len(shape) == 3 and shape[1] == depth and shape[0] * shape[2] == columns:
            return shape[2]
    raise ValueError(f"matmul without a packed weight among {anchor.shapes}")
