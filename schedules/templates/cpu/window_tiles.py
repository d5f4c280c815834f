"""Tiles of a row, and rows or parts of rows as parallel jobs, for depthwise convolution and pooling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedules.space import Columns, Knob
from schedules.target import Target
from schedules.templates.common.ranking import CYCLES
from schedules.templates.common.structure import Anchor, balance, divisors, idle, job_parts

MOST_JOB_ROWS = 56
"""Rows of a picture in one parallel job. Heuristic, not measured."""

GOOD_TILE, GOOD_ROWS = 7, 7
"""Pixels of a tile and rows of a job in a first guess. Heuristic, not measured."""


def window_knobs(anchor: Anchor, most: int, threads: int) -> tuple[Knob, ...]:
    """Tile width (up to ``most`` pixels), rows per job, where padding happens, and parts of rows for many threads."""
    batch, blocks, height, width = anchor.spatial[:4]
    return (
        Knob("tw", divisors(width, most)),
        Knob("rows", divisors(height, MOST_JOB_ROWS)),
        Knob("pad", (0, 1) if anchor.padded else (0,)),
        *job_parts((width,), batch * blocks * height, threads),
    )


def whole_parts(columns: Columns, anchor: Anchor) -> NDArray[np.bool_]:
    """Return whether parts of rows have whole tiles. Jobs that pad their own rows take whole rows."""
    parts = columns.get("parts", np.ones(len(columns["tw"])))
    whole: NDArray[np.bool_] = (parts == 1) | (
        (anchor.spatial[3] % (parts * columns["tw"]) == 0) & (columns["pad"] == 0)
    )
    return whole


def window_balance(columns: Columns, anchor: Anchor, target: Target) -> NDArray[np.float64]:
    """``balance`` of the jobs that ``tile_windows`` makes."""
    n, blocks, height = anchor.spatial[:3]
    return balance(n * blocks * (height / columns["rows"]) * columns.get("parts", 1), target.threads)


def window_terms(columns: Columns, derived: Columns, threads: int) -> Columns:
    """Return the terms that make a first guess bad, for ``ranked``. The weights are heuristics, not measured."""
    return {
        "tile": np.abs(columns["tw"] - GOOD_TILE),
        "rows": np.abs(columns["rows"] - GOOD_ROWS),
        "padded_before": -columns["pad"],
        "idle": 8 * idle(derived["balance"], threads, derived.get(CYCLES, 1.0)),
    }
