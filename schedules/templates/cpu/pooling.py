"""Windowed pooling in channel-blocked layout.

    data (n, C/b, h, w, b) → (n, C/b, oh, ow, b); the rewrite is that of ``depthwise`` without a filter.

The window never reads a padded copy: a tap outside the picture is skipped by a scalar condition, which is loop
invariant for the vector over b.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tvm import te

from schedules.config import Config
from schedules.space import Columns, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor
from schedules.templates.common.windows import BLOCKED_AXES, ImageLayout, Pooling, pool
from schedules.templates.cpu.window_tiles import whole_parts, window_balance, window_knobs, window_terms
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nested_template import NestedTemplate
from schedules.templates.nests.product_nests import window_nest

OP = "pool"

MOST_UNROLLED_TAPS = 49
"""Taps of the largest window whose inner loop is unrolled: 7 × 7. Heuristic, not measured."""

MOST_TILE, MOST_UNROLLED = 28, 512
"""Pixels of a tile, and taps in its unrolled body. Heuristic, not measured."""

BLOCKED = ImageLayout(spatial=2, axes=("n", "c", "oh", "ow", "b"), padded_axes=BLOCKED_AXES, block="pool", anchor=OP)


def pool2d(data: te.Tensor, pooling: Pooling) -> te.Tensor:
    """``pooling`` of data (n, C/b, h, w, b) → (n, C/b, oh, ow, b)."""
    return pool(data, pooling, BLOCKED)


class PoolTemplate(NestedTemplate):
    """Match, space and rewrite for ``pool``."""

    name = OP
    version = 1

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tile width, rows per job and padding place."""
        taps = math.prod(anchor.reduction)

        def fits(columns: Columns) -> NDArray[np.bool_]:
            unrolled: NDArray[np.bool_] = columns["tw"] * min(taps, MOST_UNROLLED_TAPS) <= MOST_UNROLLED
            return unrolled & whole_parts(columns, anchor)

        def derive(columns: Columns) -> Columns:
            return {"balance": window_balance(columns, anchor, target)}

        knobs = window_knobs(anchor, MOST_TILE, target.threads)
        terms = partial(window_terms, threads=target.threads)
        return ranked(Space(OP, self.version, knobs, fits, derive), terms, 4)

    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """Columns of a small window are written out."""
        small = math.prod(anchor.reduction) <= MOST_UNROLLED_TAPS
        return window_nest(anchor, dict(config.items), ("kw",) if small else ())
