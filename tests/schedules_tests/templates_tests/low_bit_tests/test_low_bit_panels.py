"""Products by panels of weights widened to float32: every config against NumPy, and when they are used."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.host.machine import host_target
from schedules.lower import BASELINE, claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.dots import FORMS
from schedules.templates.low_bit.low_bit_panels import in_panels
from tests.schedules_tests.programs import Case, inputs, low_bit_case, run

SIZES = ((16, 64, 32, 16, False), (24, 128, 16, 16, True), (17, 128, 32, 8, True))
"""Rows, terms of a sum, those of a group, lanes, and whether there are zero points."""

CASES = [
    low_bit_case(f"{form}_{rows}_{lanes}", rows, depth, 4, lanes, form, zeros, group, template="low_bit_panels")
    for form in ("f32u4", "f32u8")
    for rows, depth, group, lanes, zeros in SIZES
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_config_is_right(case: Case) -> None:
    target = host_target(1)
    arrays = inputs(case.func)
    expected = case.expected(*arrays)
    space = claim(case.func, target).space
    for config in (BASELINE, *space.initial, *map(space.config, space.rows[:: max(1, len(space.rows) // 8)])):
        result = run(case.func, config, target, arrays)
        assert np.abs(result - expected).max() <= 2e-6 * np.abs(expected).max(), config


@pytest.mark.parametrize(("target", "vector"), [("znver5", "zmm"), ("haswell", "ymm")])
def test_weights_are_unpacked_in_vectors(target: str, vector: str) -> None:
    host = Target.cpu(target, 1)
    case = low_bit_case("zeros", 24, 128, 3, host.lanes(), "f32u4", True, 32, template="low_bit_panels")
    lowered = lower(case.func, claim(case.func, host).space.initial[0], host).mod["main"]
    text = compiled(lowered, "main", tvm_target(host)).mod.inspect_source("asm")
    unpacked = [line for line in text.splitlines() if "vcvtdq2ps" in line]
    assert unpacked
    assert all(f"%{vector}" in line for line in unpacked)


@pytest.mark.parametrize(
    ("rows", "form", "expected"), [(16, "f32u4", True), (15, "f32u8", False), (128, "s8u4", False)]
)
def test_panels_are_for_many_rows_of_floats(rows: int, form: str, expected: bool) -> None:
    assert in_panels(rows, FORMS[form]) is expected
