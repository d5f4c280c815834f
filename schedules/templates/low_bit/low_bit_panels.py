"""Matrix product of many rows with a weight of 4 or 8 bits: a job's columns become float32 in the cache, once.

    x (m, k)   weight, scale and zero points as ``low_bit_matmul`` has them   output (m, n)

    for n/(tn·b), m/rows:                              in parallel
        panels = (number - zero) · scale               of tn·b columns, in L2
        for m/tm:
            for k/u: unroll u, tm, tn: o += x · panels: vectorize b
        epilogue on the tile

``low_bit_matmul`` unpacks in registers, once for every tile of rows, and adds the sums of every group. Here a panel is
unpacked once for all rows of a job, and the product is that of ``cpu/matmul.py``.
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
from schedules.templates.common.ranking import CYCLES, ranked
from schedules.templates.common.register_tile import few_registers, registers_of
from schedules.templates.common.structure import (
    MOST_BLOCKS,
    MOST_JOB_ROWS,
    MOST_UNROLLED,
    SPARE_REGISTERS,
    Anchor,
    divisors,
    idle,
)
from schedules.templates.instructions.dots import FORMS, DotForm
from schedules.templates.instructions.low_bit_ir import floats_symbol
from schedules.templates.low_bit.widening import widen, widened
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nest_features import product_features, unordered
from schedules.templates.nests.nested_template import NestedTemplate
from schedules.templates.nests.product_nests import MATMUL_AXES, matmul_loops, matmul_nest

OP = "low_bit_panels"

PANELS = "panels"
"""Block: the weight in float32."""

LEAST_ROWS = 16
"""Rows from which on panels are used."""

SUMS = 12
"""Vectors of sums of the first tile tried. LLVM keeps 4 × 3 in registers: 253 to 254 of a Zen 5 core's 256 GFLOPS with
192, 200 and 216 rows, where 8 × 3 had 184 to 258, by how the loop around it came out."""


def in_panels(rows: int, form: DotForm) -> bool:
    """Return whether a product of ``rows`` is worth panels: activations are float32, and rows many."""
    return form.data == "float32" and rows >= LEAST_ROWS


def low_bit_panels(
    x: te.Tensor, weight: te.Tensor, scale: te.Tensor, zero: te.Tensor | None, form: DotForm
) -> te.Tensor:
    """x (m, k) float32, weight (n/b, k/Q, b, 4), scale (n/b, k/G, b), zero points or None for half → (m, n)."""
    count, vectors, lanes, _ = (int(size) for size in weight.shape)
    depth = vectors * form.depth

    def number(o: tirx.Var, k: tirx.Var, b: tirx.Var) -> tirx.Expr:
        return widened(weight, scale, zero, form, (o, k // form.depth, k % form.depth, b))

    panels = te.compute((count, depth, lanes), number, name=PANELS)
    k = te.reduce_axis((0, depth), "k")
    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps({"low": form.name, "lanes": lanes})}
    return te.compute(
        (x.shape[0], count * lanes),
        lambda m, n: te.sum(x[m, k] * panels[n // lanes, k, n % lanes], axis=k),
        name=OP,
        attrs=attrs,
    )


class LowBitPanelsTemplate(NestedTemplate):
    """Match, space and rewrite for ``low_bit_panels``."""

    name = OP
    version = 1

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tile, rows of x per job and reduction unrolling."""
        rows, columns_count = anchor.spatial
        lanes, depth = int(anchor.geometry["lanes"]), anchor.reduction[0]
        blocks, limit = columns_count // lanes, target.vector_registers - SPARE_REGISTERS
        knobs = (
            Knob("tm", divisors(rows, limit)),
            Knob("tn", divisors(blocks, MOST_BLOCKS)),
            Knob("rows", tuple(d for d in divisors(rows, MOST_JOB_ROWS) if d >= min(rows, LEAST_ROWS)) or (rows,)),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8) if depth % d == 0)),
            Knob("outer", (0, 1)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["tm"] * columns["tn"]
            allowed = few_registers(columns["tn"] * registers_of(lanes, target), columns["tm"], target)
            allowed &= (tile * columns["unroll"] <= MOST_UNROLLED) & (columns["rows"] % columns["tm"] == 0)
            legal: NDArray[np.bool_] = allowed
            return legal

        def derive(columns: Columns) -> Columns:
            loops = matmul_loops(anchor, {**columns, "depth": depth}, lanes)
            features = product_features(unordered(anchor, MATMUL_AXES, loops, "n"), target)
            panel = np.log2(columns["tn"] * lanes * depth * 4.0 / target.l2_bytes)
            return {**features, "widened_per_row": 1.0 / columns["rows"], "panel_l2": panel}

        def terms(columns: Columns, derived: Columns) -> Columns:
            tile = derived["accumulators"]
            return {
                "loads": 4 * (columns["tm"] + 2 * columns["tn"]) / tile,
                "tile": 0.3 * np.abs(tile - SUMS),
                "idle": 3 * idle(derived["balance"], target.threads, derived[CYCLES]),
                "unroll": 0.2 * np.abs(np.log2(columns["unroll"]) - 2),
                "widened": 32 * derived["widened_per_row"],
                "panel": 0.3 * np.maximum(0, derived["panel_l2"] + 1),
            }

        return ranked(Space(OP, self.version, knobs, fits, derive, job_rows="rows"), terms, 8, ("tm", "tn", "outer"))

    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """The loops of a product whose panels lie in the cache: nothing is fetched ahead."""
        knobs = {**dict(config.items), "depth": anchor.reduction[0]}
        return replace(matmul_nest(anchor, knobs, int(anchor.geometry["lanes"]), 0), prefetches=False)

    def assembly(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> str:
        """Left to the compiler."""
        return ""

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        super().apply(sch, anchor, config, target)
        form, panels = FORMS[anchor.geometry["low"]], sch.get_sblock(PANELS)
        sch.compute_at(panels, sch.get_loops(sch.get_sblock(anchor.block + "_update"))[0], preserve_unit_loops=True)
        *_, term, _ = sch.get_loops(panels)
        _, within = sch.split(term, [None, form.depth])
        lanes = int(anchor.geometry["lanes"])
        widen(sch, within, form, form.depth, partial(floats_symbol, form.bits, lanes))
