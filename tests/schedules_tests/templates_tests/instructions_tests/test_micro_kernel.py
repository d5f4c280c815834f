"""Cycles of micro-kernels: the arithmetic of the port model, by hand. LLVM's opinion: tests/emulation."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.processors import Ports
from schedules.target import Target
from schedules.templates.instructions.dots import PAIRS, U8S8
from schedules.templates.instructions.micro_kernel import Tile, ports_of, product_of, taps_of_load, tile_cycles

AVX512, AVX2, NEON = (Target.cpu(name, 1) for name in ("icelake-server", "haswell", "neoverse-n2"))
TWO = Ports({"fma": (2, 4)}, loads=2, width=6, window=0)
LONG = 1e9


def cycles(vectors: int, numbers: int, target: Target, ports: Ports, together: int = 1, steps: float = LONG) -> float:
    tile = Tile(np.array([vectors]), np.array([numbers]), np.array([together]), steps)
    (of_tile,) = tile_cycles(tile, target, None, ports)
    return float(of_tile)


def test_a_tile_that_fills_the_ports_is_at_the_peak() -> None:
    assert cycles(2, 14, AVX512, TWO) == 1


@pytest.mark.parametrize(("vectors", "numbers", "expected"), [(1, 1, 8), (1, 4, 2), (2, 3, 8 / 6), (2, 4, 1)])
def test_few_sums_wait_for_each_other(vectors: int, numbers: int, expected: float) -> None:
    assert cycles(vectors, numbers, AVX512, TWO) == pytest.approx(expected)


def test_tiles_that_follow_each_other_overlap_as_far_as_the_core_looks_ahead() -> None:
    ahead = Ports({"fma": (2, 4)}, loads=2, width=6, window=200)
    # A step has a product and, as its operand, a load of one of the two; the other is an operation of its own.
    assert cycles(1, 1, AVX512, ahead, steps=100) == pytest.approx(8 / (1 + 200 / 200))
    assert cycles(1, 1, AVX512, ahead) == pytest.approx(8)


def test_loads_of_one_vector_by_many_numbers_take_longer_than_the_products() -> None:
    assert cycles(1, 10, AVX512, TWO) == pytest.approx(11 / 10)


def test_a_number_that_is_no_operand_takes_a_place_of_its_own() -> None:
    narrow = Ports({"fma": (2, 4)}, loads=9, width=2, window=0)
    assert cycles(1, 9, AVX512, narrow) == pytest.approx((9 + 1) / 9)  # loaded by the products
    assert cycles(1, 9, AVX2, narrow) == pytest.approx((9 + 10) / 9)
    assert cycles(9, 1, AVX2, narrow) == pytest.approx((9 + 1) / 9)  # the weights are the operands


def test_numbers_that_lie_together_are_loaded_as_one_where_products_take_them_from_a_lane() -> None:
    half = Ports({"fma": (2, 1)}, loads=0.5, width=99, window=0)
    assert cycles(1, 8, NEON, half) == pytest.approx(4 * (1 + 8) / 8)
    assert cycles(1, 8, NEON, half, together=8) == pytest.approx(4 * (1 + 8 / 4) / 8)
    assert cycles(1, 8, AVX512, half, together=8) == pytest.approx(4 * (1 + 8) / 8)


def test_two_rows_at_once_read_twice_the_weights() -> None:
    one = Ports({"usmmla": (2, 1)}, loads=1, width=99, window=0)
    tile = Tile(np.array([4]), np.array([2]), np.array([1]), LONG)
    assert tile_cycles(tile, NEON, PAIRS[0], one) == pytest.approx(2 * (2 * 4 + 2 / 2) / 8)


def test_of_an_unknown_processor_or_product_only_the_products_count() -> None:
    assert ports_of(Target("llvm", isa="avx2", threads=1)) == Ports()
    assert cycles(1, 1, Target("llvm", isa="avx2", threads=1), Ports()) == 1
    tile = Tile(np.array([1]), np.array([1]), np.array([1]), LONG)
    assert tile_cycles(tile, AVX2, U8S8) == 1  # by vpmaddwd, of which the table has no figures


def test_the_product_of_a_form_is_the_processor_s_instruction() -> None:
    assert product_of(None, NEON) == "fma"
    assert product_of(U8S8, NEON) == "usdot"
    assert product_of(U8S8, AVX512) == "vpdpbusd"


def test_pixels_that_neighbours_share_are_loaded_once() -> None:
    np.testing.assert_allclose(taps_of_load(np.array([1, 4, 7]), 3), [1, 2, 7 * 3 / 9])
    np.testing.assert_allclose(taps_of_load(np.array([1, 14]), 1), 1)
