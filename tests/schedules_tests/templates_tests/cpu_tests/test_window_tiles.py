"""What depthwise convolutions and pools offer: tiles that divide a row, jobs that divide a picture."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.target import Target
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.window_tiles import MOST_JOB_ROWS, whole_parts, window_balance, window_knobs
from tests.schedules_tests.cases import CASES

POOL = next(case.func for case in CASES if case.name == "pool_max")
EVEN = next(case.func for case in CASES if case.name == "pool_average")


@pytest.mark.parametrize(("func", "pads"), [(POOL, (0, 1)), (EVEN, (0,))])
def test_knobs(func: object, pads: tuple[int, ...]) -> None:
    anchor = find_anchor(func, "pool")
    assert anchor is not None
    tw, rows, pad = window_knobs(anchor, 4, threads=2)
    assert all(anchor.spatial[3] % size == 0 and size <= 4 for size in tw.choices)
    assert all(anchor.spatial[2] % size == 0 and size <= MOST_JOB_ROWS for size in rows.choices)
    assert pad.choices == pads


def test_parts_of_rows_have_whole_tiles_of_a_padded_image() -> None:
    anchor = find_anchor(EVEN, "pool")
    assert anchor is not None
    *_, parts = window_knobs(anchor, 4, threads=16)
    assert all(anchor.spatial[3] % part == 0 for part in parts.choices)
    width = anchor.spatial[3]
    columns = {
        "tw": np.asarray([1.0, width, width, 1.0]),
        "pad": np.asarray([0.0, 0.0, 1.0, 1.0]),
        "parts": np.asarray([width, 1.0, 1.0, 2.0]),
    }
    assert whole_parts(columns, anchor).tolist() == [True, True, True, False]


def test_balance_counts_the_jobs() -> None:
    anchor = find_anchor(POOL, "pool")
    assert anchor is not None
    columns = {"rows": np.asarray([1.0, 5.0])}
    jobs = anchor.spatial[0] * anchor.spatial[1] * anchor.spatial[2] / columns["rows"]
    expected = jobs / (np.ceil(jobs / 4) * 4)
    np.testing.assert_allclose(window_balance(columns, anchor, Target("llvm", isa="avx2", threads=4)), expected)
