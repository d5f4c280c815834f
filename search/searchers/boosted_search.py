"""Model-based search without experience of other tasks: initial configs, then the best by upper confidence bounds.

The acquisition is μ + κσ with κ ~ Exp(1) drawn for each place of the batch, so that one batch holds configs that are
expected to be fast and configs of which little is known. (Kandasamy et al. 2018 draw a whole function instead.)
A share of every batch is random. The default searcher, ``adaptive``, is compared with this one in docs/lab: search.
"""

from __future__ import annotations

import numpy as np

from costmodels.acquisition import upper_confidence_bound
from costmodels.cost_model_catalog import make_cost_model
from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.searcher import SearchContext

RANDOM_SHARE = 0.1
"""Share of a batch that is random. Heuristic, not measured."""

LEAST_DATA = 4
"""Valid measurements before the model is asked. Heuristic, not measured."""


class BoostedSearch(LearningSearcher):
    """Asks the context's cost model which untried configs look best."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        self._model = make_cost_model(context.cost_model, int(context.rng.integers(2**31)))

    def _propose(self, count: int) -> Rows:
        initial = self._pool.initial(count)
        lacking = count - len(initial)
        if not lacking or int(self._history.valid.sum()) < LEAST_DATA:
            return initial
        self._pool.take(initial)
        explored = int(self._rng.binomial(lacking, RANDOM_SHARE))
        return np.concatenate([initial, self._promising(lacking - explored)])

    def _promising(self, count: int) -> Rows:
        """Up to ``count`` untried rows, each the best that is left by its own upper confidence bound."""
        history, space = self._history, self._pool.space
        candidates = self._pool.candidates(history.incumbents(8))
        if not len(candidates):
            return candidates
        model = self._model.fit(history.features, history.filled_scores)
        prediction = model.predict(space.row_features(candidates))
        chosen: list[int] = []
        for kappa in self._rng.exponential(size=min(count, len(candidates))):
            bound = upper_confidence_bound(prediction, kappa)
            bound[chosen] = -np.inf
            chosen.append(int(np.argmax(bound)))
        return candidates[chosen]
