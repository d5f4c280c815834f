from __future__ import annotations

import numpy as np
import pytest

from search.searchers.siblings import MOST_ROWS, posterior_of, sibling_rows
from tests.conformance import spaces


def test_siblings_are_tasks_with_the_same_columns_only() -> None:
    space = spaces.enumerated()
    results = tuple((config, spaces.mixed(config)) for config in space.sample(100, np.random.default_rng(1)))
    alien = spaces.product()
    told = tuple((config, spaces.timed(config)) for config in alien.sample(5, np.random.default_rng(1)))
    foreign = (told[0], *results)  # a config that this space does not know is left out
    (rows,) = sibling_rows(space, ((alien, told), (space, foreign)))
    assert space.feature_names == ("wide", "high", "order", "split", "area")
    assert rows.features.shape == (MOST_ROWS, 5)
    assert 0 < (~rows.valid).sum() < MOST_ROWS
    timed = [-np.log(m.latency_s) for _, m in results if m.ok]
    assert np.nanmax(rows.scores) == pytest.approx(max(timed))
    assert rows.extents == space.extents
    assert len(rows.timed.scores) == rows.valid.sum()


def test_siblings_are_never_discarded() -> None:
    space = spaces.enumerated()
    results = tuple((config, spaces.timed(config)) for config in space.sample(32, np.random.default_rng(1)))
    told = sibling_rows(space, ((space, results),))
    alone = posterior_of(space, None, told)
    assert alone is not None
    assert posterior_of(space, None, []) is None
    features = space.row_features(space.rows)
    more = posterior_of(space, alone, told)
    assert more is not None
    assert not np.allclose(more.slowness(features, space.extents), alone.slowness(features, space.extents))
