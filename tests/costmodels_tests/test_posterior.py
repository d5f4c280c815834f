"""The hierarchical regression: terms, trees, updates by other tasks, and which configs it likes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodels.cost_model import Floats, Prediction
from costmodels.metrics import coverage, rank_correlation
from costmodels.posterior import (
    APART,
    FARTHEST,
    Basis,
    Spread,
    TaskRows,
    TemplatePosterior,
    Trees,
    blank,
    likely,
    tree_features,
)
from schedules.space import Knob, Space

SPACE = Space("tiles", 3, (Knob("x", (1, 2, 4, 8)), Knob("y", (1, 2, 4, 8)), Knob("z", (1, 2))), extents=(64, 32))
NO_TREES = Trees(np.zeros((1, 1), np.int16), np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.float32))
SPREAD = Spread((0.05, 0.02), (0.02, 0.01), 0.03, 2.0, 0.03)


def known(linear: tuple[float, float, float], trees: Trees = NO_TREES) -> TemplatePosterior:
    """A posterior of ``SPACE``, with nothing expected of products."""
    weights = np.concatenate([linear, np.zeros(6)])
    basis = Basis(np.zeros(3), np.ones(3))
    return TemplatePosterior("tiles/3", ("x", "y", "z"), 2, basis, weights, 0.05 * np.eye(9), SPREAD, trees)


def test_terms_are_features_and_products_up_to_a_border() -> None:
    basis = Basis(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    assert basis.terms(np.array([[3.0, 2.0]])).tolist() == [[1.0, 2.0, 1.0, 2.0, 4.0]]
    assert basis.unit(np.array([[1e9, 0.0]])).tolist() == [[FARTHEST, 0.0]]


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
    configs = likely(known((-1.0, 1.0, 0.0)), SPACE, 3)
    assert (configs[0]["x"], configs[0]["y"]) == (8, 1)
    for index, config in enumerate(configs):
        for other in configs[:index]:
            assert sum(a != b for a, b in zip(config.items, other.items, strict=True)) >= APART


def test_trees_decide_among_finalists() -> None:
    # Column 2 is z (its logarithm): trees make z = 2 cheaper, of which the linear part knows nothing.
    trees = Trees(
        np.array([[2, 0, 0]], np.int16),
        np.array([[0.5, 0, 0]], np.float32),
        np.array([[0, 9.0, 0.0]], np.float32),
    )
    assert likely(known((-1.0, 1.0, 0.0), trees), SPACE, 1)[0]["z"] == 2


def test_a_posterior_knows_its_own_spaces() -> None:
    assert known((1.0, 0.0, 0.0)).knows(SPACE)
    assert not known((1.0, 0.0, 0.0)).knows(replace(SPACE, version=4))


def told(truth: Floats, seed: int, count: int = 32) -> TaskRows:
    """A task whose ln latency is linear in the features, with noise, on a level of its own."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 3))
    gaps = 0.1 * features @ truth + 0.02 * rng.standard_normal(count)
    return TaskRows(features, -gaps + 10.0 * rng.standard_normal(), (64, 32))


@pytest.mark.parametrize("start", [(0.0, 0.0, 0.0), (-0.1, 0.1, -0.1)], ids=["nothing known", "wrong"])
def test_other_tasks_on_this_machine_correct_what_was_known(start: tuple[float, float, float]) -> None:
    truth = np.array([1.0, -1.0, 0.5])
    before = known(start)
    after = before.updated([told(truth, seed) for seed in range(8)])
    asked = np.random.default_rng(9).standard_normal((200, 3))
    assert rank_correlation(-after.slowness(asked, (64, 32)), -asked @ truth) > 0.9
    assert (after.deviation(asked) < before.deviation(asked)).all()


def test_updates_one_by_one_are_the_update_by_all() -> None:
    tasks = [told(np.array([1.0, 0.0, -1.0]), seed) for seed in range(3)]
    at_once, one_by_one = known((0.0, 0.0, 0.0)).updated(tasks), known((0.0, 0.0, 0.0))
    for rows in tasks:
        one_by_one = one_by_one.updated([rows])
    assert np.allclose(at_once.weights, one_by_one.weights, atol=1e-6)
    assert np.allclose(at_once.root @ at_once.root.T, one_by_one.root @ one_by_one.root.T, atol=1e-6)


def test_one_row_says_nothing() -> None:
    before = known((0.0, 0.0, 0.0))
    assert before.updated([told(np.ones(3), 0, count=1)]) is before


def test_intervals_hold_what_the_model_draws() -> None:
    rng, inside = np.random.default_rng(0), []
    model = known((0.0, 0.0, 0.0))
    features = rng.standard_normal((64, 3))
    terms = model.basis.terms(features)
    own = model.own_covariance(features) - 1.0  # without the level
    root = np.linalg.cholesky(own + (terms @ model.root) @ (terms @ model.root).T)
    for _ in range(50):
        drawn = root @ rng.standard_normal(64)
        inside.append(coverage(Prediction(np.zeros(64), model.deviation(features)), drawn, 0.8))
    assert 0.75 <= np.mean(inside) <= 0.85


def test_of_a_template_that_nobody_recorded_the_tasks_alone_decide() -> None:
    features = np.random.default_rng(0).standard_normal((100, 3))
    nothing = blank(SPACE, features)
    assert not nothing.slowness(features, SPACE.extents).any()
    truth = np.array([1.0, -1.0, 0.5])
    after = nothing.updated([told(truth, seed) for seed in range(4)])
    assert rank_correlation(-after.slowness(features, SPACE.extents), -features @ truth) > 0.8
