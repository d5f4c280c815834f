"""Products in AMX tiles: what is computed, where a processor has them; how they are cut and packed, anywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.host.machine import host_target
from schedules.config import Config
from schedules.lower import EXACT, claim, loss, lower, tvm_target
from schedules.target import Target
from schedules.templates.amx.amx_conv2d import GATHERED
from schedules.templates.amx.amx_product import ALGORITHM, chosen, has_amx, last_tiles, pack_tiles, terms, tile_rows
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.dots import BF16, U8S8
from tests.schedules_tests.cases import DOTS
from tests.schedules_tests.programs import Case, dot_conv_case, dot_matmul_case
from tests.schedules_tests.templates_tests.cpu_tests.test_cpu_templates import check_config, sampled

TARGET = Target.cpu("sapphirerapids", 2)
WITHOUT = Target.cpu("icelake-server", 2)
MOST_CHECKED = 6
"""Configs of one case that are built."""

CASES = (
    *DOTS,
    *(
        case
        for form in (U8S8, BF16)
        for row in (terms(form),)
        for case in (
            dot_conv_case(f"amx_{form.name}_wide", (1, 6, 7, 7, 16), (4, 6, 3, 3, 16, 16), form, pads=(1, 1, 1, 1)),
            dot_conv_case(
                f"amx_{form.name}_strided", (1, 4, 15, 15, 16), (2, 4, 3, 3, 16, 16), form, (2, 2), (1, 1, 1, 1)
            ),
            dot_conv_case(f"amx_{form.name}_spread", (2, 5, 9, 9, 16), (2, 5, 1, 1, 16, 16), form, (2, 2)),
            dot_conv_case(f"amx_{form.name}_in_place", (2, 2, 6, 7, row), (2, 2, 1, 1, row, row), form),
            dot_conv_case(
                f"amx_{form.name}_blocks", (1, 2, 8, 6, row), (2, 2, 3, 3, row, row), form, pads=(1, 1, 1, 1)
            ),
            dot_conv_case(
                f"amx_{form.name}_grouped", (1, 6, 9, 9, 16), (4, 3, 3, 3, 16, 16), form, pads=(1, 1, 1, 1), groups=2
            ),
            dot_conv_case(
                f"amx_{form.name}_grouped_in_place", (1, 4, 6, 7, row), (4, 2, 1, 1, row, row), form, groups=2
            ),
            dot_matmul_case(f"amx_{form.name}_rows", 49, 128, 4, 16, form, bare=False),
        )
    ),
)


def tiled(case: Case, most: int = MOST_CHECKED) -> list[Config]:
    """Return configs of ``case`` that compute in tiles, spread over its space: ``most``, and what is left over."""
    space = claim(case.func, TARGET).space
    configs = [config for config in map(space.config, space.rows) if chosen(config)]
    return configs[:: max(1, len(configs) // most)]


TILED = [case for case in CASES if tiled(case)]


@pytest.mark.skipif(not has_amx(BF16, host_target(1)), reason="this processor lacks AMX")
@sampled
@pytest.mark.parametrize("case", TILED, ids=lambda case: case.name)
def test_tiles_compute_what_numpy_does(case: Case, count: int) -> None:
    for config in tiled(case, count):
        assert check_config(case, config, TARGET), config


def test_convolutions_and_dense_layers_have_tiles() -> None:
    names = {case.name for case in TILED}
    assert names >= {f"{form}_{name}" for form in ("conv2d_u8s8", "conv2d_bf16") for name in ("1x1", "3x3", "first")}
    assert names >= {"amx_u8s8_rows", "amx_bf16_rows", "amx_bf16_strided", "amx_u8s8_spread", "amx_bf16_grouped"}


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("amx_bf16_wide", "tdpbf16ps"), ("amx_u8s8_wide", "tdpbusd"), ("amx_bf16_rows", "tdpbf16ps")],
)
def test_a_kernel_is_tile_instructions_alone(name: str, instruction: str) -> None:
    case = next(case for case in CASES if case.name == name)
    config = next(config for config in tiled(case))
    kernel = compiled(lower(case.func, config, TARGET).mod["main"], "main", tvm_target(TARGET))
    text = kernel.mod.inspect_source("asm")
    for expected in (instruction, "ldtilecfg", "tilezero", "tilestored", "tilerelease"):
        assert expected in text
    assert "tune_amx_add" not in text, "the functions are not inlined"


@pytest.mark.parametrize(
    ("name", "gathers"), [("amx_bf16_in_place", False), ("amx_u8s8_grouped_in_place", False), ("amx_bf16_blocks", True)]
)
def test_whole_rows_of_one_tap_are_read_where_they_lie(name: str, gathers: bool) -> None:
    case = next(case for case in CASES if case.name == name)
    for config in tiled(case):
        assert (GATHERED in lower(case.func, config, TARGET).mod.script()) is gathers


def test_a_job_may_be_computed_in_parts() -> None:
    case = next(case for case in CASES if case.name == "amx_bf16_blocks")
    space = claim(case.func, TARGET).space
    pairs = {(c.integer("rows"), c.integer("th")) for c in map(space.config, space.rows) if chosen(c)}
    assert {(8, 1), (8, 2), (8, 4), (4, 4)} <= pairs
    assert all(rows % part == 0 for rows, part in pairs)


def test_tiles_are_for_targets_that_have_them() -> None:
    assert has_amx(BF16, TARGET)
    assert has_amx(U8S8, TARGET)
    assert not has_amx(BF16, WITHOUT)
    assert not has_amx(None, TARGET)
    for case in TILED:
        space = claim(case.func, WITHOUT).space
        assert not any(chosen(config) for config in map(space.config, space.rows))


def test_tiles_lose_no_accuracy() -> None:
    assert all(loss(config) == EXACT for case in TILED for config in tiled(case))
    assert tiled(TILED[0])[0].integer("algorithm") == ALGORITHM


@pytest.mark.parametrize("rows", [*range(1, 70), 98, 196, 222, 812])
@pytest.mark.parametrize("together", [1, 2, 4])
def test_tiles_cover_all_rows_and_no_others(rows: int, together: int) -> None:
    tile = tile_rows(rows)
    whole = rows // (together * tile)
    seen = set(range(whole * together * tile))
    for first, count, step in last_tiles(rows, tile, whole * together):
        assert count <= together
        for number in range(count):
            seen |= set(range(first + number * step, first + number * step + tile))
    assert seen == set(range(rows))
    assert tile <= 16
    assert math.ceil(rows / tile) == math.ceil(rows / 16)


def test_packed_weights() -> None:
    """Two tiles of columns in one panel, and terms that fill one tile and a half."""
    weight = np.arange(2 * 24 * 32 * 4, dtype=np.int32).reshape(2, 24, 32, 4)
    packed = pack_tiles(weight, 4)
    assert packed.shape == (4, 2, 16, 16, 4)
    for panel, k, lane in [(0, 0, 0), (0, 23, 31), (1, 5, 16), (1, 16, 3)]:
        there = packed[2 * panel + lane // 16, k // 16, k % 16, lane % 16]
        np.testing.assert_array_equal(there, weight[panel, k, lane])
    assert not packed[:, 1, 8:].any()
