"""Products by widened weights of few bits in AMX tiles: against NumPy where a processor has them, and their limits."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.host.machine import host_target
from schedules.lower import BASELINE, claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.low_bit.low_bit_tiles import has_tiles, in_tiles
from tests.schedules_tests.programs import Case, inputs, low_bit_case, run

TARGET = Target.cpu("sapphirerapids", 2)
PLAIN = Target("llvm", isa="generic", threads=2)

SIZES = ((16, 64, 32, False), (37, 128, 16, True), (128, 256, 128, False), (48, 192, 32, True), (521, 64, 32, False))
"""Rows, terms of a sum, those of a group, and whether there are zero points."""

CASES = [
    low_bit_case(
        f"{form}_{rows}_{group}{'_zeros' * zeros}", rows, depth, 4, 16, form, zeros, group, template="low_bit_tiles"
    )
    for form in ("s8u4", "s8u8")
    for rows, depth, group, zeros in SIZES
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(case: Case, target: Target, baseline: bool = False) -> None:
    arrays = inputs(case.func)
    expected = case.expected(*arrays)
    space = claim(case.func, target).space
    for config in [BASELINE] if baseline else map(space.config, space.rows):
        result = run(case.func, config, target, arrays)
        assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max(), config


@every_case
def test_the_untuned_program_is_right_on_any_processor(case: Case) -> None:
    check(case, PLAIN, baseline=True)


@pytest.mark.skipif(not has_tiles(host_target(1)), reason="this processor lacks AMX")
@every_case
def test_every_config_is_right(case: Case) -> None:
    check(case, TARGET)


@every_case
def test_weights_are_widened_in_registers_and_multiplied_in_tiles(case: Case) -> None:
    space = claim(case.func, TARGET).space
    lowered = lower(case.func, space.initial[0], TARGET).mod["main"]
    text = compiled(lowered, "main", tvm_target(TARGET)).mod.inspect_source("asm")
    for instruction in ("tdpbf16ps", "vcvtne2ps2bf16"):
        assert instruction in text


def test_processors_without_amx_have_none() -> None:
    assert has_tiles(TARGET)
    assert not any(map(has_tiles, (PLAIN, Target.cpu("icelake-server", 2), Target.cpu("znver5", 2))))


@pytest.mark.parametrize(
    ("rows", "depth", "lanes", "expected"),
    [(16, 896, 16, True), (15, 896, 16, False), (128, 16, 16, False), (128, 896, 8, False), (1, 896, 16, False)],
)
def test_few_rows_and_short_sums_have_no_whole_tiles(rows: int, depth: int, lanes: int, expected: bool) -> None:
    assert in_tiles(rows, depth, lanes) is expected
