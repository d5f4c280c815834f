from __future__ import annotations

import numpy as np
import pytest

from search.searchers.prior import MOST_ROWS, prior_rows
from search.searchers.searcher import SearchContext
from tests.conformance import spaces


def test_prior_takes_tasks_with_the_same_columns_only() -> None:
    space = spaces.enumerated()
    results = tuple((config, spaces.mixed(config)) for config in space.sample(100, np.random.default_rng(1)))
    alien = spaces.product()
    told = tuple((config, spaces.timed(config)) for config in alien.sample(5, np.random.default_rng(1)))
    foreign = (told[0], *results)  # a config that this space does not know is left out
    context = SearchContext(space, np.random.default_rng(0), prior=((alien, told), (space, foreign)))
    (rows,) = prior_rows(context)
    assert space.feature_names == ("wide", "high", "order", "split", "area")
    assert rows.features.shape == (MOST_ROWS, 5)
    assert 0 < (~rows.valid).sum() < MOST_ROWS
    timed = [-np.log(m.latency_s) for _, m in results if m.ok]
    assert np.nanmax(rows.scores) == pytest.approx(max(timed))
