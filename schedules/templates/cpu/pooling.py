"""Windowed pooling in channel-blocked layout.

    data (n, C/b, h, w, b) → (n, C/b, oh, ow, b); the rewrite is that of ``depthwise`` without a filter.

The window never reads a padded copy: a tap outside the picture is skipped by a scalar condition, which is loop
invariant for the vector over b.
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
    Anchor,
    OneAlgorithm,
    balance,
    divisors,
    find_anchor,
    guided,
)
from schedules.templates.common.windows import BLOCKED_AXES, ImageLayout, Pooling, pool
from schedules.templates.cpu.window_tiles import MOST_JOB_ROWS, tile_windows

OP = "pool"

MOST_UNROLLED_TAPS = 49
"""Taps of the largest window whose inner loop is unrolled: 7 × 7. Heuristic, not measured."""

BLOCKED = ImageLayout(spatial=2, axes=("n", "c", "oh", "ow", "b"), padded_axes=BLOCKED_AXES, block="pool", anchor=OP)


def pool2d(data: te.Tensor, pooling: Pooling) -> te.Tensor:
    """``pooling`` of data (n, C/b, h, w, b) → (n, C/b, oh, ow, b)."""
    return pool(data, pooling, BLOCKED)


class PoolTemplate(OneAlgorithm):
    """Match, space and rewrite for ``pool``."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The pooling this function is about, if it is one."""
        return find_anchor(func, OP)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tile width, rows per job and padding place."""
        n, blocks, height, width, _ = anchor.spatial
        knobs = (
            Knob("tw", tuple(d for d in divisors(width) if d <= 28)),
            Knob("rows", tuple(d for d in divisors(height) if d <= MOST_JOB_ROWS)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
        )
        taps = anchor.reduction[0] * anchor.reduction[1]

        def fits(columns: Columns) -> NDArray[np.bool_]:
            return columns["tw"] * min(taps, MOST_UNROLLED_TAPS) <= 512

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            jobs = n * blocks * (height / columns["rows"])
            return {"balance": balance(jobs, target.threads)}

        space = Space(OP, self.version, knobs, fits, derive)
        columns = space.columns(space.rows)
        score = np.abs(columns["tw"] - 7) + np.abs(columns["rows"] - 7) + 8 * (1 - derive(columns)["balance"])
        return guided(space, score - columns["pad"], 4)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        taps = anchor.reduction[0] * anchor.reduction[1]
        tile_windows(sch, anchor, config, unroll=("kw",) if taps <= MOST_UNROLLED_TAPS else ())
