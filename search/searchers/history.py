"""History: the measurements of one space as training data, and the skeleton of the searchers that learn from them.

Notation: d = number of knobs, n = number of configs.
Score y = ln(1 / latency in seconds): larger is better, a difference of 0.05 is 5 % of speed on every task.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from schedules.config import Config
from search.searchers.pool import Pool, Rows
from search.searchers.searcher import Result, SearchContext, Searcher

FAILURE_GAP = 1.0
"""Score of a failure below the worst success, for models without a model of failures. e times slower is enough to avoid
it and too little to distort the model. Heuristic, not measured."""


class History:
    """Newest measurement of each told config, as rows and scores."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._scores: dict[tuple[int, ...], float] = {}

    def tell(self, results: Sequence[Result]) -> None:
        """Keep ``results``: a failure's score is NaN; a config measured again keeps its newest success."""
        for config, measurement in results:
            row = self._pool.row(config)
            if row is None:
                continue
            key = tuple(int(index) for index in row)
            if measurement.ok:
                self._scores[key] = -math.log(measurement.latency_s)
            else:
                self._scores.setdefault(key, math.nan)
        self._pool.remember(config for config, _ in results)

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def rows(self) -> Rows:
        """(n, d) every told row, failures included, oldest first."""
        width = len(self._pool.space.knobs)
        return np.array(list(self._scores), dtype=np.int32).reshape(len(self._scores), width)

    @property
    def features(self) -> Floats:
        """(n, number of features) of every told row."""
        return self._pool.space.row_features(self.rows)

    @property
    def scores(self) -> Floats:
        """(n,) score of each row; NaN for a failure."""
        return np.array(list(self._scores.values()), dtype=np.float64)

    @property
    def filled_scores(self) -> Floats:
        """(n,) score of each row, a failure's being ``FAILURE_GAP`` below the worst success."""
        scores = self.scores
        return np.where(np.isnan(scores), np.nanmin(scores) - FAILURE_GAP, scores)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) whether each row was timed."""
        return ~np.isnan(self.scores)

    def incumbents(self, count: int) -> Rows:
        """Up to ``count`` best valid rows, best first."""
        rows, scores = self.rows, self.scores
        valid = np.flatnonzero(~np.isnan(scores))
        return rows[valid[np.argsort(-scores[valid], kind="stable")[:count]]]


class LearningSearcher(Searcher):
    """A searcher with a pool of untried configs and a history; a subclass says what to propose."""

    def __init__(self, context: SearchContext) -> None:
        self._rng = context.rng
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)

    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` configs: what the subclass proposes, then random ones."""
        chosen = self._pool.configs(self._propose(count))
        return [*chosen, *self._pool.configs(self._pool.draw(count - len(chosen)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``."""
        self._history.tell(results)

    @abstractmethod
    def _propose(self, count: int) -> Rows:
        """(≤ count, d) distinct untried rows."""
