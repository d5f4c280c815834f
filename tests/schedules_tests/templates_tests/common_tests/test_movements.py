"""Concatenations, and channels of blocked images in any order: their numbers, and by what they are recognised."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from schedules.lower import BASELINE
from schedules.target import Target
from schedules.templates.common.movements import Run, concat, concat_axis, pick_channels, picked_order, runs_of
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, inputs, run

IMAGES = ((2, 2, 3, 4, 8), (2, 1, 3, 4, 8), (2, 3, 3, 4, 8))
SHUFFLED = np.arange(48).reshape(2, 24).T.reshape(-1)

ORDERS = {
    "all": np.arange(48),
    "some across the parts": np.arange(12, 36),
    "shuffled": SHUFFLED,
    "half of what was shuffled": SHUFFLED[8:32],
    "some twice": np.array([3, 3, 17, 17, 30, 30, 30, 30]),
    "any": np.random.default_rng(0).permutation(48)[:24],
}


def picks(order):
    parts = [te.placeholder(size, name=f"p{index}") for index, size in enumerate(IMAGES)]
    return from_te(*parts, pick_channels(parts, order))


@pytest.mark.parametrize("name", ORDERS)
def test_channels_are_those_of_the_order(name: str) -> None:
    func, order = picks(ORDERS[name]), ORDERS[name]
    arrays = inputs(func)
    flat = np.concatenate([part.transpose(0, 1, 4, 2, 3).reshape(2, -1, 3, 4) for part in arrays], 1)[:, order]
    expected = flat.reshape(2, -1, 8, 3, 4).transpose(0, 1, 3, 4, 2)
    assert np.array_equal(run(func, BASELINE, Target("llvm", isa="avx2"), arrays), expected)


def test_runs_are_as_few_as_can_be() -> None:
    assert runs_of(range(5, 13)) == (Run(0, 1, 8, 5),)
    assert runs_of(SHUFFLED) == (Run(0, 2, 24, 0), Run(1, 2, 24, 24))
    assert runs_of(range(5, 13), [8]) == (Run(0, 1, 3, 5), Run(3, 1, 5, 8))
    assert runs_of([7]) == (Run(0, 1, 1, 7),)
    assert runs_of([4, 2, 9]) == (Run(0, 1, 1, 4), Run(1, 1, 1, 2), Run(2, 1, 1, 9))


def test_only_picks_have_an_order() -> None:
    assert picked_order(picks(ORDERS["any"])) == tuple(ORDERS["any"])
    assert all(picked_order(case.func) is None for case in CASES[:3])


SIZES = ((2, 3, 4), (2, 1, 4), (2, 5, 4))


def joined() -> object:
    parts = [te.placeholder(size, name=f"p{index}") for index, size in enumerate(SIZES)]
    return from_te(*parts, concat(parts, 1))


def test_parts_lie_one_after_the_other() -> None:
    arrays = inputs(joined())
    result = run(joined(), BASELINE, Target("llvm", isa="avx2"), arrays)
    np.testing.assert_array_equal(result, np.concatenate(arrays, 1))


def test_only_a_concatenation_has_an_axis() -> None:
    assert concat_axis(joined()) == 1
    assert all(concat_axis(case.func) is None for case in CASES[:3])
