"""Calls on constants, folded in NumPy."""

import numpy as np
import pytest
from tvm import relax

from autotune.importer.layouts.assign import fold_call

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def call(make, *args):
    """The call that ``make`` writes, normalised, with its shape."""
    normalised = relax.BlockBuilder().normalize(make(*(relax.const(arg) for arg in args)))
    return normalised, tuple(int(size) for size in normalised.ty.shape)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: relax.op.permute_dims(x, [1, 0]), X.T),
        (lambda x: relax.op.expand_dims(x, [0, 3]), X[None, :, :, None]),
        (relax.op.sqrt, np.sqrt(X)),
        (lambda x: relax.op.reshape(x, (6,)), X.reshape(6)),
    ],
)
def test_of_one_constant(make, expected):
    written, shape = call(make, X)
    folded = fold_call(written, [X], shape, "float32")
    assert np.shares_memory(folded, X) == (
        written.op.name != "relax.sqrt"
    )  # a weight of gigabytes is copied once: packed
    np.testing.assert_array_equal(folded, expected)


def test_of_two_constants_and_none():
    written, shape = call(relax.op.divide, X, X)
    np.testing.assert_array_equal(fold_call(written, [X, X], shape, "float32"), np.ones_like(X))
    assert fold_call(written, [X, None], shape, "float32") is None
    written, shape = call(relax.op.sin, X)
    assert fold_call(written, [X], shape, "float32") is None


def test_places_that_count_from_the_end():
    places = np.array([0, -1, 2], np.int64)
    written, shape = call(relax.op.less, places, np.int64(0))
    negative = fold_call(written, [places, np.int64(0)], shape, "bool")
    assert negative.tolist() == [False, True, False]
    written, shape = call(relax.op.add, places, np.int64(3))
    wrapped = fold_call(written, [places, np.int64(3)], shape, "int64")
    written, shape = call(relax.op.where, negative, wrapped, places)
    assert fold_call(written, [negative, wrapped, places], shape, "int64").tolist() == [0, 2, 2]
