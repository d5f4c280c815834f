from __future__ import annotations

import numpy as np
import pytest

from schedules.vocabulary.errors import UsageError
from search.searchers.searcher import SearchContext
from search.searchers.searcher_catalog import SEARCHERS, make_searcher
from tests.conformance import spaces
from tests.conformance.searcher_suite import SearcherSuite


class TestSearchers(SearcherSuite):
    @pytest.fixture(params=SEARCHERS)
    def searcher_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(autouse=True)
    def small_models(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The protocol is the same with fewer trees, points and steps, and the suite is much faster."""
        monkeypatch.setattr("search.searchers.bayesian.TREES", 3)
        monkeypatch.setattr("search.searchers.bayesian.CANDIDATES", 40)
        monkeypatch.setattr("search.searchers.autotvm.WALKERS", 16)
        monkeypatch.setattr("search.searchers.evolutionary.POPULATION", 64)


def test_unknown_searcher_names_the_nearest() -> None:
    context = SearchContext(spaces.tiny(), np.random.default_rng(0))
    with pytest.raises(UsageError, match="did you mean 'random'"):
        make_searcher("rondom", context)


def test_unknown_cost_model_names_the_nearest() -> None:
    context = SearchContext(spaces.tiny(), np.random.default_rng(0), cost_model="boost")
    with pytest.raises(UsageError, match="did you mean 'boosted'"):
        make_searcher("boosted", context)
