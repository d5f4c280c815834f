"""Configs carried over are valid where they arrive, and as near as they can be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedules.config import Config
from schedules.space import Knob, Space
from search.searchers.transfer import transferred


def space(tiles, blocks, constraint=None):
    return Space("toy", 1, (Knob("tile", tiles), Knob("block", blocks), Knob("order", ("in", "out"))), constraint)


def config(tile, block, order="in"):
    return Config("toy/1", (("tile", tile), ("block", block), ("order", order)))


def test_a_config_that_fits_is_kept():
    assert transferred(space((1, 2), (4, 8)), [config(2, 8, "out")], 5) == [config(2, 8, "out")]


def test_values_go_to_the_nearest_choice_in_doublings():
    assert transferred(space((1, 7, 28), (4, 32)), [config(14, 12)], 5) in ([config(7, 32)], [config(28, 32)])
    assert transferred(space((1, 3), (4, 32)), [config(100, 1)], 5) == [config(3, 4)]


def test_equal_results_count_once_and_most_is_kept():
    arrived = transferred(space((1, 2), (4,)), [config(8, 4), config(16, 4), config(1, 4)], 5)
    assert arrived == [config(2, 4), config(1, 4)]
    assert transferred(space((1, 2), (4,)), [config(8, 4), config(1, 4)], 1) == [config(2, 4)]


def test_tilings_are_compared_without_their_outermost_part():
    tiled = Space("toy", 1, (Knob("tile", ((14, 1, 4), (7, 2, 4), (1, 14, 4))),))
    assert transferred(tiled, [Config("toy/1", (("tile", (56, 2, 3)),))], 1)[0]["tile"] == (7, 2, 4)


def test_a_forbidden_combination_moves_by_few_steps():
    def fits(columns):
        return columns["tile"] * columns["block"] <= 32

    assert transferred(space((1, 2, 4, 8), (4, 8, 16), fits), [config(8, 16)], 1) in (
        [config(4, 8)],
        [config(2, 16)],
        [config(8, 4)],
    )


def test_another_space_gives_nothing():
    assert transferred(space((1,), (1,)), [Config("toy/2", (("tile", 1), ("block", 1), ("order", "in")))], 1) == []


def test_a_knob_that_the_other_space_lacks_takes_its_first_choice():
    """Spaces for many threads have a knob more, whose first choice is how spaces for few do it."""
    few = Config("toy/1", (("tile", 4), ("block", 8)))
    assert transferred(space((2, 4), (8,)), [few], 1) == [config(4, 8, "in")]


def test_a_space_too_large_to_list_gives_only_what_fits():
    wide = tuple(range(1, 1000))
    big = space(wide, wide, lambda columns: columns["tile"] < columns["block"])
    assert not big.enumerated
    assert transferred(big, [config(9, 5), config(5, 9)], 5) == [config(5, 9)]


values = st.one_of(st.integers(-5, 300), st.sampled_from(["in", "out", "odd"]), st.tuples(st.integers(1, 9)))


@given(values, values, values, st.integers(8, 64))
def test_whatever_arrives_is_valid(tile, block, order, limit):
    here = space((1, 2, 4, 8), (4, 8), lambda columns: columns["tile"] * columns["block"] <= limit)
    for arrived in transferred(here, [config(tile, block, order)], 3):
        assert here.contains(arrived)


def test_nothing_is_valid_so_nothing_arrives():
    none = space((1, 2), (4,), lambda columns: np.zeros(len(columns["tile"]), dtype=bool))
    assert transferred(none, [config(1, 4)], 1) == []
