"""The schedule has the nest's loops, in the nest's order, and pads where the nest says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import s_tir, tirx

from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.common.structure import find_anchor, places
from schedules.templates.nests.loop_nest import BEFORE, IN_JOBS, Nest, Role
from schedules.templates.nests.nest_to_tir import to_tir
from schedules.templates.nests.product_nests import window_nest
from tests.emulation.narrow_cases import all_cases
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Case
from tests.schedules_tests.templates_tests.nests_tests.nest_cases import NESTED, is_direct, nest_of

TARGET = Target("llvm", isa="avx512", mcpu="skylake-avx512", threads=2)
PAIRS = Target.cpu("neoverse-n2", 2)
SAMPLED = 6
WRITTEN_OUT = {Role.STEP, Role.REGISTER}


def loops_of(func: tirx.PrimFunc, block: str) -> list[tuple[int, int]]:
    """Extent and kind of each loop around the products, outermost first."""
    placed = [
        block_place for block_place in places(func) if block_place.realize.block.name_hint.startswith(f"{block}_update")
    ]
    return [(int(loop.extent), int(loop.kind)) for loop in placed[0].loops]


def wanted(nest: Nest) -> list[tuple[int, int]]:
    """The same by the nest; instructions of short types take the place of the innermost loops."""
    kinds = tirx.ForKind
    left_out = {Role.JOB, *([Role.LANES, Role.PAIR] if nest.anchor.form is not None else [])}
    loops = [(int(nest.extent(Role.JOB)), int(kinds.PARALLEL))]
    for loop in nest.loops:
        ragged = loop.role is Role.TILE and loop.axis in nest.ragged
        kind = kinds.VECTORIZED if loop.role is Role.LANES else kinds.SERIAL
        kind = kinds.UNROLLED if ragged or loop.role in WRITTEN_OUT else kind
        loops += [] if loop.role in left_out else [(int(loop.extent), int(kind))]
    return loops


def check(case: Case, target: Target) -> int:
    """Compare some configs of a case; the number of those with a nest."""
    sampled = claim(case.func, target).space.sample(SAMPLED, np.random.default_rng(len(case.name)))
    configs = [config for config in sampled if is_direct(config)]
    for config in configs:
        nest, program = nest_of(case.func, config), lower(case.func, config, target).mod["main"]
        assert loops_of(program, nest.anchor.block) == wanted(nest), config.to_json()
    return len(configs)


@pytest.mark.parametrize("case", NESTED, ids=lambda case: case.name)
def test_the_schedule_has_the_loops_of_the_nest(case: Case) -> None:
    assert check(case, TARGET)


@pytest.mark.parametrize("name", ["conv2d_u8s8m_odd", "conv2d_bf16m", "matmul_u8s8m"])
def test_pairs_of_rows_are_in_the_nest(name: str) -> None:
    assert check(next(case for case in all_cases(PAIRS) if case.name == name), PAIRS)


POOL = next(case.func for case in CASES if case.name == "pool_max")


@pytest.mark.parametrize(("padding", "parallel"), [(BEFORE, 2), (IN_JOBS, 1)])
def test_padding_is_a_parallel_loop_of_its_own_or_part_of_each_job(padding: str, parallel: int) -> None:
    sch, anchor = s_tir.Schedule(POOL), find_anchor(POOL, "pool")
    assert anchor is not None
    nest = replace(window_nest(anchor, {"tw": 5, "rows": 1, "pad": 0}, ("kw",)), padding=padding)
    to_tir(sch, nest, TARGET)
    assert str(sch.mod.script()).count("T.parallel(") == parallel
