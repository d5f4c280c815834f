"""A made-up trace."""

from __future__ import annotations

import numpy as np

from autotune.contrib.replay.trace import RecordedSpace, Trace
from research.trace_writer import corrected
from schedules.space import Knob
from schedules.task import Task

KNOBS = (Knob("tile", (1, 2, 4, 8, 16, 32)), Knob("order", ("ij", "ji")), Knob("split", ((1, 4), (2, 2), (4, 1))))


def trace(key: str = "a", scale: float = 1e-4, seed: int = 0) -> Trace:
    """36 configs less a few; one fails; two are the same code; noise of 1 % and a drifting clock."""
    rng = np.random.default_rng(seed)
    rows = np.array(
        [(i, j, k) for i in range(6) for j in range(2) for k in range(3) if (i + j + k) % 7], dtype=np.int32
    )
    usual = scale * (1 + 0.3 * np.abs(rows[:, 0] - 3) + 0.2 * rows[:, 1] + 0.1 * rows[:, 2])
    usual[1] = usual[0]
    drift = np.repeat(1 + 0.1 * rng.integers(2, size=(len(rows), 3, 1)), 8, axis=2)
    runs = usual[:, None, None] * drift * (1 + 0.01 * np.abs(rng.standard_normal((len(rows), 3, 8))))
    errors = np.full(len(rows), -1, dtype=np.int8)
    errors[5], runs[5] = 2, np.nan
    codes = np.arange(len(rows))
    codes[1], runs[1] = 0, runs[0]
    task = Task(key, f"fused_{key}", "toy", "toy", ((4, 4), (4, 4)), ("float32", "float32"), (), 1000, 128, 2)
    space = RecordedSpace("toy", 1, KNOBS, recorded=rows, table=rows[:, :1] * 1.5, names=("tile_bytes",)).with_initial(
        (4, 2)
    )
    count = len(rows)
    true_s = np.where(errors < 0, corrected(runs, drift), np.nan)
    return Trace(
        task, space, False, scale / 2, 30 * scale, np.full(count, 0.1), np.full(count, 1e-3), errors, codes, true_s,
        runs, drift,
    )  # fmt: skip
