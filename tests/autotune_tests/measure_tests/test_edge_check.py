"""Candidates run on NaN, infinities and extremes as well, and right ones pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.measure.edge_check import KINDS, ExpectedEdges, edged, float_edges
from autotune.measure.output_check import DRAWS, draws, make_inputs, normal_block
from schedules.task import Task

BLOCK = normal_block(0)


def task_of(size: int, *dtypes: str, constants: tuple[int, ...] = ()) -> Task:
    """Elementwise on ``size`` numbers."""
    return Task("t", "add", "f", "add", ((size,),) * len(dtypes), dtypes, constants, size, size)


def special(array: np.ndarray) -> list[int]:
    """How many numbers are NaN, +∞, −∞, large, −large, minus zero and denormal."""
    large = np.finfo(array.dtype).max / 2
    tiny = np.finfo(array.dtype).tiny
    finite = np.isfinite(array)
    return [
        int(np.count_nonzero(places))
        for places in (
            np.isnan(array),
            np.isposinf(array),
            np.isneginf(array),
            finite & (array > large),
            finite & (array < -large),
            (array == 0) & np.signbit(array),
            (np.abs(array) < tiny) & (array != 0),
        )
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_task_with_one_draw_gets_every_kind_once(dtype: str) -> None:
    task = task_of(8192, dtype, dtype)
    (before,) = inputs = make_inputs(task, BLOCK, 0)
    (after,) = edged(task, inputs)
    assert draws(task) == 1
    assert special(after) == [1] * 7
    turned = before[::-1]
    assert np.count_nonzero(after.view(f"u{after.itemsize}") != turned.view(f"u{after.itemsize}")) <= 7
    assert np.isfinite(before).all(), "what is timed and compared stays as it is"


def test_a_small_task_gets_one_kind_in_each_draw() -> None:
    task = task_of(64, "float32", "float32")
    counts = np.array([special(edged(task, make_inputs(task, BLOCK, 0, draw=n), n)[0]) for n in range(DRAWS)])
    assert ((counts > 0).sum(axis=1) == [1, 1, 1, 1, 1, 2, 1, 1]).all()
    assert (counts.sum(axis=0) > 0).all()


def test_two_inputs_have_their_edges_at_different_places() -> None:
    task = task_of(8192, "float32", "float32", "float32")
    one, other = edged(task, make_inputs(task, BLOCK, 0))
    assert not (~np.isfinite(one) & ~np.isfinite(other)).any()


def test_bfloat16_edges_are_bits() -> None:
    task = task_of(8192, "bfloat16", "bfloat16")
    (array,) = edged(task, make_inputs(task, BLOCK, 0))
    numbers = (array.astype(np.uint32) << 16).view(np.float32)
    assert [int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())] == [1, 2]
    (large,) = float_edges("bfloat16")[3]
    assert np.isclose(np.array(large << 16, np.uint32).view(np.float32), 3e38, rtol=0.01)


def test_constants_and_what_may_be_an_index_stay() -> None:
    task = task_of(8192, "float32", "int64", "bool", "float32", "float32", constants=(3,))
    inputs = make_inputs(task, BLOCK, 0)
    same = [one is other for one, other in zip(inputs, edged(task, inputs), strict=True)]
    assert same == [False, True, True, True]


def test_a_scalar_is_an_edge_in_some_draws_only() -> None:
    """It may decide every output."""
    task = replace(task_of(64, "float32", "float32", "float32"), shapes=((64,), (), (64,)))
    scalars = [float(edged(task, make_inputs(task, BLOCK, 0, draw=n), n)[1]) for n in range(KINDS)]
    assert [abs(x) < 100 for x in scalars[::2]] == [True] * 3
    assert not any(1e-30 < abs(x) < 100 for x in scalars[1::2])


WANT = np.array([[1.0, np.nan, np.inf], [-np.inf, 3e38, -0.0]], np.float32)


def changed(place: tuple[int, int], value: float) -> np.ndarray:
    got = WANT.copy()
    got[place] = value
    return got


@pytest.mark.parametrize(
    ("place", "value", "right", "right_in_tiles"),
    [
        ((0, 0), 2.0, True, True),  # the ordinary check compares numbers
        ((0, 0), np.nan, False, True),
        ((0, 0), np.inf, False, True),
        ((0, 1), 0.0, False, False),
        ((0, 1), np.inf, True, True),
        ((0, 2), np.nan, True, True),
        ((0, 2), 3e38, False, False),
        ((0, 2), -np.inf, False, True),
        ((1, 0), np.inf, False, True),
        ((1, 2), 0.0, True, True),
    ],
)
def test_what_is_compared(place: tuple[int, int], value: float, right: bool, right_in_tiles: bool) -> None:
    expected = ExpectedEdges.of(task_of(6, "float32", "float32"), WANT)
    assert (expected.mismatch(WANT), expected.mismatch(WANT, spreads=True)) == ("", "")
    for spreads, passes in ((False, right), (True, right_in_tiles)):
        words = expected.mismatch(changed(place, value), spreads)
        assert (words == "") is passes, words
        if not passes:
            assert words.startswith("1 of 6 outputs differ from the untuned build where inputs are NaN")
            assert f"first at {list(place)}" in words


def test_outputs_that_are_no_floats_are_compared_as_ever() -> None:
    want = np.array([0, -128, 127], np.int8)
    expected = ExpectedEdges.of(task_of(3, "float32", "int8"), want)
    assert expected.mismatch(want.copy()) == ""
    assert "instead of" in expected.mismatch(np.array([0, 127, 127], np.int8))


def test_bfloat16_outputs_are_read_as_numbers() -> None:
    bits = np.array([0x7FC0, 0x3F80, 0x7F80], np.uint16)
    expected = ExpectedEdges.of(task_of(3, "bfloat16", "bfloat16"), bits)
    assert expected.mismatch(bits) == ""
    assert "first at [0]: 0.0 instead of NaN" in expected.mismatch(np.array([0, 0x3F80, 0x7F80], np.uint16))


def test_truth_values_have_edges_too():
    want = np.array([True, False, True, True])
    edges = ExpectedEdges.of(task_of(4, "float32", "bool"), want)
    assert edges.mismatch(want.copy()) == ""
    assert edges.mismatch(~want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_huge_outputs_are_compared(dtype: str) -> None:
    top = np.finfo(dtype).max
    want = (np.array([0.5, -0.5, 1e-3, 1e-7, 0]) * top).astype(dtype)
    expected = ExpectedEdges.of(task_of(5, dtype, dtype), want)
    assert not expected.mismatch(want)
    assert not expected.mismatch((want * 0.99).astype(dtype))
    assert not expected.mismatch(want * np.array([1, 1, 0, 9, 0], dtype)), "less is rounding of what cancels"
    for place, value in ((0, 0.0), (1, 0.5 * top), (4, 0.1 * top)):
        got = want.copy()
        got[place] = value
        assert bool(expected.mismatch(got)) is (dtype != "float16")
        assert not expected.mismatch(got, spreads=True)
