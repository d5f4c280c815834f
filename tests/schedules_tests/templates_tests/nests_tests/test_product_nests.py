"""Jobs follow the knob ``outer``, tiles hold the operand with fewer vectors, and chunks lie outside of tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from schedules.config import Config
from schedules.lower import claim
from schedules.target import Target
from schedules.templates.common.prefetch import FEWEST_TILES, OFTEN
from schedules.templates.nests.loop_nest import BEFORE, EARLIER, IN_JOBS, Nest, Role
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.templates_tests.nests_tests.nest_cases import is_direct, nest_of

TARGET = Target("llvm", isa="avx512", mcpu="skylake-avx512", threads=2)
PRODUCTS = ("conv2d_3x3", "conv2d_ragged", "conv2d_long", "matmul_rows", "matmul_prime", "matmul_long")


def nests(name: str) -> Iterator[tuple[Config, Nest]]:
    """Every config of a case, and its nest."""
    func = next(case.func for case in CASES if case.name == name)
    space = claim(func, TARGET).space
    for config in map(space.config, space.rows):
        if is_direct(config):
            yield config, nest_of(func, config, whole=False)


@pytest.mark.parametrize("name", PRODUCTS)
def test_neighbouring_jobs_share_data_or_weights(name: str) -> None:
    for config, nest in nests(name):
        last = nest.of(Role.JOB)[-1].axis
        assert (last == nest.weight_axis) == (config.integer("outer") == 1)
        assert config.integer("outer") == 0 or nest.jobs_sharing_weights == 1


@pytest.mark.parametrize("name", ["conv2d_3x3", "conv2d_long", "matmul_long"])
def test_all_tiles_of_a_job_use_one_chunk(name: str) -> None:
    cut = [nest for _, nest in nests(name) if nest.chunks > 1]
    assert cut
    for nest in cut:
        roles = [loop.role for loop in nest.loops]
        assert roles.index(Role.CHUNK) < roles.index(Role.TILE) < roles.index(Role.SUM)
        assert nest.panel * nest.chunks == nest.vectors * math.prod(nest.size(axis) for axis in nest.summed)


@pytest.mark.parametrize("name", ["conv2d_3x3", "conv2d_ragged"])
def test_a_tile_holds_what_has_fewer_vectors(name: str) -> None:
    for _, nest in nests(name):
        innermost = nest.of(Role.REGISTER)[-1].axis
        assert (innermost == "o") == (nest.vectors <= nest.numbers)


def test_padding_is_where_the_knob_says() -> None:
    seen = {(config.integer("pad"), nest.padding) for config, nest in nests("conv2d_3x3")}
    assert seen == {(0, BEFORE), (1, IN_JOBS)}
    assert {nest.padding for _, nest in nests("conv2d_ragged")} == {""}


def test_last_tiles() -> None:
    assert any("ow" in nest.ragged for _, nest in nests("conv2d_ragged"))
    ragged = [nest for _, nest in nests("matmul_prime") if nest.ragged]
    assert ragged
    assert {nest.last_tile for nest in ragged} == {EARLIER}


@pytest.mark.parametrize("name", ["matmul_rows", "matmul_long"])
def test_small_panels_are_prefetched_in_every_few_steps(name: str) -> None:
    """A step asks for half a vector or more, where enough tiles share a panel."""
    split = [nest for _, nest in nests(name) if len(nest.of(Role.SUM)) == 2]
    assert split
    for nest in split:
        asking, between = nest.of(Role.SUM)
        assert nest.tiles >= FEWEST_TILES
        vectors = nest.panel / nest.tiles / nest.streams / asking.extent
        assert vectors >= OFTEN
        assert vectors / between.extent < OFTEN
