"""AutoTVM's rule, the papers' baseline: XGBoost on pairwise ranks, annealing over the rank, ε = 0.05."""

from __future__ import annotations

from costmodels.boosted import BoostedRank
from costmodels.cost_model import Floats
from search.annealer import Cooling, Value
from search.planned import PlannedSearch
from search.pool import Rows
from search.searcher import SearchContext

EPSILON = 0.05


class AutoTvmSearch(PlannedSearch):
    """TVM's ``XGBTuner`` with ``loss_type="rank"``: 128 walkers, and plans of 32 as in AdaTune's comparison."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context, Cooling(walkers=128))

    def value(self, features: Floats, throughput: Floats) -> Value:
        """The model's rank."""
        model = BoostedRank(self._seed).fit(features, throughput)
        space = self._pool.space

        def rank(rows: Rows) -> Floats:
            return model.rank(space.row_features(rows))

        return rank

    def share(self) -> float:
        """ε."""
        return EPSILON
