"""The space of products on ordinary cores: launches that the device can run."""

from __future__ import annotations

import pytest

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP
from tests.schedules_tests.programs import Case
from tests.schedules_tests.templates_tests.cuda_tests.cases import FEW, PRODUCTS

TARGET = Target.cuda("sm_90")


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: case.name)
def test_every_config_is_a_launch_of_whole_warps(case: Case) -> None:
    space = claim(case.func, TARGET).space
    columns = space.columns(space.rows)
    threads = (columns["tm"] / columns["rm"]) * (columns["tn"] / columns["rn"])
    assert (threads % WARP == 0).all()
    assert (threads <= TARGET.max_threads).all()
    assert (4 * (columns["tm"] + columns["tn"]) * columns["tk"] <= STATIC_BYTES).all()


def test_products_smaller_than_a_warp_are_left_to_others() -> None:
    assert all(claim(case.func, TARGET).template != "cuda_gemm" for case in FEW)
