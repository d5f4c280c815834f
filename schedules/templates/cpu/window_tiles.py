"""The rewrite that depthwise convolution and pooling share: tiles of a row, rows as parallel jobs."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV

from schedules.config import Config
from schedules.templates.common.register_tile import unroll_tile
from schedules.templates.common.structure import Anchor, inline_epilogue, parallel_outer

MOST_JOB_ROWS = 56
"""Rows of a picture in one parallel job. Heuristic, not measured."""


def tile_windows(sch: s_tir.Schedule, anchor: Anchor, config: Config, unroll: tuple[str, ...]) -> None:
    """Rewrite a block over (n, c, oh, ow, b | kh, kw) by the knobs ``rows``, ``tw`` and ``pad``.

    Args:
        unroll: which of the loops ``kw`` and ``kh`` are unrolled, in this order.
    """
    block = sch.get_sblock(anchor.block)
    tail = inline_epilogue(sch, anchor)
    n, c, oh, ow, b, kh, kw = sch.get_loops(block)
    ho, hi = sch.split(oh, [None, config.integer("rows")])
    wo, wi = sch.split(ow, [None, config.integer("tw")])
    sch.reorder(n, c, ho, hi, wo, kh, kw, wi, b)
    if tail is not None:
        sch.reverse_compute_at(tail, wo, preserve_unit_loops=True)
    outer = sch.fuse(n, c, ho)
    sch.parallel(outer)
    place_padding(sch, anchor, config, outer)
    sch.vectorize(b)
    sch.unroll(wi)
    for name in unroll:
        sch.unroll({"kw": kw, "kh": kh}[name])
    unroll_tile(sch, sch.decompose_reduction(block, kh), 2)
    if tail is not None:
        unroll_tile(sch, tail, 2)


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
