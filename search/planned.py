"""Plans: AutoTVM's way of asking, shared by its own rule and by AdaTune's.

Every ``PLAN`` new measurements the model is refitted and an annealing walk proposes the next plan. The last share ε
of a plan is random instead. Before the first plan everything is random. (TVM's ``model_based_tuner.py``.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from costmodels.cost_model import Floats
from schedules.config import Config
from search.annealer import Annealer, Cooling, Value
from search.history import History
from search.pool import Pool, Rows
from search.searcher import Result, SearchContext, Searcher

PLAN = 32


class PlannedSearch(Searcher):
    """Asks along a plan; a subclass says how to value configs and how much to explore."""

    def __init__(self, context: SearchContext, cooling: Cooling) -> None:
        self._rng = context.rng
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        self._annealer = Annealer(self._pool, context.rng, cooling)
        self._plan: list[Rows] = []
        self._plans = 0
        self._seed = int(context.rng.integers(2**31))

    @abstractmethod
    def value(self, features: Floats, throughput: Floats) -> Value:
        """Learn from ``features`` (n, d) and ``throughput`` (n,) in runs per second, 0 for a failure; what to climb."""

    @abstractmethod
    def share(self) -> float:
        """ε, the share of the next plan that is random, in [0, 1]; asked after ``value``."""

    def ask(self, count: int) -> list[Config]:
        """The next of the plan, random configs where it has ended."""
        chosen: list[Config] = []
        while len(chosen) < count and self._plan:
            row = self._plan.pop(0)[None, :]
            if self._pool.untried(row)[0]:
                chosen += self._pool.configs(row)
        return [*chosen, *self._pool.configs(self._pool.draw(count - len(chosen)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Learn; after every ``PLAN`` measurements make a new plan."""
        self._history.tell(results)
        if len(self._history) >= PLAN * (self._plans + 1) and self._history.valid.any():
            self._plans += 1
            throughput = np.nan_to_num(np.exp(self._history.scores), nan=0.0)
            value = self.value(self._pool.space.row_features(self._history.rows), throughput)
            best = self._annealer.best(value, PLAN)
            self._plan = list(best[: max(len(best) - int(self.share() * PLAN), 0)])
