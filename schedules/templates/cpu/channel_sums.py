"""Convolution by few filters in channel-blocked layout: vectors run along the channels of the image.

    data (n, C/b, h, w, b)   weight (O, C/b, kh, kw, b)   output (n, O, oh, ow), plain

    for n, o, oh, ow, b:                        parallel n·oh/rows·parts of ow:
        for ci, kh, kw:                             pad rows
            p += data * weight                      for rows, ow/tw, o/to:
    for n, o, oh, ow, b: c += p[b]       →              for ci, kh, kw: unroll to, tw: vectorize b
    epilogue                                            add up the lanes of to · tw vectors
                                                        epilogue on the tile

``conv2d`` keeps one filter in a lane: with four filters, three quarters of a vector are idle. Here each lane adds
up what its channels contribute, and the lanes of a sum are added up at the end, which takes ``FOLD`` instructions.
"""

from __future__ import annotations

import json
import math

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.register_tile import registers_of, spread, tile_registers
from schedules.templates.common.structure import MOST_UNROLLED, SPATIAL, Anchor, balance, divisors, idle
from schedules.templates.common.windows import Window, pad_spatial
from schedules.templates.template import MarkedTemplate

OP = "channel_sums"

MOST_FILTERS = 4
"""Filters up to which vectors run along channels. With more, Winograd and full vectors of filters are as fast."""

FOLD = 8
"""Multiply-adds that adding up the lanes of one sum costs. Heuristic, not measured."""

WORTH = 1.5
"""Times fewer multiply-adds from which it is chosen. Heuristic, not measured."""

QUARTER = 4
"""Lanes to which those of a vector are added up side by side."""

LEAST_SUMS, GOOD_SUMS = 8, 20
"""Fewest sums of a tile, which hide the latency of a multiply-add, and those of a first guess. Heuristic."""

GOOD_ROWS, MOST_ROWS = 8, 16
"""Rows of a job in a first guess, and the most. Heuristic, not measured."""

PARTS = (1, 2, 4, 8, 16, 32)
"""Parts of a row that are jobs of their own, for images of few rows."""


