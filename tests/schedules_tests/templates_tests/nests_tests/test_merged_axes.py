"""Merged axes: which ones are merged, and that every config computes the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.common.structure import SPATIAL, blocks_in_order, extents
from schedules.templates.nests.merged_axes import merged, turned_axis
from tests.schedules_tests.programs import from_te, inputs, run

WIDE = Target(kind="llvm", isa="avx512", threads=2)


def tensor(*shape, dtype="float32", name="x"):
    return te.placeholder(shape, dtype, name=name)


def scaled(x, s):
    return te.compute(x.shape, lambda n, c, h, w: x(n, c, h, w) * s(c, 0, 0), name="y")


def turned(x):
    return te.compute((x.shape[2], x.shape[0], x.shape[1]), lambda k, i, j: x(i, j, k) + 1.0, name="y")


def within_border(x):
    return te.compute(
        (x.shape[0], x.shape[1] + 2, x.shape[2]),
        lambda i, j, k: tirx.if_then_else(tirx.all(j > 0, j <= x.shape[1]), x(i, j - 1, k), -1.0),
        name="y",
    )


def enlarged(x):
    return te.compute((x.shape[0], 2 * x.shape[1], x.shape[2]), lambda i, j, k: x(i, j // 2, k), name="y")


def rows_of(x, at):
    return te.compute((at.shape[0], *x.shape[1:]), lambda i, j, k: x(at(i), j, k), name="y")


def counted(x):
    return te.compute(x.shape, lambda i, j: x(i, j) * j.astype("float32"), name="y")


def out_of_blocks(x):
    """(t, C, h, w, 16) → (16·C, t, h, w)."""
    shape = (16 * x.shape[1], x.shape[0], x.shape[2], x.shape[3])
    return te.compute(shape, lambda c, t, h, w: x(t, c // 16, h, w, c % 16), name="y")


X, S = tensor(2, 5, 3, 7), tensor(5, 1, 1, name="s")
CUBE, AT = tensor(6, 5, 7), tensor(4, dtype="int32", name="at")
FUNCTIONS = {
    "equal tensors": ([X], lambda x: te.compute(x.shape, lambda *i: x(*i) * 2.0, name="y"), (210,)),
    "a number per channel": ([X, S], scaled, (2, 5, 21)),
    "a permutation": ([CUBE], turned, (7, 30)),
    "a wide permutation": ([tensor(4, 8, 9)], turned, (9, 32)),
    "blocks of channels, turned": ([tensor(3, 2, 8, 12, 16)], out_of_blocks, (2, 16, 3, 96)),
    "another shape": (
        [CUBE],
        lambda x: te.compute((6, 35), lambda i, j: x(i, j // 7, j % 7) + 1.0, name="y"),
        (210,),
    ),
    "a border along one axis": ([CUBE], within_border, (6, 7, 7)),
    "an enlarged axis": ([CUBE], enlarged, (6, 10, 7)),
    "rows by index": ([CUBE, AT], rows_of, (4, 35)),
    "a number of the axis": ([tensor(3, 20)], counted, (3, 20)),
    "axes of one element": ([tensor(1, 9, 1, 5)], lambda x: te.compute(x.shape, lambda *i: -x(*i), name="y"), (45,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_axes_that_are_left_and_the_numbers_of_every_config(name):
    operands, compute, expected = FUNCTIONS[name]
    func = from_te(*operands, compute(*operands))
    (block,) = blocks_in_order(merged(func))
    assert tuple(int(axis.dom.extent) for axis in block.iter_vars) == expected
    arrays = inputs(func)
    arrays = [array % 6 if array.dtype.kind in "iu" else array for array in arrays]
    space = claim(func, WIDE).space
    results = [run(func, config, WIDE, arrays) for config in map(space.config, space.rows)]
    reference = evaluated(name, *arrays)
    assert len(results) > 1
    assert math.prod(reference.shape) == math.prod(expected)
    for other in results:
        np.testing.assert_array_equal(other, reference)


def evaluated(name, x, other=None):
    if name == "equal tensors":
        return x * 2
    if name == "a number per channel":
        return x * other[None]
    if name in ("a permutation", "a wide permutation"):
        return x.transpose(2, 0, 1) + 1
    if name == "another shape":
        return x.reshape(6, 35) + 1
    if name == "blocks of channels, turned":
        return x.transpose(1, 4, 0, 2, 3).reshape(32, 3, 8, 12)
    if name == "a border along one axis":
        return np.pad(x, [(0, 0), (1, 1), (0, 0)], constant_values=-1)
    if name == "an enlarged axis":
        return x.repeat(2, axis=1)
    if name == "rows by index":
        return x[other]
    return x * np.arange(20, dtype=np.float32) if name == "a number of the axis" else -x


def test_the_axes_of_several_stages():
    """A stage that is not inlined has axes of its own."""
    x, s = tensor(2, 5, 3, 7), tensor(5, 1, 1, name="s")
    half = te.compute(x.shape, lambda *i: x(*i) / 2, name="h")
    func = merged(from_te(x, s, scaled(half, s)))
    assert [extents(block, SPATIAL) for block in blocks_in_order(func)] == [(210,), (2, 5, 21)]
    assert [len(buffer.ty.shape) for buffer in (*func.params, *func.body.block.alloc_buffers)] == [1, 1, 1, 1]


def test_what_is_read_twice_is_inlined_with_its_values_named_twice():
    x = tensor(3, 5, 7)
    power = te.compute(x.shape, lambda *i: te.exp(x(*i)), name="e")
    twice = te.compute(x.shape, lambda *i: te.tanh(power(*i)) + te.sigmoid(power(*i)), name="t")
    func = from_te(x, te.compute(x.shape, lambda *i: twice(*i) * twice(*i), name="y"))
    array = inputs(func)[0]
    total = np.tanh(np.exp(array)) + 1 / (1 + np.exp(-np.exp(array)))
    np.testing.assert_allclose(run(func, claim(func, WIDE).space.initial[0], WIDE, [array]), total**2, 1e-5)


def test_a_border_behind_a_reshape_leaves_whole_images():
    """(t, c, h, w) of (c, t, h, w) written as a reshape, with an image of zeros at either end."""
    x = tensor(6, 4, 5, 7)

    def reshaped(c, t, h, w):
        place = ((c * 4 + t) * 5 + h) * 7 + w
        return x(place // 140, place // 35 % 4, place // 7 % 5, place % 7)

    apart = te.compute(x.shape, reshaped, name="r")
    turned_over = te.compute((4, 6, 5, 7), lambda t, c, h, w: apart(c, t, h, w), name="t")
    padded = te.compute(
        (6, 6, 5, 7),
        lambda t, c, h, w: tirx.if_then_else(tirx.all(t >= 1, t < 5), turned_over(t - 1, c, h, w), 0.0),
        name="y",
    )
    func = from_te(x, padded)
    config = claim(func, WIDE).space.initial[0]
    sizes = [extents(block, SPATIAL) for block in blocks_in_order(lower(func, config, WIDE).mod["main"])]
    assert sizes == [(6, 6, 35)]
    array = inputs(func)[0]
    expected = np.pad(array.transpose(1, 0, 2, 3), [(1, 1), (0, 0), (0, 0), (0, 0)])
    np.testing.assert_array_equal(run(func, config, WIDE, [array]), expected)


TURNED = {"a permutation": None, "a wide permutation": 0, "blocks of channels, turned": 1, "equal tensors": None}


@pytest.mark.parametrize(("name", "axis"), TURNED.items())
def test_the_axis_that_is_read_as_it_lies(name, axis):
    operands, compute, _ = FUNCTIONS[name]
    (block,) = blocks_in_order(merged(from_te(*operands, compute(*operands))))
    assert turned_axis(block) == axis


def test_sums_and_what_computes_nothing_stay_as_they_are():
    x = tensor(4, 6)
    k = te.reduce_axis((0, 6), "k")
    total = from_te(x, te.compute((4,), lambda i: te.sum(x(i, k), axis=k), name="y"))
    empty = tensor(0, 6, name="e")
    nothing = from_te(empty, te.compute((0, 6), lambda i, j: empty(i, j) + 1, name="y"))
    number = tensor(name="n")
    single = from_te(number, te.compute((), lambda: number() + 1, name="y"))
    for func in (total, nothing, single):
        assert merged(func).same_as(func)
