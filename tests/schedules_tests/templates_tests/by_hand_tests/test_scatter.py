"""Scatters against NumPy: every reduction, type and way to share the work; places repeat and count backwards."""

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi

from autotune.host.machine import host_target
from schedules.lower import BASELINE, normalise
from schedules.templates.by_hand.scatter import REDUCTIONS, TYPES, ScatterShape, for_threads, scatter
from tests.schedules_tests.programs import run

ROWS = ScatterShape(1, (13,), 40, 20, True, "float32", "int64", "add")
ELEMENTS = ScatterShape(1, (13,), 40, 20, False, "float32", "int64", "add")

SHAPES = {
    "a row narrower than a vector": replace(ROWS, width=3),
    "rows of a number": replace(ROWS, width=1),
    "rows of many vectors": replace(ROWS, width=160),
    "several indices": replace(ROWS, sizes=(3, 4, 5), index="int32"),
    "slabs": replace(ROWS, slabs=3),
    "one row": replace(ROWS, sizes=(1,)),
    "places of elements": ELEMENTS,
    "places of elements in slabs": replace(ELEMENTS, slabs=3, index="int32"),
    "a histogram": replace(ELEMENTS, width=1, count=500),
    "columns for threads": replace(ROWS, width=64, count=900),
    "destinations for threads": replace(ROWS, sizes=(101,), width=20, count=2000),
    "slabs for threads": replace(ROWS, slabs=7, count=300),
    "columns of two slabs for threads": replace(ROWS, slabs=2, width=64, count=600),
    "elements in columns for threads": replace(ELEMENTS, width=64, count=900),
    "a histogram that one thread makes": replace(ELEMENTS, width=1, count=1 << 16),
}
SPLIT = {
    "columns for threads": (2, 1),
    "destinations for threads": (1, 2),
    "slabs for threads": (1, 1),
    "columns of two slabs for threads": (1, 1),
    "elements in columns for threads": (2, 1),
    "a histogram that one thread makes": (0, 0),
}
"""How two threads share the work; one thread does the others."""


def arrays_of(shape: ScatterShape, special=False):
    rng = np.random.default_rng(0)
    data, updates = (
        (rng.standard_normal(size) * 3 if "float" in shape.dtype else rng.integers(0, 100, size)).astype(shape.dtype)
        for size in ((shape.slabs, shape.rows, shape.width), (shape.slabs, shape.count, shape.width))
    )
    if special:
        data[:, ::3], updates[:, ::4], updates[:, 1::5] = np.nan, np.nan, np.inf
    last = len(shape.sizes) if shape.whole_rows else shape.width
    sizes = shape.sizes if shape.whole_rows else shape.sizes * shape.width
    places = np.stack([rng.integers(-size, size, (shape.slabs, shape.count)) for size in sizes], -1)
    assert places.shape[-1] == last
    return [data, places.astype(shape.index), updates]


def joined(reduction, old, new):
    with np.errstate(all="ignore"):
        if reduction == "add":
            return old + new
        if reduction == "mul":
            return old * new
        if reduction == "none":
            return new
        return np.where(old < new if reduction == "min" else old > new, old, new)


def expected(shape: ScatterShape, data, places, updates):
    """One update after the other, as ONNX Runtime does."""
    out = data.copy()
    for slab in range(shape.slabs):
        for n in range(shape.count):
            at = places[slab, n].astype(np.int64)
            if shape.whole_rows:
                row = np.ravel_multi_index(tuple(np.where(at < 0, at + shape.sizes, at)), shape.sizes)
                out[slab, row] = joined(shape.reduction, out[slab, row], updates[slab, n])
            else:
                index = slab, at, np.arange(shape.width)
                out[index] = joined(shape.reduction, out[index], updates[slab, n])
    return out


def made(shape: ScatterShape, threads, arrays):
    return run(normalise(scatter(shape)), BASELINE, host_target(threads), arrays)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", SHAPES)
def test_every_way_to_share_the_work_gives_the_same_bits(case, threads):
    shape = SHAPES[case]
    arrays = arrays_of(shape)
    np.testing.assert_array_equal(made(shape, threads, arrays), expected(shape, *arrays))


@pytest.mark.parametrize("case", SHAPES)
def test_threads_share_what_is_worth_it(case):
    assert SHAPES[case].split(2) == SPLIT.get(case, (0, 0))
    assert SHAPES[case].split(1) == (0, 0)


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_every_reduction_of_every_type(dtype):
    for reduction in REDUCTIONS:
        for base in (ROWS, ELEMENTS):
            shape = replace(base, dtype=dtype, reduction=reduction)
            arrays = arrays_of(shape)
            np.testing.assert_array_equal(made(shape, 1, arrays), expected(shape, *arrays), reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_is_no_number_stays_where_onnx_runtime_keeps_it(reduction):
    for base in (ROWS, ELEMENTS, replace(ROWS, width=1)):
        shape = replace(base, reduction=reduction)
        arrays = arrays_of(shape, special=True)
        np.testing.assert_array_equal(made(shape, 1, arrays), expected(shape, *arrays))


def test_places_outside_write_inside():
    arrays = arrays_of(ROWS)
    arrays[1][0, :, 0] = np.random.default_rng(0).choice([-(1 << 40), -14, 13, 1 << 40], ROWS.count)
    assert np.isfinite(made(ROWS, 1, arrays)).all()


def test_a_kernel_is_made_again_for_its_threads():
    shape = SHAPES["columns for threads"]
    again = for_threads(scatter(shape), 2)
    assert tvm_ffi.structural_equal(again, scatter(shape, 2))
    assert not tvm_ffi.structural_equal(again, scatter(shape, 1))