def is_worth_it(filters: int, channels: int, window: Window, width: int, block: int) -> bool:
    """Return whether a convolution to rows of ``width`` pixels takes much fewer multiply-adds than in ``conv2d``."""
    taps = math.prod(window.size)
    own = filters * (taps * -(-channels // block) + FOLD)
    tiles = any(LEAST_SUMS <= to * tw <= GOOD_SUMS for to in divisors(filters) for tw in divisors(width, GOOD_SUMS))
    return filters <= MOST_FILTERS and channels >= block and tiles and WORTH * own <= taps * channels


def channel_sums(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    """Convolve ``data`` by the filters ``weight`` at the places of ``window``."""
    filters, depth, kh_size, kw_size, lanes = (int(size) for size in weight.shape)
    (high, wide), (tall, broad) = window.strides, window.dilation
    size = window.output_size(int(data.shape[2]), int(data.shape[3]))
    padded = pad_spatial(data, window.padding, 0)
    ci, kh = te.reduce_axis((0, depth), "ci"), te.reduce_axis((0, kh_size), "kh")
    kw, b = te.reduce_axis((0, kw_size), "kw"), te.reduce_axis((0, lanes), "b")

    def product(n: tirx.Var, o: tirx.Var, oh: tirx.Var, ow: tirx.Var, b: tirx.Var) -> tirx.Expr:
        number = padded[n, ci, oh * high + kh * tall, ow * wide + kw * broad, b]
        return te.sum(number * weight[o, ci, kh, kw, b], axis=[ci, kh, kw])

    attrs = {"tune.anchor": OP, "tune.geometry": json.dumps({"padding": window.padding})}
    sums = te.compute((data.shape[0], filters, *size, lanes), product, name=OP, attrs=attrs)
    return te.compute(sums.shape[:4], lambda *at: te.sum(sums[(*at, b)], axis=[b]), name="fold")


class ChannelSumsTemplate(MarkedTemplate):
    """Match, space and rewrite for ``channel_sums``."""

    name = OP
    version = 1

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Filters and pixels of a tile, rows of a job, parts of a row, and where padding happens."""
        batch, filters, height, width, lanes = anchor.spatial
        depth, kh, kw = anchor.reduction
        per_block = registers_of(lanes, target)
        knobs = (
            Knob("to", divisors(filters)),
            Knob("tw", divisors(width, target.vector_registers)),
            Knob("rows", divisors(height, MOST_ROWS)),
            Knob("parts", tuple(part for part in PARTS if width % part == 0)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            held = tile_registers(columns["to"] * per_block, columns["tw"], target)
            fitting: NDArray[np.bool_] = (held <= target.vector_registers) & (
                width % (columns["tw"] * columns["parts"]) == 0
            )
            return fitting & (columns["to"] * columns["tw"] * kw <= MOST_UNROLLED)

        def derive(columns: Columns) -> Columns:
            jobs = batch * height / columns["rows"] * columns["parts"]
            pixels = (columns["rows"] + kh - 1) * (width / columns["parts"] + kw - 1)
            return {
                "balance": balance(jobs, target.threads),
                "sums": columns["to"] * columns["tw"] * per_block,
                "rows_l2": np.log2(pixels * depth * lanes * 4.0 / target.l2_bytes),
            }

        def terms(columns: Columns, derived: Columns) -> Columns:
            return {
                "sums": np.abs(derived["sums"] - GOOD_SUMS) / 4,
                "loads": 4 * (1 / columns["to"] + 1 / columns["tw"]),
                "rows": np.abs(np.log2(columns["rows"] / GOOD_ROWS)) / 2 + 4 * np.maximum(0, derived["rows_l2"] + 1),
                "parts": np.log2(columns["parts"]) / 4,
                "padded_before": -columns["pad"],
                "idle": 8 * idle(derived["balance"], target.threads),
            }

        return ranked(Space(OP, self.version, knobs, fits, derive), terms, 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        to, tw, rows, parts = (config.integer(name) for name in ("to", "tw", "rows", "parts"))
        block = sch.get_sblock(anchor.block)
        fold = sch.get_consumers(block)[0]
        following = [name for name in anchor.epilogue if name != sch.get(fold).name_hint]
        for name in following[:-1]:
            sch.compute_inline(sch.get_sblock(name))
        _, quarter = sch.split(sch.get_loops(fold)[-1], [None, QUARTER])
        partial = sch.rfactor(quarter, 4)
        last = sch.get_sblock(following[-1]) if following else fold
        n, o, oh, ow, *rest = sch.get_loops(last)
        oho, ohi = sch.split(oh, [None, rows])
        owj, owo, owi = sch.split(ow, [parts, None, tw])
        oo, oi = sch.split(o, [None, to])
        sch.reorder(n, oho, owj, ohi, owo, oo, oi, owi, *rest)
        for stage in (fold, partial, block) if following else (partial, block):
            sch.compute_at(stage, oo, preserve_unit_loops=True)
        job = sch.fuse(n, oho, owj)
        sch.parallel(job)
        if anchor.padded:
            _pad(sch, job if config.integer("pad") else None)
        if following:
            spread(sch, [oi, owi])
            _unroll(sch, fold)
        else:
            for loop in (oi, owi, *rest):
                sch.unroll(loop)
        _unroll(sch, partial)
        _multiply(sch, block)


def _pad(sch: s_tir.Schedule, job: LoopRV | None) -> None:
    """Pad what a job reads in it, or all rows before the jobs."""
    pad = sch.get_sblock("pad")
    if job is not None:
        sch.compute_at(pad, job, preserve_unit_loops=True)
    else:
        sch.parallel(sch.fuse(*sch.get_loops(pad)[:3]))
    sch.vectorize(sch.get_loops(pad)[-1])


def _own(sch: s_tir.Schedule, stage: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops over a tile's spatial axes, and those over what it adds up."""
    axes = sch.get(stage).iter_vars
    loops = list(zip(sch.get_loops(stage)[-len(axes) :], axes, strict=True))
    spatial = [loop for loop, axis in loops if axis.iter_type == SPATIAL]
    return spatial, [loop for loop, axis in loops if axis.iter_type != SPATIAL]


def _unroll(sch: s_tir.Schedule, stage: SBlockRV) -> None:
    """A sum of lanes, written out; those that stay side by side are a vector."""
    spatial, reduced = _own(sch, stage)
    if len(spatial) > 4:
        lanes, *spatial = spatial  # the axis that ``rfactor`` makes comes first
        sch.reorder(*reduced, lanes)
        sch.vectorize(lanes)
    for loop in (*spatial, *reduced):
        sch.unroll(loop)


def _multiply(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """The products of a tile: taps outside, filters and pixels unrolled, channels in vectors."""
    spatial, (ci, kh, kw) = _own(sch, block)
    sch.reorder(ci, kh, kw, *spatial)
    sch.unroll(kw)
    spread(sch, spatial)
    init = sch.decompose_reduction(block, ci)
    spread(sch, sch.get_loops(init)[-len(spatial) :])
