"""Running sums against NumPy: every shape, type and order of the steps; NaN stays behind where it was."""

from dataclasses import replace

import numpy as np
import pytest

from schedules.lower import BASELINE, claim, normalise
from schedules.target import Target
from schedules.templates.by_hand.running import Running, running
from tests.schedules_tests.programs import run

TARGET = Target(kind="llvm", isa="avx2", threads=2)
SHAPES = {
    "one number": (1, 1, 1),
    "one row": (1, 37, 1),
    "rows side by side": (16, 9, 1),
    "rows that eight do not divide": (6, 9, 1),
    "a prime number of rows": (7, 5, 1),
    "few columns": (3, 5, 7),
    "columns of whole vectors": (2, 5, 48),
    "columns of many vectors": (2, 3, 128),
    "a vector and a rest": (2, 4, 21),
    "one step": (4, 1, 20),
    "columns that threads share": (4, 16, 128),
    "rows that threads share": (64, 64, 1),
}
ORDERS = [(False, False), (True, False), (False, True), (True, True)]


def expected(form, x):
    x = x[:, ::-1] if form.reverse else x
    total = (np.multiply if form.product else np.add).accumulate(x, axis=1, dtype=x.dtype)
    if form.exclusive:
        first = np.full_like(x[:, :1], int(form.product))
        total = np.concatenate([first, total[:, :-1]], 1)
    return total[:, ::-1] if form.reverse else total


def computed(form, x):
    func = normalise(running(form))
    assert claim(func, TARGET).template == "baseline"
    return run(func, BASELINE, TARGET, [x])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("exclusive", "reverse"), ORDERS)
def test_every_shape_and_order(name, exclusive, reverse):
    form = Running(*SHAPES[name], "float32", exclusive=exclusive, reverse=reverse)
    x = np.random.default_rng(0).standard_normal(SHAPES[name]).astype(np.float32)
    np.testing.assert_allclose(computed(form, x), expected(form, x), 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "uint64"])
@pytest.mark.parametrize("product", [False, True])
def test_every_type(dtype, product):
    form = Running(2, 9, 3, dtype, product=product)
    x = np.random.default_rng(1).integers(1, 5, (2, 9, 3)).astype(dtype)
    for shape in (form, replace(form, outer=8, columns=1)):
        part = np.resize(x, (shape.outer, shape.steps, shape.columns))
        np.testing.assert_array_equal(computed(shape, part), expected(shape, part))


@pytest.mark.parametrize("columns", [1, 20])
def test_what_is_no_number_counts_from_where_it_is(columns):
    form = Running(8, 6, columns, "float32")
    x = np.ones((8, 6, columns), np.float32)
    x[3, 2, 0], x[5, 4, 0] = np.nan, -np.inf
    np.testing.assert_array_equal(computed(form, x), expected(form, x))
