"""Depthwise convolution in channel-blocked layout: each channel has its own filter, so vectors run over channels.

    data (n, C/b, h, w, b)   weight (C/b, kh, kw, b)   output (n, C/b, oh, ow, b)

    for n, c, oh, ow, b:            parallel n·c·oh/rows:
        for kh, kw:                     pad rows
            o += data * weight    →     for oh, ow/tw:
    epilogue                                for kh: unroll kw, tw: vectorize b
                                            epilogue on the tile

Bound by loads: one FMA per two loads, so the tile only has to hide latency.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.structure import (
    SPARE_REGISTERS,
    Anchor,
    OneAlgorithm,
    balance,
    divisors,
    find_anchor,
    guided,
)
from schedules.templates.common.windows import Window, pad_spatial
from schedules.templates.cpu.window_tiles import MOST_JOB_ROWS, tile_windows

OP = "depthwise"

MOST_UNROLLED_TAPS = 400
"""Multiply-adds in the unrolled body of a tile. Heuristic, not measured."""


def depthwise(
    data: te.Tensor,
    weight: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> te.Tensor:
    """data (n, C/b, h, w, b), weight (C/b, kh, kw, b), padding top, left, bottom, right → (n, C/b, oh, ow, b)."""
    window = Window((int(weight.shape[1]), int(weight.shape[2])), strides, padding, dilation)
    size = window.output_size(int(data.shape[2]), int(data.shape[3]))
    padded = pad_spatial(data, padding, 0.0)
    kh = te.reduce_axis((0, window.size[0]), "kh")
    kw = te.reduce_axis((0, window.size[1]), "kw")
    return te.compute(
        (data.shape[0], data.shape[1], *size, data.shape[4]),
        lambda n, c, oh, ow, b: te.sum(
            padded[n, c, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1], b]
            * weight[c, kh, kw, b],
            axis=[kh, kw],
        ),
        name="depthwise",
        attrs={"tune.anchor": OP},
    )


class DepthwiseTemplate(OneAlgorithm):
    """Match, space and rewrite for ``depthwise``."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The depthwise convolution this function is about, if it is one."""
        return find_anchor(func, OP)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tile width, rows per job, padding place and filter unrolling."""
        n, blocks, height, width, _ = anchor.spatial
        taps = anchor.reduction[0] * anchor.reduction[1]
        limit = target.vector_registers - SPARE_REGISTERS
        knobs = (
            Knob("tw", tuple(d for d in divisors(width) if d <= limit)),
            Knob("rows", tuple(d for d in divisors(height) if d <= MOST_JOB_ROWS)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
            Knob("unroll", (0, 1)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            return (columns["tw"] * np.where(columns["unroll"] > 0, taps, anchor.reduction[1])) <= MOST_UNROLLED_TAPS

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            jobs = n * blocks * (height / columns["rows"])
            return {
                "balance": balance(jobs, target.threads),
                "rows_per_job": np.log2(columns["rows"]),
                "starved": np.maximum(0.0, 4.0 - columns["tw"]),
            }

        space = Space(OP, self.version, knobs, fits, derive)
        columns = space.columns(space.rows)
        score = (
            np.abs(columns["tw"] - 7)
            + np.abs(columns["rows"] - 7)
            - columns["pad"]
            + 8 * (1 - derive(columns)["balance"])
        )
        return guided(space, score, 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        tile_windows(sch, anchor, config, unroll=("kw", "kh") if config.integer("unroll") else ("kw",))
