"""Depthwise convolution: what its knobs do to the program."""

from __future__ import annotations

import pytest

from schedules.lower import claim, lower
from schedules.target import Target
from tests.schedules_tests.cases import CASES

TARGET = Target("llvm", isa="avx512", threads=2)
CASE = next(case for case in CASES if case.name == "depthwise_3x3")


@pytest.mark.parametrize("unroll", [0, 1])
def test_the_filter_s_outer_loop_is_unrolled_on_request(unroll: int) -> None:
    space = claim(CASE.func, TARGET).space
    config = next(c for c in map(space.config, space.rows) if c.integer("unroll") == unroll and c.integer("tw") == 4)
    loops = str(lower(CASE.func, config, TARGET).mod.script()).count("T.unroll(")
    other = config.to_json().replace(f'"unroll":{unroll}', f'"unroll":{1 - unroll}')
    assert other != config.to_json()
    fewer = str(lower(CASE.func, type(config).from_json(other), TARGET).mod.script()).count("T.unroll(")
    assert loops - fewer == 2 * unroll - 1
