"""Ranks and places, by the kernels alone."""

import numpy as np
import pytest
import tvm

from autotune.importer.operators.dynamic.ordering import block_of, blocks_of, placed, ranked
from schedules.lower import normalise


def ranks(x, count, largest=True):
    """The first places of every row of ``x``."""
    out = tvm.runtime.tensor(np.full((x.shape[0], count), -1, np.int64))
    func = normalise(ranked(*x.shape, count, str(x.dtype), largest))
    tvm.compile(func, target="llvm")["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 8, 9, 15, 16, 17, 300, 2000])
def test_all_of_a_row_in_order(size, dtype):
    x = np.random.default_rng(size).integers(-9, 9, (2, size)).astype(dtype)
    assert np.array_equal(ranks(x, size), np.argsort(-x, 1, "stable"))
    assert np.array_equal(ranks(x, size, largest=False), np.argsort(x, 1, "stable"))


def test_infinite_numbers_and_zeros_of_both_signs():
    x = np.array([[-np.inf, 0.0, -0.0, np.inf, -1e-40, 1e-40]], np.float32)
    assert ranks(x, 6).tolist() == [[3, 5, 1, 2, 4, 0]]
    assert ranks(x, 6, largest=False).tolist() == [[0, 4, 1, 2, 5, 3]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_by_its_sign(dtype):
    x = np.array([[1.0, np.nan, -np.inf, -np.nan, np.inf]], dtype)
    assert ranks(x, 5).tolist() == [[1, 4, 0, 2, 3]]
    assert ranks(x, 5, largest=False).tolist() == [[3, 2, 0, 4, 1]]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "int8", "uint8"])
@pytest.mark.parametrize("largest", [True, False])
def test_the_ends_of_whole_numbers(dtype, largest):
    limits = np.iinfo(dtype)
    x = np.array([[limits.min, 3, limits.max, limits.min + 1, limits.min, limits.max]], dtype)
    order = sorted(range(6), key=lambda i: (-int(x[0, i]) if largest else int(x[0, i]), i))
    assert ranks(x, 6, largest).tolist() == [order]


@pytest.mark.parametrize("count", [1, 16, 5000])
def test_blocks_hold_a_row(count):
    assert blocks_of(count) * block_of(count) >= count
    assert (blocks_of(count) - 1) * block_of(count) < count


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_places_of_what_is_true(share):
    mask = (np.random.default_rng(0).random(40) < share).astype(np.int32)
    out = tvm.runtime.tensor(np.full(41, -1, np.int64))
    tvm.compile(normalise(placed(40)), target="llvm")["main"](tvm.runtime.tensor(mask), out)
    packed, true = out.numpy(), np.flatnonzero(mask)
    assert packed[0] == len(true)
    assert np.array_equal(packed[1 : 1 + len(true)], true)
    assert ((packed[1:] >= 0) & (packed[1:] < 40)).all()
