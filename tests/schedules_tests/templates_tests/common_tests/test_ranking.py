"""Initial configs: the least cost first, and different in what matters."""

import numpy as np

from schedules.space import Knob, Space
from schedules.templates.common.ranking import CYCLES, ranked, varied

SPACE = Space("test", 1, (Knob("a", (1, 2, 3)), Knob("b", (0, 1))), derive=lambda columns: {"twice": 2 * columns["a"]})


def test_the_least_sum_of_all_terms_comes_first():
    space = ranked(SPACE, lambda columns, derived: {"a": -derived["twice"], "b": columns["b"]}, 3)
    assert [(c.integer("a"), c.integer("b")) for c in space.initial] == [(3, 0), (3, 1), (2, 0)]


def test_no_two_are_alike_in_the_knobs_that_matter():
    space = ranked(SPACE, lambda columns, _: {"a": columns["a"], "b": -columns["b"]}, 9, apart=("a",))
    assert [(c.integer("a"), c.integer("b")) for c in space.initial] == [(1, 1), (2, 1), (3, 1)]


def test_guesses_differ_in_what_matters():
    columns = [np.array([1, 1, 1, 2, 2, 3]), np.array([0, 0, 1, 0, 0, 0])]
    assert varied(range(6), columns, most=3) == [0, 2, 3]
    assert varied(range(6), columns, most=9) == [0, 2, 3, 5]


def test_what_the_best_config_saves_is_in_the_space():
    derived = Space("test", 1, (Knob("a", (2, 4)),), derive=lambda columns: {CYCLES: columns["a"] / 8})
    assert ranked(derived, lambda columns, _: {"a": -columns["a"]}, 1).saving == 8 / 2
    assert ranked(SPACE, lambda columns, _: {"a": columns["a"]}, 1).saving == 1
