"""Chains of stages without a reduction."""

from __future__ import annotations

from schedules.lower import claim, lower
from schedules.target import Target
from tests.schedules_tests.cases import CASES

WIDE = Target(kind="llvm", isa="avx512", threads=2)


def test_what_would_grow_is_not_inlined() -> None:
    case = next(case for case in CASES if case.name == "elementwise_growing")
    space = claim(case.func, WIDE).space
    assert len(str(lower(case.func, space.initial[0], WIDE).mod)) < 20_000


def test_a_small_tensor_stays_on_one_thread_at_first() -> None:
    case = next(case for case in CASES if case.name == "elementwise_chain")
    space = claim(case.func, WIDE).space
    assert space.initial[0].integer("chunks") == 1
    assert {config.integer("chunks") for config in map(space.config, space.rows)} == {1, 2, 8, 32}
