"""Attention without a cache against NumPy: sizes, places of the operands, masks, what is no number."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from schedules.lower import BASELINE, normalise
from schedules.templates.by_hand.plain_attention import (
    LARGEST_SIZE,
    MOST_TILES,
    PlainShape,
    for_target,
    plain_attention,
    tiling_for,
    waste,
)
from tests.shipping import loaded_kernel

LOWEST = float(np.finfo(np.float32).min)

CASES = {
    "a tile": PlainShape(1, 2, 32, 32, 16, 32, 0.3),
    "ragged": PlainShape(1, 2, 33, 70, 16, 32, 0.3),
    "many tiles": PlainShape(2, 3, 300, 41, 32, 16, -0.3),
    "heads first": PlainShape(2, 3, 77, 50, 64, 64, 0.3, by_head=(True, True, True, True)),
    "heads first in some": PlainShape(2, 3, 77, 50, 64, 64, 0.3, by_head=(True, False, True, False)),
}

MASKS = {
    "columns": (2, 1, 1, 77),
    "columns of all": (1, 1, 1, 77),
    "columns of heads": (1, 3, 1, 77),
    "rows": (1, 1, 100, 77),
    "everything": (2, 3, 100, 77),
}


def arrays_of(shape, fill=None):
    """Queries, keys, values and a mask of random numbers, or what ``fill`` makes of its indices."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape.tensor(index)).astype(np.float32) for index in range(3))
    extents = (*shape.mask[:3], max(1, shape.mask[3]))
    mask = rng.standard_normal(extents) if fill is None else fill(*np.indices(extents))
    return q, k, v, mask.astype(np.float32)


def expected(shape, q, k, v, mask):
    q, k, v = (
        array if by_head else array.transpose(0, 2, 1, 3)
        for array, by_head in zip((q, k, v), shape.by_head, strict=False)
    )
    with np.errstate(all="ignore"):
        scores = (q @ k.transpose(0, 1, 3, 2)) * np.float32(shape.scale) + (mask if shape.mask[3] else 0)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.where(np.isnan(weights), 0, weights) @ v if shape.zero_unseen else weights @ v
    return out if shape.by_head[3] else out.transpose(0, 2, 1, 3)


@lru_cache
def built(shape, threads, isa):
    return loaded_kernel(normalise(plain_attention(shape)), BASELINE, host_target(threads, isa))


def computed(shape, arrays, threads=1, isa=None):
    out = np.full(shape.tensor(3), 7, np.float32)
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, out)]
    built(shape, threads, isa)(*tensors)
    return tensors[-1].numpy()


def agree(shape, arrays, **how):
    np.testing.assert_allclose(computed(shape, arrays, **how), expected(shape, *arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("isa", [None, "generic"])
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, isa):
    agree(CASES[name], arrays_of(CASES[name]), threads=2, isa=isa)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_added(name):
    shape = PlainShape(2, 3, 100, 77, 32, 32, 0.3, MASKS[name])
    agree(shape, arrays_of(shape))


@pytest.mark.parametrize("least", [LOWEST, -np.inf])
@pytest.mark.parametrize(
    "hidden",
    [
        lambda b, h, row, column: column >= 20 + 30 * b,
        lambda b, h, row, column: column < 40 + 10 * b,
        lambda b, h, row, column: column > row,
        lambda b, h, row, column: column < row,
        lambda b, h, row, column: column % 2 == h % 2,
    ],
    ids=["behind", "before", "causal", "earlier", "every other"],
)
def test_what_a_mask_hides_does_not_count(hidden, least):
    shape = PlainShape(2, 3, 100, 100, 16, 16, 0.3, (2, 3, 100, 100))
    arrays = arrays_of(shape, lambda *at: np.where(hidden(*at), least, 0.5))
    agree(shape, arrays)


@pytest.mark.parametrize("least", [LOWEST, -np.inf])
@pytest.mark.parametrize("zero_unseen", [False, True])
@pytest.mark.parametrize("mask", [(2, 1, 1, 70), (2, 1, 40, 70)])
def test_a_row_that_is_shown_nothing(mask, zero_unseen, least):
    """As softmax has it: the mean of all values under finite masks, NaN under −∞, which some exporters replace by 0."""
    shape = PlainShape(2, 2, 40, 70, 16, 16, 0.3, mask, zero_unseen=zero_unseen)
    agree(shape, arrays_of(shape, lambda b, h, row, column: np.where(b == 1, least, 0.0)))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("zero_unseen", [False, True])
@pytest.mark.parametrize("mask", [(2, 1, 1, 100), (2, 2, 100, 100)])
def test_what_is_no_number_counts_where_it_is_hidden_too(mask, zero_unseen, which, number):
    """0 · NaN is NaN in ONNX Runtime."""
    shape = PlainShape(2, 2, 100, 100, 16, 16, 0.3, mask, zero_unseen=zero_unseen)
    arrays = arrays_of(shape, lambda b, h, row, column: np.where(column > np.maximum(row, 20), LOWEST, 0.0))
    arrays[which][1, 90, 1, 3] = number
    agree(shape, arrays)


@pytest.mark.parametrize("mask", [(2, 1, 1, 100), (2, 2, 100, 100)])
def test_a_choice_drops_what_is_no_number(mask):
    shape = PlainShape(2, 2, 100, 100, 16, 16, 0.3, mask, chosen=True)
    arrays = arrays_of(shape, lambda b, h, row, column: np.where(column > 40, LOWEST, 0.0))
    whole = expected(shape, *arrays)
    arrays[1][:, 50] = np.nan
    np.testing.assert_allclose(computed(shape, arrays), whole, rtol=1e-4, atol=1e-5)


def test_a_hidden_block_is_left_out():
    """Keys behind the mask are not multiplied: finite numbers whose products overflow do no harm."""
    shape = PlainShape(1, 1, 64, 96, 16, 16, 1.0, (1, 1, 1, 96))
    arrays = arrays_of(shape, lambda b, h, row, column: np.where(column >= 32, LOWEST, 0.0))
    arrays[1][:, 32:] = 1e30
    arrays[0][:] *= 1e30
    few = replace(shape, positions=32, mask=(1, 1, 1, 32))
    out = computed(shape, arrays)
    np.testing.assert_array_equal(
        out, computed(few, (arrays[0], arrays[1][:, :32], arrays[2][:, :32], arrays[3][..., :32]))
    )


def test_jobs_share_what_they_copy_and_occupy_all_threads():
    shape = PlainShape(1, 8, 512, 512, 32, 32)
    target = host_target(1)
    one, many = (tiling_for(shape, replace(target, threads=threads)) for threads in (1, 48))
    assert one.tiles == MOST_TILES
    assert shape.heads * -(-512 // one.tile // many.tiles) >= 48
    jobs = shape.heads * -(-512 // one.tile // MOST_TILES)
    assert f"T.parallel({jobs})" in str(for_target(plain_attention(shape), target))


@pytest.mark.parametrize("size", [16, 64, LARGEST_SIZE])
def test_what_a_job_keeps_fits_the_least_stack_of_a_thread(size):
    tiling = tiling_for(PlainShape(1, 8, 512, 512, size, size), host_target(1))
    kept = tiling.tiles * tiling.tile * 2 * size + tiling.block * (2 * size + 2 * tiling.tile)
    assert 4 * kept < 124 * 1024


def test_waste_is_what_tiles_compute_in_vain():
    assert waste(64, 64) == 1
    assert waste(33, 64) == pytest.approx(64 / 33)
    assert waste(64, 41) == pytest.approx(48 / 41)
