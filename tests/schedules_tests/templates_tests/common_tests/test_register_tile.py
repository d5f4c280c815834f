"""Register tiles: how many vectors they hold, and the order of their loops."""

import numpy as np

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.common.register_tile import few_registers, tile_order, tile_registers
from tests.schedules_tests.cases import conv_case

WIDE = Target(kind="llvm", isa="avx512", threads=2)


def test_tiles_that_do_not_fit_are_not_offered():
    func = conv_case("c", (1, 20, 28, 28, 16), (8, 20, 1, 1, 16, 16)).func
    space = claim(func, WIDE).space
    columns = space.columns(space.rows)
    pixels = columns["th"] * columns["tw"]
    assert (columns["to"] * pixels == 28).any()
    assert not ((columns["to"] == 4) & (pixels == 7)).any()  # 28 sums, 4 vectors of weights and a number make 33
    assert (tile_registers(columns["to"], pixels, WIDE) <= WIDE.vector_registers).all()


def test_numbers_that_are_lanes_of_a_register_are_held_four_at_a_time():
    """Tiles that LLVM was seen to spill, and some that it was not."""
    target = Target.cpu("neoverse-v1", 1)
    vectors, numbers = np.array([2, 4, 2, 4, 8]), np.array([10, 6, 8, 5, 3])
    assert few_registers(vectors, numbers, WIDE).all()
    assert few_registers(vectors, numbers, target).tolist() == [False, False, True, True, True]
    assert (tile_registers(vectors, numbers, target) <= 32).tolist() == [False, False, True, True, True]


def test_the_fewer_are_held():
    assert tile_order(("o", 2), ("h", "w"), 14) == ("h", "w", "o")
    assert tile_order(("o", 8), ("h", "w"), 2) == ("o", "h", "w")
    assert tile_registers(np.array([2, 8]), np.array([14, 2]), WIDE).tolist() == [31, 19]
