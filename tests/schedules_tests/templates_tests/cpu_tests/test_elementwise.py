"""Chains of stages without a reduction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.cpu.elementwise import CUT, MOST_PARTS
from schedules.templates.instructions.outer_choices import APART
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, run

WIDE = Target(kind="llvm", isa="avx512", threads=2)


def test_what_would_grow_is_not_inlined() -> None:
    case = next(case for case in CASES if case.name == "elementwise_growing")
    space = claim(case.func, WIDE).space
    assert len(str(lower(case.func, space.initial[0], WIDE).mod)) < 20_000


def test_a_small_tensor_stays_on_one_thread_at_first() -> None:
    case = next(case for case in CASES if case.name == "elementwise_chain")
    space = claim(case.func, WIDE).space
    assert space.initial[0].integer("chunks") == 1
    assert {config.integer("chunks") for config in map(space.config, space.rows)} == {1, 2, 8, 32}


def bordered(rows: int, row: int, low: int, high: int) -> tuple[tirx.PrimFunc, list[np.ndarray], np.ndarray]:
    """Rows with a border of another tensor, an example, and the result."""
    x, edge = te.placeholder((rows, row), name="x"), te.placeholder((rows,), name="edge")

    def element(r: tirx.Var, i: tirx.Var) -> tirx.Expr:
        within = tirx.And(i >= low, i < low + row)
        return tirx.if_then_else(within, x[r, i - low], edge[r])

    func = from_te(x, edge, te.compute((rows, low + row + high), element, name="y"))
    rng = np.random.default_rng(rows)
    data, ends = rng.standard_normal((rows, row), np.float32), rng.standard_normal(rows, np.float32)
    sides = [np.repeat(ends[:, None], width, 1) for width in (low, high)]
    return func, [data, ends], np.hstack([sides[0], data, sides[1]])


@pytest.mark.parametrize(("rows", "row", "low", "high"), [(7, 40, 3, 4), (5, 13, 1, 0), (6, 31, 0, 6), (6, 56, 4, 4)])
def test_rows_are_cut_where_a_border_begins(rows: int, row: int, low: int, high: int) -> None:
    func, arrays, expected = bordered(rows, row, low, high)
    space = claim(func, WIDE).space
    for config in map(space.config, space.rows):
        assert np.array_equal(run(func, config, WIDE, arrays), expected)
    first = lower(func, space.initial[0], WIDE).mod["main"]
    assert CUT in str(first)


@pytest.mark.parametrize("shape", [(37, 53), (70, 19, 33), (33, 17)])
def test_rows_that_no_vector_divides_are_turned_in_vectors(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    func = from_te(x, te.compute(shape[::-1], lambda *at: x(*at[::-1]) * 2.0, name="y"))
    space = claim(func, WIDE).space
    assert space.initial[0].integer("vector") == WIDE.lanes()
    array = np.random.default_rng(0).standard_normal(shape, np.float32)
    for config in map(space.config, space.rows):
        assert np.array_equal(run(func, config, WIDE, [array]), array.transpose() * 2)


def test_rows_whose_border_is_whole_vectors_are_not_cut() -> None:
    func, arrays, expected = bordered(6, 128, 64, 64)
    config = claim(func, WIDE).space.initial[0]
    assert CUT not in str(lower(func, config, WIDE).mod["main"])
    assert np.array_equal(run(func, config, WIDE, arrays), expected)


def test_borders_behind_many_conditions_are_not_cut() -> None:
    x = te.placeholder((8, 13), name="x")

    def element(r: tirx.Var, i: tirx.Var) -> tirx.Expr:
        value = x[r, i]
        for place in range(MOST_PARTS + 1):
            value = tirx.if_then_else(i < place, x[r, 12 - i] * float(place), value)
        return value

    func = from_te(x, te.compute((8, 13), element, name="y"))
    assert CUT not in str(lower(func, claim(func, WIDE).space.initial[0], WIDE).mod["main"])


def test_rows_that_no_vector_divides_are_loops_of_their_own() -> None:
    x, places = te.placeholder((6, 11), name="x"), te.placeholder((9,), "int32", name="places")
    func = from_te(x, places, te.compute((6, 9), lambda r, i: x[r, places[i]], name="y"))
    first = lower(func, claim(func, WIDE).space.initial[0], WIDE)
    assert [int(first.get(loop).extent) for loop in first.get_loops(first.get_sblock("y"))] == [6, 9]


def test_a_tensor_of_one_number_has_a_kernel() -> None:
    """Every config of a scale that is computed when a model runs, whose stages may have no loop at all."""
    x = te.placeholder((), "float32", name="x")
    func = from_te(x, te.compute((), lambda: x() * 3.0, name="y"))
    space = claim(func, WIDE).space
    for config in map(space.config, space.rows):
        assert run(func, config, WIDE, [np.array(2, np.float32)]) == 6


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("apart", [True, False])
def test_pixels_of_few_channels(channels: int, dtype: str, apart: bool) -> None:
    """Put together from images of one channel each, and taken apart."""
    shape = (2, 9, 23, channels) if apart else (2, channels, 9, 23)
    order = (0, 3, 1, 2) if apart else (0, 2, 3, 1)
    x = te.placeholder(shape, dtype, name="x")
    turned = [shape[axis] for axis in order]
    func = from_te(x, te.compute(turned, lambda *at: x(*(at[order.index(axis)] for axis in range(4))), name="y"))
    array = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    space = claim(func, WIDE).space
    for config in map(space.config, space.rows):
        assert np.array_equal(run(func, config, WIDE, [array]), array.transpose(order))


@pytest.mark.parametrize("step", [2, 3])
def test_strided_parts_of_a_concatenation(step: int) -> None:
    """Rows are left to LLVM, with the choice of a part in front of them."""
    x = te.placeholder((6, 16 * step), name="x")

    def element(part: tirx.Var, r: tirx.Var, i: tirx.Var) -> tirx.Expr:
        return tirx.if_then_else(part < 1, x[r, i * step], x[r, i * step + 1] * 2.0)

    func = from_te(x, te.compute((2, 6, 16), element, name="y"))
    array = np.random.default_rng(0).standard_normal((6, 16 * step), np.float32)
    expected = np.stack([array[:, ::step], array[:, 1::step] * 2])
    space = claim(func, WIDE).space
    for config in map(space.config, space.rows):
        assert np.array_equal(run(func, config, WIDE, [array]), expected)
    assert APART in str(lower(func, space.initial[0], WIDE).mod["main"])


def test_long_chains_have_several_vectors_side_by_side() -> None:
    x = te.placeholder((64, 1024), name="x")
    func = from_te(x, te.compute((64, 1024), lambda i, j: te.tanh(te.exp(x[i, j])), name="y"))
    assert claim(func, WIDE).space.initial[0].integer("vector") == 2 * WIDE.lanes()


@pytest.mark.parametrize(("shape", "dtype"), [((3, 5, 64), "float32"), ((4, 3, 80), "float16"), ((2, 3, 128), "uint8")])
def test_vectors_of_rows_are_loops_of_their_own(shape: tuple[int, ...], dtype: str) -> None:
    """In one loop over all vectors, divisions would find the row of each."""
    x = te.placeholder(shape, dtype, name="x")
    func = from_te(x, te.compute((shape[1], shape[0], shape[2]), lambda i, j, k: x(j, i, k), name="y"))
    space, arrays = claim(func, WIDE).space, [np.arange(math.prod(shape)).reshape(shape).astype(dtype)]
    for config in map(space.config, space.rows):
        assert np.array_equal(run(func, config, WIDE, arrays), arrays[0].swapaxes(0, 1))
    first = lower(func, space.initial[0], WIDE)
    block = first.get_sblock("y")
    assert len(first.get_loops(block)) == 3
    assert int(first.get(first.get_loops(block)[0]).extent) == shape[0] * shape[1]
