"""The numbers that sketches draw."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from schedules.templates.common.sketches import tilings_of


@given(st.integers(1, 400), st.integers(1, 4), st.integers(1, 64))
def test_tilings_are_factorisations(extent: int, parts: int, innermost: int) -> None:
    tilings = tilings_of(extent, parts, innermost)
    assert len(set(tilings)) == len(tilings)
    assert all(math.prod(tiling) == extent and len(tiling) == parts for tiling in tilings)
    assert all(tiling[-1] <= innermost for tiling in tilings)
    assert parts == 1 or (extent, *(1,) * (parts - 1)) in tilings
