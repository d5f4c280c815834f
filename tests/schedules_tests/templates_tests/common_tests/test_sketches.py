"""The numbers that sketches draw."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.common.sketches import sums_in_vectors, tilings_of
from schedules.templates.cpu.generic import GenericTemplate
from tests.schedules_tests.programs import from_relax


@given(st.integers(1, 400), st.integers(1, 4), st.integers(1, 64))
def test_tilings_are_factorisations(extent: int, parts: int, innermost: int) -> None:
    tilings = tilings_of(extent, parts, innermost)
    assert len(set(tilings)) == len(tilings)
    assert all(math.prod(tiling) == extent and len(tiling) == parts for tiling in tilings)
    assert all(tiling[-1] <= innermost for tiling in tilings)
    assert parts == 1 or (extent, *(1,) * (parts - 1)) in tilings


def test_the_first_guess_of_one_long_sum_adds_up_neighbours_side_by_side() -> None:
    func = from_relax(lambda x: relax.op.sum(x), (300, 400))
    target = Target(kind="llvm", isa="avx512", threads=2)
    traces = GenericTemplate().draw(func, target).traces
    in_vectors = [sums_in_vectors(traces[guess.integer("sketch")]) for guess in claim(func, target).space.initial]
    assert in_vectors == sorted(in_vectors, reverse=True)
    assert set(in_vectors) == {True, False}
