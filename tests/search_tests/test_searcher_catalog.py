from __future__ import annotations

import numpy as np
import pytest

from schedules.errors import UsageError
from search.searcher import SearchContext
from search.searcher_catalog import SEARCHERS, make_searcher
from tests.conformance import spaces
from tests.conformance.searcher_suite import SearcherSuite


class TestSearchers(SearcherSuite):
    @pytest.fixture(params=SEARCHERS)
    def searcher_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def test_unknown_searcher_names_the_nearest() -> None:
    context = SearchContext(spaces.tiny(), np.random.default_rng(0))
    with pytest.raises(UsageError, match="did you mean 'random'"):
        make_searcher("rondom", context)


def test_unknown_cost_model_names_the_nearest() -> None:
    context = SearchContext(spaces.tiny(), np.random.default_rng(0), cost_model="boost")
    with pytest.raises(UsageError, match="did you mean 'boosted'"):
        make_searcher("boosted", context)
