"""Sums that threads share: what is claimed, and that every way to share is right."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.lower import claim
from schedules.target import Target
from tests.schedules_tests.templates_tests.cuda_tests.cases import FEW, OTHERS
from tests.schedules_tests.templates_tests.cuda_tests.test_cuda_templates import check

TARGET = Target.cuda("sm_90")


@pytest.mark.parametrize("case", [*FEW, *OTHERS], ids=lambda case: case.name)
def test_products_that_others_leave_are_claimed(case) -> None:
    claimed = claim(case.func, TARGET)
    assert claimed.template == "cuda_reduce"
    assert all(claimed.space.contains(config) for config in claimed.space.initial)


@pytest.mark.parametrize("case", [few for few in FEW if few.name in ("one_row_by_sixteen", "excited_batch")])
def test_guesses_and_random_configs_are_right(case) -> None:
    space = claim(case.func, TARGET).space
    for config in (space.initial[0], *space.sample(2, np.random.default_rng(3))):
        check(case, config)


def test_small_products_share_sums_among_a_warp_at_least() -> None:
    space = claim(next(case.func for case in FEW if case.name == "one_output"), TARGET).space
    assert {row["inner"] for row in (dict(config.items) for config in space.initial)} <= {32, 64, 128, 256, 512}
