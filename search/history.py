"""History: the measurements of one space as training data.

Notation: d = number of knobs, n = number of configs.
Score y = ln(1 / latency in seconds): larger is better, a difference of 0.05 is 5 % of speed on every task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from search.pool import Pool, Rows
from search.searcher import Result


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
    def scores(self) -> Floats:
        """(n,) score of each row; NaN for a failure."""
        return np.array(list(self._scores.values()), dtype=np.float64)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) whether each row was timed."""
        return ~np.isnan(self.scores)

    def incumbents(self, count: int) -> Rows:
        """Up to ``count`` best valid rows, best first."""
        rows, scores = self.rows, self.scores
        valid = np.flatnonzero(~np.isnan(scores))
        return rows[valid[np.argsort(-scores[valid], kind="stable")[:count]]]
