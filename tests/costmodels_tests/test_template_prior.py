"""A quadratic form, heaps of trees, and which configs they like."""

from __future__ import annotations

import numpy as np

from costmodels.template_prior import APART, FARTHEST, QuadraticForm, TemplatePrior, Trees, likely, tree_features
from schedules.space import Knob, Space

SPACE = Space("tiles", 3, (Knob("x", (1, 2, 4, 8)), Knob("y", (1, 2, 4, 8)), Knob("z", (1, 2))), extents=(64, 32))
NO_TREES = Trees(np.zeros((1, 1), np.int16), np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.float32))


def prior(linear: tuple[float, float, float], trees: Trees = NO_TREES) -> TemplatePrior:
    """Of ``SPACE`` on AVX-512, without products."""
    form = QuadraticForm(np.zeros(3), np.ones(3), np.array(linear), np.zeros((3, 3)))
    return TemplatePrior("tiles/3", "avx512", ("x", "y", "z"), 2, form, trees)


def test_a_quadratic_form_adds_features_and_products_and_ends_at_its_border() -> None:
    products = np.zeros((2, 2))
    products[0, 1] = 5.0
    form = QuadraticForm(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([1.0, 10.0]), products)
    assert form.values(np.array([[3.0, 1.0]])).tolist() == [1.0 + 10.0 + 5.0]
    far = form.values(np.array([[1e9, 0.0]]))
    assert far.tolist() == [FARTHEST]


def test_trees_go_left_below_the_threshold_and_their_leaves_add_up() -> None:
    # Depth 1: a root and two leaves; the second tree looks at the second column.
    trees = Trees(
        np.array([[0, 0, 0], [1, 0, 0]], np.int16),
        np.array([[2.0, 0, 0], [5.0, 0, 0]], np.float32),
        np.array([[0, 1.0, 2.0], [0, 10.0, 20.0]], np.float32),
    )
    table = np.array([[1.9, 5.0], [2.0, 4.9]])
    assert trees.values(table).tolist() == [1.0 + 20.0, 2.0 + 10.0]


def test_trees_see_the_extents_in_doublings() -> None:
    assert tree_features(np.array([[3.0], [4.0]]), (8, 1)).tolist() == [[3.0, 3.0, 0.0], [4.0, 3.0, 0.0]]


def test_the_likely_fastest_come_first_and_differ() -> None:
    found = likely(prior((-1.0, 1.0, 0.0)), SPACE, 3)
    assert (found[0]["x"], found[0]["y"]) == (8, 1)
    for index, config in enumerate(found):
        for other in found[:index]:
            assert sum(a != b for a, b in zip(config.items, other.items, strict=True)) >= APART


def test_trees_decide_among_finalists() -> None:
    # Column 2 is z (its logarithm): trees make z = 2 cheaper, of which the form knows nothing.
    trees = Trees(
        np.array([[2, 0, 0]], np.int16),
        np.array([[0.5, 0, 0]], np.float32),
        np.array([[0, 9.0, 0.0]], np.float32),
    )
    assert likely(prior((-1.0, 1.0, 0.0), trees), SPACE, 1)[0]["z"] == 2


def test_a_prior_knows_its_own_spaces() -> None:
    assert prior((1.0, 0.0, 0.0)).knows(SPACE, "avx512")
    assert not prior((1.0, 0.0, 0.0)).knows(SPACE, "avx2")
