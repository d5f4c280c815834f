"""Model-based search: first guesses, then the configs a cost model expects most of, with a share of random ones.

Notation: n = number of candidates.

The first strategy of the loop and the seat of the better ones. Acquisition: upper confidence bound μ + κσ with an
own κ ~ Exp(1) for each place of the batch, which spreads a batch between trust (κ near 0) and doubt
(Kandasamy et al. 2018 draw a whole function instead; one number per place is the cheap version of that).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.cost_model import Prediction
from costmodels.cost_model_catalog import make_cost_model
from schedules.config import Config
from search.history import History
from search.pool import Pool, Rows
from search.searcher import Result, SearchContext, Searcher

RANDOM_SHARE = 0.1
LEAST_DATA = 4  # valid measurements below which a model knows nothing worth asking


class BoostedSearch(Searcher):
    """Asks the context's cost model which untried configs look best."""

    def __init__(self, context: SearchContext) -> None:
        self._rng = context.rng
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        self._model = make_cost_model(context.cost_model, int(context.rng.integers(2**31)))

    def ask(self, count: int) -> list[Config]:
        """First guesses, then model-chosen configs; random ones while there is too little to learn from."""
        chosen = self._pool.configs(self._pool.first(count))
        lacking = count - len(chosen)
        if lacking and int(self._history.valid.sum()) >= LEAST_DATA:
            explored = int(self._rng.binomial(lacking, RANDOM_SHARE))
            chosen += self._pool.configs(self._promising(lacking - explored))
        return [*chosen, *self._pool.configs(self._pool.draw(count - len(chosen)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``."""
        self._history.tell(results)

    def _promising(self, count: int) -> Rows:
        """Up to ``count`` untried rows by the model's upper confidence bounds."""
        history, space = self._history, self._pool.space
        scores = history.scores
        # a failure counts as somewhat worse than the worst success: enough to steer away, too little to bend the model
        scores = np.where(np.isnan(scores), np.nanmin(scores) - 1.0, scores)
        candidates = self._pool.candidates(history.incumbents(8))
        if not len(candidates):
            return candidates
        model = self._model.fit(space.row_features(history.rows), scores)
        return candidates[self._places(model.predict(space.row_features(candidates)), count)]

    def _places(self, prediction: Prediction, count: int) -> list[int]:
        """Indices of up to ``count`` candidates, each the best one left under its own κ."""
        chosen: list[int] = []
        open_ = np.ones(len(prediction.mean), dtype=np.bool_)
        for kappa in self._rng.exponential(size=min(count, len(open_))):
            bound = np.where(open_, prediction.mean + kappa * prediction.std, -np.inf)
            place = int(np.argmax(bound))
            open_[place] = False
            chosen.append(place)
        return chosen
