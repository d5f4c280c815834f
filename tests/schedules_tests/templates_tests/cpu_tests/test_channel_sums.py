"""Convolutions by few filters: where vectors run along channels, and the tiles of first guesses."""

from __future__ import annotations

import pytest

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.common.windows import Window
from schedules.templates.cpu.channel_sums import GOOD_SUMS, LEAST_SUMS, is_worth_it
from tests.schedules_tests.sums_cases import sums_case

TARGET = Target(kind="llvm", isa="avx512", threads=2)


def window(size: int) -> Window:
    return Window((size, size), (1, 1), (size // 2,) * 4, (1, 1))


@pytest.mark.parametrize(
    ("filters", "channels", "size", "width", "worth"),
    [
        (3, 64, 3, 112, True),
        (1, 64, 1, 128, True),
        (4, 144, 3, 32, True),
        (4, 64, 1, 128, False),  # adding up lanes takes longer than the products
        (8, 64, 3, 112, False),
        (1, 8, 3, 112, False),
        (1, 64, 3, 37, False),  # no tile of a row has sums enough
    ],
)
def test_it_is_used_where_vectors_of_filters_are_mostly_empty(
    filters: int, channels: int, size: int, width: int, worth: bool
) -> None:
    assert is_worth_it(filters, channels, window(size), width, 16) is worth


@pytest.mark.parametrize("filters", [1, 2, 3, 4])
def test_first_guesses_have_sums_enough_to_hide_latency(filters: int) -> None:
    func = sums_case("some", (1, 4, 32, 64, 16), filters, window(3)).func
    config = claim(func, TARGET).space.initial[0]
    assert LEAST_SUMS <= config.integer("to") * config.integer("tw") <= GOOD_SUMS + 4
