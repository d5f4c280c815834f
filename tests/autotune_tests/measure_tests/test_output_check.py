from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.measure.output_check import (
    BYTE_DRAWS,
    DRAWS,
    FENCE_BYTES,
    FEW,
    PERIOD,
    Expected,
    aligned,
    draws,
    fence,
    fill_normal,
    is_fenced,
    make_inputs,
    normal_block,
    poison,
)
from schedules.task import Task

BLOCK = normal_block(0)


def task_of(shapes: list[tuple[int, ...]], dtypes: list[str], constants: tuple[int, ...] = (), flop: int = 0) -> Task:
    return Task("k" * 16, "t", "none", "op", tuple(shapes), tuple(dtypes), constants, flop, 1)


@pytest.mark.parametrize(("shape", "dtype"), [((3, 5), "float32"), ((), "float64"), ((0, 4), "int8"), ((7,), "bool")])
def test_what_is_written_next_to_an_array_is_seen(shape, dtype):
    for offset in (0, -1):
        array = aligned(shape, np.dtype(dtype))
        array[...] = 1
        fence(array)
        assert is_fenced(array)
        whole = array.base
        start = array.ctypes.data - whole.ctypes.data if array.size else FENCE_BYTES
        assert not array.size or array.ctypes.data % 64 == 0
        whole[start + array.nbytes if offset == 0 else start - 1] = 0
        assert not is_fenced(array)


