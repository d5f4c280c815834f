"""Joined axes: which ones are joined, and that the same is computed."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, te, tirx

from schedules.lower import BASELINE, claim
from schedules.target import Target
from schedules.templates.common.structure import blocks_in_order, parameter_shapes
from schedules.templates.nests.joined_axes import joined
from tests.schedules_tests.programs import from_relax, from_te, inputs, run

TARGET = Target(kind="llvm", isa="avx512", threads=2)

op = relax.op


def scaled(scale: tuple[int, ...]) -> tirx.PrimFunc:
    """x - the sum over channels of x times a tensor of shape ``scale``."""
    x, s = te.placeholder((2, 6, 5, 7), name="x"), te.placeholder(scale, name="s")
    k = te.reduce_axis((0, 6), "k")

    def number(*at: tirx.Expr) -> tirx.Expr:
        return s(*(tirx.const(0, "int32") if size == 1 else index for size, index in zip(scale, at, strict=True)))

    total = te.compute((2, 5, 7), lambda n, h, w: te.sum(x(n, k, h, w) * number(n, k, h, w), axis=k), name="total")
    return from_te(x, s, te.compute(x.shape, lambda n, c, h, w: x(n, c, h, w) - total(n, h, w), name="y"))


FUNCTIONS = {
    "a softmax of channels": (
        from_relax(lambda x: op.nn.softmax(x, 1), (2, 6, 5, 7)),
        [(2, 6, 35), (2, 6, 35)],
    ),
    "with a number for each": (scaled((1, 6, 1, 1)), [(2, 6, 35), (1, 6, 1, 1), (2, 6, 35)]),
    "with an image of its own": (scaled((2, 1, 5, 7)), [(2, 6, 35), (2, 1, 35), (2, 6, 35)]),
    "with a number for each row": (scaled((1, 1, 5, 1)), [(2, 6, 5, 7), (1, 1, 5, 1), (2, 6, 5, 7)]),
    "sums of images": (from_relax(lambda x: op.sum(x, [2, 3]), (2, 6, 5, 7)), [(12, 35), (12,)]),
    "sums of some axes": (from_relax(lambda x: op.sum(x, [0, 2]), (4, 6, 5, 8, 3)), [(4, 6, 5, 24), (6, 24)]),
    "sums of a middle axis": (from_relax(lambda x: op.max(x, [1]), (4, 6, 8)), [(4, 6, 8), (4, 8)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_of_parameters_and_numbers_of_every_config(name: str) -> None:
    func, expected = FUNCTIONS[name]
    assert [*parameter_shapes(joined(func))] == expected
    arrays = inputs(func)
    reference = run(func, BASELINE, TARGET, arrays)
    space = claim(func, TARGET).space
    for config in map(space.config, space.rows[:40]) if space.enumerated else space.initial:
        np.testing.assert_allclose(run(func, config, TARGET, arrays), reference, rtol=2e-5, atol=1e-6)


def test_axes_that_numbers_are_computed_of_stay() -> None:
    x = te.placeholder((3, 4, 8), name="x")
    k = te.reduce_axis((0, 3), "k")
    weighed = te.compute((4, 8), lambda i, j: te.sum(x(k, i, j) * i.astype("float32"), axis=k), name="y")
    turned = te.compute((8, 4), lambda j, i: te.sum(x(k, i, j), axis=k), name="y")
    for compute in (weighed, turned):
        func = from_te(x, compute)
        assert joined(func).same_as(func)


def test_stages_keep_their_names_and_marks() -> None:
    func = from_relax(lambda x: op.nn.log_softmax(x, 1), (1, 6, 5, 7))
    names = [block.name_hint for block in blocks_in_order(func)]
    assert [block.name_hint for block in blocks_in_order(joined(func))] == names
