"""Nests as a person would draw them, and what they say of themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.nests.loop_nest import Role
from tests.emulation.narrow_cases import all_cases
from tests.schedules_tests.programs import Case
from tests.schedules_tests.templates_tests.nests_tests.nest_cases import NESTED, is_direct, nest_of

TARGET = Target("llvm", isa="avx512", mcpu="skylake-avx512", threads=2)
PAIRS = Target.cpu("neoverse-n2", 2)

DRAWN: dict[str, dict[str, int]] = {
    "conv2d_1x1": {"outer": 1},
    "conv2d_3x3": {"outer": 0, "pad": 1, "rows": 8, "th": 2},
    "conv2d_ragged": {"tw": 7},
    "conv2d_long": {"depth": 2},
    "conv2d_straddling": {"th": 1},
    "conv2d_u8s8_first": {"pad": 0},
    "conv2d_bf16m": {},
    "matmul_rows": {"tm": 4, "rows": 12, "tn": 1},
    "matmul_vector": {},
    "matmul_prime": {"tm": 8},
    "matmul_long": {"depth": 384, "outer": 0},
    "matmul_u8s8m": {"tm": 2},
    "depthwise_3x3": {"unroll": 1, "pad": 0},
    "depthwise_taps": {"unroll": 0, "pad": 1},
    "pool_max": {},
}
"""Case → knobs of a config worth reading; the first of those in the order of the space."""


def drawn(name: str, knobs: dict[str, int]) -> str:
    """A nest with the config that it stands for."""
    cases = {case.name: (case, PAIRS) for case in all_cases(PAIRS)} | {case.name: (case, TARGET) for case in NESTED}
    case, target = cases[name]
    space = claim(case.func, target).space
    listed = (*space.initial, *map(space.config, space.rows))
    config = next(c for c in listed if is_direct(c) and all(c.integer(k) == v for k, v in knobs.items()))
    return f"# {name} {config.to_json()}\n{nest_of(case.func, config, whole=False).drawn()}\n"


def test_drawn(golden: Callable[[str, str], None]) -> None:
    golden("nests.txt", "\n".join(drawn(name, knobs) for name, knobs in DRAWN.items()))


@pytest.mark.parametrize("case", NESTED, ids=lambda case: case.name)
def test_loops_cover_every_axis(case: Case) -> None:
    """Each axis is covered once; more only by a last tile, which is no whole tile too long."""
    space = claim(case.func, TARGET).space
    for config in filter(is_direct, space.sample(20, np.random.default_rng(1))):
        nest = nest_of(case.func, config, whole=False)
        assert {loop.axis for loop in nest.loops} == set(nest.axes)
        for axis in nest.axes:
            covered = math.prod(loop.extent for loop in nest.loops if loop.axis == axis)
            tile = nest.extent(Role.REGISTER, Role.PAIR, axis=axis)
            jobs = nest.extent(Role.JOB, axis=axis)
            assert nest.size(axis) <= covered < nest.size(axis) + tile * jobs
            assert covered == nest.size(axis) or axis in nest.ragged


@pytest.mark.parametrize("case", NESTED, ids=lambda case: case.name)
def test_tiles_share_panels(case: Case) -> None:
    """Panels times the tiles that share them are all tiles, of every chunk."""
    space = claim(case.func, TARGET).space
    for config in filter(is_direct, space.sample(20, np.random.default_rng(2))):
        nest = nest_of(case.func, config)
        tiles = nest.extent(Role.JOB, Role.TILE, Role.CHUNK)
        if nest.weight_axis:
            assert tiles % nest.tiles == 0
            weights = math.prod(nest.size(axis) for axis in nest.summed if axis != "q")
            assert weights * nest.size(nest.weight_axis) % nest.panel == 0
