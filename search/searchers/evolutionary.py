"""Evolutionary search guided by a cost model, as in Ansor (Zheng et al., OSDI 2020, section 5.1) and MetaSchedule.

The best measured configs and random configs form a population. For some generations the cost model picks parents in
proportion to predicted throughput, and children are crossed and mutated. The best untried ones are asked; a share ε of
the batch is random.
"""

from __future__ import annotations

import numpy as np

from costmodels.cost_model import Floats
from costmodels.cost_model_catalog import make_cost_model
from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.searcher import SearchContext

POPULATION = 512
"""Configs of a generation, as MetaSchedule's default."""

GENERATIONS = 4
"""Generations of a batch, as MetaSchedule's default."""

EPSILON = 0.05
"""Share of a batch that is random, as MetaSchedule's default."""

WINNERS = 0.2
"""Share of the first generation that was measured, as MetaSchedule's default."""

CROSSED = 0.3
"""Share of children with two parents. Heuristic, not measured."""


class EvolutionarySearch(LearningSearcher):
    """Ansor's rule with the context's cost model."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        self._model = make_cost_model(context.cost_model, int(context.rng.integers(2**31)))

    def _propose(self, count: int) -> Rows:
        """The best of all generations; none before anything valid is known."""
        if not self._history.valid.any():
            return self._pool.none()
        explored = int(self._rng.binomial(count, EPSILON))
        return self._evolved()[: count - explored]

    def _evolved(self) -> Rows:
        """Untried rows of all generations, best predicted first."""
        space = self._pool.space
        self._model.fit(self._history.features, self._history.filled_scores)
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
        return children[self._pool.space.allowed(children)]
