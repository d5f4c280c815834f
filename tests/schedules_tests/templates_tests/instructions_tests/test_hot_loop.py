"""The innermost loop with products is found in the assembly of every architecture, and what it spills is counted."""

from __future__ import annotations

import pytest

from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.hot_loop import hot_loop
from tests.schedules_tests.programs import conv_case

NESTED = """
.LBB0_1:
	ldr	q0, [sp, #16]
.LBB0_2:
	fmla	v1.4s, v2.4s, v3.s[0]
	str	q1, [sp, #32]
	.loc	1 2
	fmla	v4.4s, v2.4s, v3.s[1]
	subs	x1, x1, #1
	b.ne	.LBB0_2
	cbnz	x2, .LBB0_1
	ret
"""


def test_the_inner_loop_is_counted_alone() -> None:
    loop = hot_loop(NESTED)
    assert loop is not None
    assert (loop.products, loop.stack, len(loop.lines)) == (2, 1, 5)


def test_code_without_products_has_none() -> None:
    assert hot_loop(NESTED.replace("fmla", "fadd")) is None
    assert hot_loop("") is None


@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        (Target.cpu("icelake-server", 1), 16),
        (Target.cpu("neoverse-n2", 1), 4),
    ],
    ids=["avx512", "neon"],
)
def test_first_guesses_spill_nothing(target: Target, lanes: int) -> None:
    func = conv_case("c", (1, 8, 28, 28, lanes), (16, 8, 1, 1, lanes, lanes)).func
    config = claim(func, target).space.initial[0]
    built = compiled(lower(func, config, target).mod["main"], "main", tvm_target(target))
    loop = hot_loop(str(built.mod.inspect_source("asm")))
    assert loop is not None
    assert loop.products >= 8
    assert loop.stack == 0
