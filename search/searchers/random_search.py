"""Uniform random search: the baseline of every other searcher."""

from __future__ import annotations

from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows


class RandomSearch(LearningSearcher):
    """Configs drawn uniformly without repetition."""

    def _propose(self, count: int) -> Rows:
        del count
        return self._pool.none()
