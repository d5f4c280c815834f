"""What depthwise convolution and pooling share: tiles of a row, rows as parallel jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir
from tvm.s_tir.schedule import LoopRV

from schedules.config import Config
from schedules.space import Columns, Knob
from schedules.target import Target
from schedules.templates.common.register_tile import unroll_tile
from schedules.templates.common.structure import Anchor, balance, divisors, inline_epilogue, parallel_outer
from schedules.templates.instructions.dots import use_dot

MOST_JOB_ROWS = 56
"""Rows of a picture in one parallel job. Heuristic, not measured."""

GOOD_TILE, GOOD_ROWS = 7, 7
"""Pixels of a tile and rows of a job in a first guess. Heuristic, not measured."""


def window_knobs(anchor: Anchor, most: int) -> tuple[Knob, ...]:
    """Tile width (up to ``most`` pixels), rows per job and where padding happens."""
    height, width = anchor.spatial[2:4]
    return (
        Knob("tw", divisors(width, most)),
        Knob("rows", divisors(height, MOST_JOB_ROWS)),
        Knob("pad", (0, 1) if anchor.padded else (0,)),
    )


def window_balance(columns: Columns, anchor: Anchor, target: Target) -> NDArray[np.float64]:
    """``balance`` of the jobs that ``tile_windows`` makes."""
    n, blocks, height = anchor.spatial[:3]
    return balance(n * blocks * (height / columns["rows"]), target.threads)


def window_terms(columns: Columns, derived: Columns) -> Columns:
    """What makes a first guess bad, as ``ranked`` wants it. The weights are heuristics, not measured."""
    return {
        "tile": np.abs(columns["tw"] - GOOD_TILE),
        "rows": np.abs(columns["rows"] - GOOD_ROWS),
        "padded_before": -columns["pad"],
        "idle": 8 * (1 - derived["balance"]),
    }


def tile_windows(sch: s_tir.Schedule, anchor: Anchor, config: Config, unroll: tuple[str, ...], target: Target) -> None:
    """Rewrite a block over (n, c, oh, ow, b | kh, kw), or kw/Q and Q, by the knobs ``rows``, ``tw`` and ``pad``.

    Args:
        unroll: which of the loops ``kw`` and ``kh`` are unrolled, in this order.
    """
    block = sch.get_sblock(anchor.block)
    tail = inline_epilogue(sch, anchor)
    n, c, oh, ow, b, kh, kw, *within = sch.get_loops(block)
    ho, hi = sch.split(oh, [None, config.integer("rows")])
    wo, wi = sch.split(ow, [None, config.integer("tw")])
    sch.reorder(n, c, ho, hi, wo, kh, kw, wi, b, *within)
    if tail is not None:
        sch.reverse_compute_at(tail, wo, preserve_unit_loops=True)
    outer = sch.fuse(n, c, ho)
    sch.parallel(outer)
    place_padding(sch, anchor, config, outer)
    sch.unroll(wi)
    if anchor.form is None:
        sch.vectorize(b)
    for name in unroll:
        sch.unroll({"kw": kw, "kh": kh}[name])
    unroll_tile(sch, sch.decompose_reduction(block, kh), 2)
    if tail is not None:
        unroll_tile(sch, tail, 2)
    if anchor.form is not None:
        use_dot(sch, b, anchor.form, target)


def place_padding(sch: s_tir.Schedule, anchor: Anchor, config: Config, job: LoopRV) -> None:
    """Pad rows as each ``job`` needs them (knob ``pad``), or all at once before; nothing where nothing is padded."""
    if not anchor.padded:
        return
    pad = sch.get_sblock("pad")
    if config.integer("pad"):
        sch.compute_at(pad, job, preserve_unit_loops=True)
    else:
        parallel_outer(sch, pad, 3)
    last = sch.get_loops(pad)[-1]
    if not anchor.plain:
        sch.vectorize(last)
