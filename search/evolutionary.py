"""Evolutionary search guided by a cost model, as in Ansor (Zheng et al., OSDI 2020, section 5.1) and MetaSchedule.

Measured winners and random configs form a population; for some generations the cost model picks parents in
proportion to predicted throughput, children are crossed and mutated; the best untried ones are asked, a share ε at
random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.cost_model import Floats
from costmodels.cost_model_catalog import make_cost_model
from schedules.config import Config
from search.history import History
from search.pool import Pool, Rows
from search.searcher import Result, SearchContext, Searcher

POPULATION = 512
GENERATIONS = 4
EPSILON = 0.05
WINNERS = 0.2  # share of the first generation that comes from measured configs
CROSSED = 0.3  # share of children with two parents
FAILURE_GAP = 1.0


class EvolutionarySearch(Searcher):
    """See the module's text."""

    def __init__(self, context: SearchContext) -> None:
        self._rng = context.rng
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        self._model = make_cost_model(context.cost_model, int(context.rng.integers(2**31)))

    def ask(self, count: int) -> list[Config]:
        """The best of the last generation; random configs before anything valid is known."""
        configs: list[Config] = []
        if self._history.valid.any():
            explored = int(self._rng.binomial(count, EPSILON))
            configs += self._pool.configs(self._evolved()[: count - explored])
        return [*configs, *self._pool.configs(self._pool.draw(count - len(configs)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``."""
        self._history.tell(results)

    def _evolved(self) -> Rows:
        """Untried rows of all generations, best predicted first."""
        space, scores = self._pool.space, self._history.scores
        scores = np.where(np.isnan(scores), np.nanmin(scores) - FAILURE_GAP, scores)
        self._model.fit(space.row_features(self._history.rows), scores)
        winners = self._history.incumbents(int(POPULATION * WINNERS))
        population = np.concatenate([winners, self._pool.scatter(POPULATION - len(winners))])
        seen, expected = [population], [self._model.predict(space.row_features(population)).mean]
        for _ in range(GENERATIONS):
            population = self._children(seen[-1], expected[-1])
            if not len(population):
                break
            seen.append(population)
            expected.append(self._model.predict(space.row_features(population)).mean)
        rows, where = np.unique(np.concatenate(seen), axis=0, return_index=True)
        order = np.argsort(-np.concatenate(expected)[where], kind="stable")
        return rows[order][self._pool.untried(rows[order])]

    def _children(self, parents: Rows, expected: Floats) -> Rows:
        """Valid children of parents drawn in proportion to predicted throughput."""
        chance = np.exp(expected - expected.max())
        drawn = self._rng.choice(len(parents), size=(2, POPULATION), p=chance / chance.sum())
        mixed = self._rng.random((POPULATION, parents.shape[1])) < 0.5
        crossed = np.where(mixed, parents[drawn[0]], parents[drawn[1]])
        lone = self._pool.mutate(parents[drawn[0]], POPULATION)
        children = np.where(self._rng.random((POPULATION, 1)) < CROSSED, crossed, lone).astype(np.int32)
        return children[self._pool.valid(children)]
