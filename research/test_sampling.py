"""Neighbours of a config, with which a recording of a space too large to list begins."""

from __future__ import annotations

import numpy as np
import pytest

from research.sampling import neighbours
from schedules.space import Knob, Space

GRID = (Knob("tile", (1, 2, 4)), Knob("order", ("ij", "ji")))


@pytest.mark.parametrize("narrow", [False, True])
def test_neighbours_differ_in_one_knob_by_one_step(narrow: bool) -> None:
    space = Space("toy", 1, GRID, (lambda columns: columns["tile"] != 2) if narrow else None)
    found = {tuple(row): neighbours(space, space.config(row)) for row in space.rows}
    for row, near in found.items():
        for neighbour in near:
            assert np.abs(space.row(neighbour) - row).sum() == 1
            assert space.contains(neighbour)
            assert space.config(row) in found[tuple(space.row(neighbour))]
    assert [len(near) for near in found.values()] == ([1, 1, 1, 1] if narrow else [2, 2, 3, 3, 2, 2])
    assert neighbours(Space("none", 1, ()), Space("none", 1, ()).config([])) == []