def test_inputs_are_the_same_in_every_process_and_differ_by_seed() -> None:
    task = task_of([(8, 16), (8, 16)], ["float32"] * 2)
    (first,), (again,), (other,) = (make_inputs(task, BLOCK, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_inputs_start_at_a_cache_line() -> None:
    task = task_of([(3, 5), (7,), (), (3, 5)], ["float32", "int8", "float32", "float32"])
    assert all(array.ctypes.data % 64 == 0 for array in make_inputs(task, BLOCK, 0))


def test_the_weight_is_scaled_so_that_sums_stay_in_range() -> None:
    depth = 4096
    task = task_of([(16, depth), (depth, 64), (64,), (16, 64)], ["float32"] * 4, (1, 2), 2 * depth * 16 * 64)
    x, weight, bias = make_inputs(task, BLOCK, 0)
    assert 0.8 < np.std(x @ weight) < 1.6  # the outliers add a quarter
    assert 0.5 < np.std(bias) < 2


def test_integers_can_index_every_axis_and_booleans_vary() -> None:
    task = task_of([(50,), (3, 9), (50,), (9,)], ["int64", "float32", "bool", "float32"])
    index, _, flag = make_inputs(task, BLOCK, 0)
    assert index.min() == 0
    assert index.max() == 2
    assert set(flag.tolist()) == {True, False}


def test_bytes_use_all_levels_where_nothing_is_multiplied_too() -> None:
    signed, unsigned = make_inputs(task_of([(5000,), (5000,), (5000,)], ["int8", "uint8", "float32"]), BLOCK, 0)
    assert (signed.min(), signed.max(), unsigned.min(), unsigned.max()) == (-128, 127, 0, 255)


def test_small_tasks_are_checked_on_draws_that_differ_in_activations_alone() -> None:
    task = task_of([(), (1,), ()], ["float32"] * 3, (1,))
    assert draws(task) == DRAWS
    drawn = [make_inputs(task, BLOCK, 0, draw=draw) for draw in range(draws(task))]
    assert {float(x) > 0 for x, _ in drawn} == {True, False}
    assert len({float(constant[0]) for _, constant in drawn}) == 1
    assert draws(task_of([(FEW,), (FEW,)], ["float32"] * 2)) == 1


def test_odd_draws_of_quantised_activations_spread_wider_and_weights_stay() -> None:
    task = task_of([(FEW,), (FEW,), (FEW,)], ["uint8", "int8", "int32"], (1,))
    assert draws(task) == BYTE_DRAWS
    (narrow, weight), (wide, same) = (make_inputs(task, BLOCK, 0, draw=draw) for draw in range(2))
    assert wide.astype(float).mean() > 1.3 * narrow.astype(float).mean()
    assert (weight == same).all()


def test_positive_inputs_have_roots_and_logarithms() -> None:
    (x,) = make_inputs(task_of([(1000,), (1000,)], ["float32"] * 2), BLOCK, 0, positive=True)
    assert np.isfinite(np.log(x)).all()


def test_long_arrays_repeat_the_block_from_their_offset() -> None:
    out = aligned((2 * PERIOD,), np.dtype("float32"))
    fill_normal(out, BLOCK, 5)
    np.testing.assert_array_equal(out[:10], BLOCK[5:15])
    np.testing.assert_array_equal(out[:PERIOD], out[PERIOD:])


def product(depth: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((32, depth), np.float32), rng.standard_normal((depth, 32), np.float32)
    return a, b, (a @ b).astype(np.float32)


@pytest.mark.parametrize("depth", [9, 512, 25088])
def test_another_order_of_summation_is_right(depth: int) -> None:
    a, b, want = product(depth)
    backwards = np.zeros_like(want)
    for k in reversed(range(depth)):
        backwards += a[:, k, None] * b[None, k]
    assert Expected(want).mismatch(backwards) == ""


@pytest.mark.parametrize("depth", [9, 512, 25088])
def test_one_term_left_out_is_wrong(depth: int) -> None:
    a, b, want = product(depth)
    assert "differ from the untuned build" in Expected(want).mismatch(want - a[:, 0, None] * b[None, 0])


def test_the_message_says_how_many_where_and_what() -> None:
    want = np.ones((4, 5), np.float32)
    got = want.copy()
    got[2, 3] = 2
    assert Expected(want).mismatch(got) == (
        "1 of 20 outputs differ from the untuned build, first at [2, 3]: 2.0 instead of 1.0"
    )


def test_nan_and_infinity_are_wrong_unless_the_reference_has_them_there() -> None:
    want = np.array([1, np.nan, np.inf, 2], np.float32)
    assert Expected(want).mismatch(want.copy()) == ""
    assert Expected(want).mismatch(np.array([np.nan, np.nan, np.inf, 2], np.float32))
    assert Expected(want).mismatch(np.array([1, 5, np.inf, 2], np.float32))
    assert Expected(want).mismatch(np.array([1, np.nan, -np.inf, 2], np.float32))
    assert Expected(np.ones(4, np.float32)).mismatch(np.full(4, np.nan, np.float32))


def test_integers_must_be_equal_and_poison_is_not() -> None:
    want = np.arange(6, dtype=np.int64)
    assert Expected(want).mismatch(want.copy()) == ""
    got = want.copy()
    poison(got)
    assert Expected(want).mismatch(got).startswith("6 of 6")


def test_an_output_of_one_number() -> None:
    assert Expected(np.array(2.0, np.float32)).mismatch(np.array(2.0, np.float32)) == ""
    assert "first at []" in Expected(np.array(2.0, np.float32)).mismatch(np.array(3.0, np.float32))


@pytest.mark.parametrize(("dtype", "step"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_shorter_floats_may_differ_by_their_own_rounding(dtype: str, step: float) -> None:
    def stored(values: np.ndarray) -> np.ndarray:
        return (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else values.astype(dtype)

    want = np.ones(8, np.float32)
    assert Expected(stored(want), dtype).mismatch(stored(want * np.float32(1 + step))) == ""
    assert Expected(stored(want), dtype).mismatch(stored(want * np.float32(1 + 16 * step)))
    assert Expected(stored(want), dtype).mismatch(stored(want * np.float32(np.nan)))


DEPTH = 256


def quantised_product() -> tuple[np.ndarray, ...]:
    """x (m, k) uint8, w (k, n) int8, bias (n,) int32, scale (n,) float32 as a kernel is checked on."""
    shapes = [(32, DEPTH), (DEPTH, 64), (64,), (64,), (32, 64)]
    dtypes = ["uint8", "int8", "int32", "float32", "uint8"]
    return tuple(make_inputs(task_of(shapes, dtypes, (1, 2, 3), 2 * DEPTH * 32 * 64), BLOCK, 0))


def stored(sums: np.ndarray, scale: np.ndarray, zero: int = 128) -> np.ndarray:
    return np.clip(np.round(sums * scale) + zero, 0, 255).astype(np.uint8)


def test_quantised_operands_use_all_levels_and_results_are_seldom_clipped() -> None:
    x, w, bias, scale = quantised_product()
    assert (x.min(), x.max(), w.min(), w.max()) == (0, 255, -128, 127)
    levels = stored(x.astype(np.int32) @ w.astype(np.int32) + bias, scale)
    assert np.mean((levels > 0) & (levels < 255)) > 0.7
    assert np.std(levels) > 20


def saturated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sums of pairs cut to 16 bits, as ``vpmaddubsw`` makes them."""
    pairs = (x.astype(np.int32)[:, :, None] * w.astype(np.int32)[None]).reshape(len(x), DEPTH // 2, 2, -1).sum(2)
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(1)


@pytest.mark.parametrize("mutant", ["zero", "weights", "one_term", "saturated", "bias", "signed"])
def test_wrong_quantised_products_are_seen(mutant: str) -> None:
    x, w, bias, scale = quantised_product()
    wide, weights = x.astype(np.int32), w.astype(np.int32)
    want = stored(wide @ weights + bias, scale)
    wrong = {
        "zero": lambda: stored(wide @ weights + bias, scale, 129),
        "weights": lambda: stored(np.int32(1.01 * (wide @ weights)) + bias, scale),
        "one_term": lambda: stored(wide[:, :-1] @ weights[:-1] + bias, scale),
        "saturated": lambda: stored(saturated(x, w) + bias, scale),
        "bias": lambda: stored(wide @ weights, scale),
        "signed": lambda: stored(x.view(np.int8).astype(np.int32) @ weights + bias, scale),
    }[mutant]()
    expected = Expected(want, "uint8", quantised=True)
    assert not expected.mismatch(want)
    assert expected.mismatch(wrong)


def test_the_scale_of_dynamic_quantisation_brings_sums_to_levels_too() -> None:
    task = task_of([(8, DEPTH), (DEPTH, 8), (), (8, 8)], ["uint8", "int8", "float32", "float32"], (1,), 2 * DEPTH * 64)
    x, w, scale = make_inputs(task, BLOCK, 0)
    assert np.abs(x.astype(np.int32) @ w.astype(np.int32) * scale).max() < 10_000


def test_a_few_bytes_may_be_rounded_the_other_way() -> None:
    want = np.arange(1000, dtype=np.uint8)
    got = want.copy()
    got[5] += 1
    assert not Expected(want, "uint8").mismatch(got)
    got[6] += 2
    assert Expected(want, "uint8").mismatch(got)
    got = want.copy()
    got[::50] ^= 1
    assert Expected(want, "uint8").mismatch(got)


def test_a_few_numbers_may_be_a_level_off_where_bytes_are_multiplied() -> None:
    want = np.random.default_rng(0).standard_normal(4000).astype(np.float32)
    got = want.copy()
    got[5:9] += 1 / 64
    assert not Expected(want, quantised=True).mismatch(got)
    assert Expected(want).mismatch(got)
    got[9] += 1 / 64
    assert Expected(want, quantised=True).mismatch(got), "too many"
    got = want.copy()
    got[5] += 1 / 8
    assert Expected(want, quantised=True).mismatch(got), "too far"
    got = want[:100].copy()
    got[5] -= 1 / 64
    assert not Expected(want[:100], quantised=True).mismatch(got)


def test_numbers_that_kernels_share_a_parameter_for_are_those_of_one_of_them() -> None:
    task = replace(task_of([(8, 16), (2,), (8, 16)], ["float32"] * 3, (1,)), numbers=(0.25, 3.0))
    assert make_inputs(task, BLOCK, 0)[1].tolist() == [0.25, 3.0]


def test_few_bytes_of_a_sum_that_is_quantised_inside_may_be_levels_off() -> None:
    want = np.full(3000, 100, np.uint8)
    got = want.copy()
    got[7], got[8], got[9] = 98, 104, 97
    assert not Expected(want, "uint8", quantised=True).mismatch(got)
    assert "98 instead of 100" in Expected(want, "uint8").mismatch(got)  # of no product of bytes
    got[10] = 103
    assert Expected(want, "uint8", quantised=True).mismatch(got)  # more than a thousandth
    got = want.copy()
    got[7] = 105
    assert "105 instead of 100" in Expected(want, "uint8", quantised=True).mismatch(got)
