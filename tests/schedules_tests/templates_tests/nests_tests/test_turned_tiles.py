"""Moves by turned squares: every config is right, beside pages that nobody may touch; others are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.common.structure import nodes_below
from schedules.templates.nests.turned_tiles import SIZES
from tests.schedules_tests.programs import from_te, inputs, run

WIDE = Target(kind="llvm", isa="avx512", threads=2)

PERMUTATIONS = [
    ((37, 53), (1, 0)),
    ((16, 16), (1, 0)),
    ((8, 9), (1, 0)),
    ((5, 40, 19), (2, 0, 1)),
    ((3, 8, 9, 20), (0, 3, 1, 2)),
    ((2, 21, 3, 17), (0, 2, 3, 1)),
    ((4, 3, 11, 2, 18), (4, 1, 0, 3, 2)),
]
"""Shapes, and the order in which the result has their axes."""


def permuted(shape, order, dtype="float32", of=lambda x: x):
    x = te.placeholder(shape, dtype, name="x")
    axes = [order.index(axis) for axis in range(len(shape))]
    y = te.compute([shape[axis] for axis in order], lambda *at: of(x(*(at[axis] for axis in axes))), name="y")
    return from_te(x, y)


def by_squares(func) -> bool:
    config = claim(func, WIDE).space.initial[0]
    return bool(nodes_below(lower(func, config, WIDE).mod["main"].body, tirx.Shuffle))


@pytest.mark.parametrize(
    ("shape", "order", "dtype"),
    [(*case, dtype) for case in PERMUTATIONS for dtype in ("float32", "float16", "uint8")]
    + [(*PERMUTATIONS[0], dtype) for dtype in SIZES],
)
def test_permutations(shape, order, dtype):
    func = permuted(shape, order, dtype)
    assert by_squares(func)
    space, arrays = claim(func, WIDE).space, inputs(func)
    rows = space.rows if dtype == "float32" else space.rows[:1]
    for config in map(space.config, rows):
        assert np.array_equal(run(func, config, WIDE, arrays), arrays[0].transpose(order))


@pytest.mark.parametrize("of", [lambda x: x * 2.0 + 1.0, lambda x: tirx.Cast("int8", tirx.max(x, x * 100.0))])
def test_what_is_computed_of_an_element(of):
    func = permuted((33, 21), (1, 0), of=of)
    arrays = inputs(func)
    (x,) = arrays
    expected = x * 2 + 1 if str(func.params[-1].ty.dtype) == "float32" else (x * 100).astype(np.int8)
    assert by_squares(func)
    for config in map(claim(func, WIDE).space.config, claim(func, WIDE).space.rows):
        np.testing.assert_allclose(run(func, config, WIDE, arrays), expected.T, rtol=1e-6)


def test_functions_of_an_element_that_bind_names():
    """A sigmoid before a permutation, as of the heads of detectors: each column of a square has names of its own."""
    func = permuted((33, 21), (1, 0), of=lambda x: tirx.sigmoid(x) * tirx.tanh(x))
    arrays = inputs(func)
    (x,) = arrays
    assert by_squares(func)
    for config in map(claim(func, WIDE).space.config, claim(func, WIDE).space.rows):
        np.testing.assert_allclose(run(func, config, WIDE, arrays), (np.tanh(x) / (1 + np.exp(-x))).T, rtol=2e-6)


@pytest.mark.parametrize("seed", range(8))
def test_places_within_steps_are_put_in_order(seed):
    """Random sizes: (n, steps · channels / 16, counts, 16) → (n, channels, counts · steps), as of a decoder."""
    rng = np.random.default_rng(seed)
    steps, channels = int(rng.choice([2, 4, 6, 8])), 8 * int(rng.integers(1, 6))
    batch, count = int(rng.integers(1, 3)), int(rng.integers(9, 40))
    x = te.placeholder((batch, steps * channels // 16, count, 16), name="x")

    def element(n, c, q):
        channel = q % steps * channels + c
        return x[n, channel // 16, q // steps, channel % 16]

    func = from_te(x, te.compute((batch, channels, count * steps), element, name="y"))
    arrays = inputs(func, seed)
    plain = arrays[0].transpose(0, 1, 3, 2).reshape(batch, steps, channels, count)
    expected = plain.transpose(0, 2, 3, 1).reshape(batch, channels, -1)
    assert by_squares(func)
    for config in map(claim(func, WIDE).space.config, claim(func, WIDE).space.rows):
        assert np.array_equal(run(func, config, WIDE, arrays), expected)


def test_others_are_left_alone():
    """Copies, short axes, two tensors, indices as numbers, conditions on places, and rows of one element."""
    x, z = te.placeholder((40, 30), name="x"), te.placeholder((30, 40), name="z")
    shape = (30, 40)
    assert not by_squares(permuted((40, 5, 30), (1, 0, 2)))
    assert not by_squares(permuted((7, 300), (1, 0)))
    assert not by_squares(permuted((300, 7), (1, 0)))
    for element in (
        lambda i, j: x(j, i) + z(i, j),
        lambda i, j: x(j, i) + i.astype("float32"),
        lambda i, j: tirx.if_then_else(i < 3, 0.0, x(j, i)),
    ):
        y = te.compute(shape, element, name="y")
        tensors = (x, z) if len(y.op.input_tensors) > 1 else (x,)
        assert not by_squares(from_te(*tensors, y))
    v = te.placeholder((4, 16), name="v")
    assert not by_squares(from_te(v, te.compute((64, 30), lambda c, _: v(c // 16, c % 16), name="y")))


@pytest.mark.parametrize(("isa", "side"), [("avx512", 16), ("avx2", 8)])
def test_first_guesses_have_squares_of_a_register(isa, side):
    space = claim(permuted((37, 53), (1, 0)), Target(kind="llvm", isa=isa, threads=1)).space
    assert space.initial[0].integer("vector") == side
