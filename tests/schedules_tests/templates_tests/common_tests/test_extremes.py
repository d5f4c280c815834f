"""Maxima and minima from ∓∞ are split into partial ones, by processes that end as they should."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

import schedules.templates.cpu.rows  # noqa: F401  (registers them)


def split_row(combine, start):
    """Extremes of rows of 64, of which 16 partial ones are kept."""
    reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(start, dtype), name="extreme")
    data = te.placeholder((3, 64), name="data")
    axis = te.reduce_axis((0, 64))
    extremes = te.compute((3,), lambda row: reducer(data[row, axis], axis=[axis]), name="found")
    sch = s_tir.Schedule(te.create_prim_func([data, extremes]))
    _, inner = sch.split(sch.get_loops(sch.get_sblock("found"))[1], [None, 16])
    sch.rfactor(inner, 1)
    return sch.mod


@pytest.mark.parametrize(
    ("combine", "start", "expected"), [(tirx.max, -np.inf, np.max), (tirx.min, np.inf, np.min)], ids=["max", "min"]
)
def test_partial_extremes_are_right_and_infinite_where_all_is(combine, start, expected):
    data = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    data[1] = start
    run = tvm.compile(split_row(combine, start), target="llvm")
    result = tvm.runtime.tensor(np.zeros(3, np.float32))
    run(tvm.runtime.tensor(data), result)
    assert np.array_equal(result.numpy(), expected(data, axis=1))


def test_a_process_that_knows_them_ends_without_a_crash():
    done = subprocess.run(
        [sys.executable, "-c", "import schedules.templates.cpu.rows"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
