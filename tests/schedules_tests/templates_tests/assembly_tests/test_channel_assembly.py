"""Channels picked from blocked images in assembly: every size of number, every number of sources, jobs and threads."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16
from tvm import te, tirx

from schedules.target import Target
from schedules.templates.common.movements import pick_channels
from tests.schedules_tests.programs import Array, Shape, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    covering,
    left,
    numbers,
    run_by_tvm,
    run_watched,
    runs_here,
    text_of,
)

PARTS: list[Shape] = [(2, 2, 3, 5, 16), (2, 1, 3, 5, 16), (2, 5, 3, 5, 16)]
CHANNELS = 8 * 16
TYPES = {"bfloat16": bfloat16}


def picks(order: Array, dtype: str = "float32", parts: list[Shape] = PARTS) -> tirx.PrimFunc:
    tensors = [te.placeholder(shape, dtype, name=f"p{number}") for number, shape in enumerate(parts)]
    return from_te(*tensors, pick_channels(tensors, order.tolist()))


def picked(arrays: list[Array], order: Array) -> Array:
    n, _, h, w, b = arrays[0].shape
    flat = np.concatenate([array.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w) for array in arrays], 1)[:, order]
    return flat.reshape(n, -1, b, h, w).transpose(0, 1, 3, 4, 2)


ORDERS = {
    "whole blocks": np.arange(CHANNELS),
    "half": np.arange(24, 24 + 64),
    "shuffled": np.arange(CHANNELS).reshape(2, -1).T.reshape(-1),
    "of every part": np.arange(CHANNELS).reshape(16, -1).T.reshape(-1)[:32],
    "any of four blocks": np.random.default_rng(0).permutation(64),
    "one for all": np.full(16, 77),
}


@runs_here
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in ORDERS), *(("of every part", dtype) for dtype in ("int32", "uint8", "bfloat16"))],
)
def test_picks(name: str, dtype: str) -> None:
    func = picks(ORDERS[name], dtype)
    draws = np.random.default_rng(0)
    arrays = [draws.integers(0, 250, shape).astype(TYPES.get(dtype, dtype)) for shape in PARTS]
    expected = picked(arrays, ORDERS[name])
    for config in covering(func, 4):
        text = text_of(func, config)
        for threads in (1, 2, 5):
            result = run_watched(text, arrays, expected.shape, threads, expected.dtype)
            assert np.array_equal(result, expected), config.to_json()
    assert np.array_equal(run_by_tvm(text, arrays, expected.shape, dtype=expected.dtype), result)


@runs_here
def test_one_pixel() -> None:
    func = picks(np.arange(8, 24), parts=[(1, 2, 1, 1, 16)])
    arrays = numbers(func)
    for config in covering(func, 2):
        result = run_watched(text_of(func, config), arrays, (1, 1, 1, 1, 16), 2)
        assert np.array_equal(result, picked(arrays, np.arange(8, 24)))


def test_what_is_left_to_the_compiler() -> None:
    order = ORDERS["half"]
    assert not left(picks(order))
    assert left(picks(order), Target(kind="llvm", isa="avx2", threads=2))
    assert left(picks(order[:8], parts=[(1, 8, 3, 5, 8)])), "blocks of eight channels"
    wide = np.arange(0, 16 * 9, 9)
    assert left(picks(wide, parts=[(1, 9, 3, 5, 16)])), "a block of nine others"
    assert left(picks(np.arange(16 * 65), parts=[(1, 65, 1, 1, 16)])), "much code"
