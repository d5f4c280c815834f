"""Results of sibling tasks (of the same template) as training data for this one.

Notation: n = results of one task, d = features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from schedules.errors import UsageError
from search.searchers.searcher import Result, SearchContext

MOST_TASKS = 24
"""Sibling tasks used. Heuristic: the fit of the shared model is paid once for every searcher."""

MOST_ROWS = 32
"""Results used of one sibling task. Heuristic, as above."""


@dataclass(frozen=True)
class PriorRows:
    """One sibling task: features (n, d), scores (n,) with NaN where a config failed."""

    features: Floats
    scores: Floats

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) whether each config was timed."""
        return ~np.isnan(self.scores)


def prior_rows(context: SearchContext) -> list[PriorRows]:
    """``context.prior`` in this space's columns, nearest task first.

    Only tasks whose spaces have the same feature names take part: the template is the same, the sizes differ.
    Of more than ``MOST_ROWS`` results the best half and the newest rest are kept.
    """
    columns = context.space.feature_names
    found: list[PriorRows] = []
    for space, results in context.prior:
        if len(found) >= MOST_TASKS or space.feature_names != columns:
            continue
        rows, scores = [], []
        for config, measurement in _kept([result for result in results if result[0].space == space.identity]):
            try:
                rows.append(space.row(config))
            except UsageError:  # a knob value that the space no longer offers
                continue
            scores.append(-math.log(measurement.latency_s) if measurement.ok else math.nan)
        if rows:
            found.append(PriorRows(space.row_features(np.stack(rows)), np.array(scores)))
    return found


def _kept(results: list[Result]) -> list[Result]:
    """The best half of ``MOST_ROWS`` results, then the newest others, oldest first."""
    if len(results) <= MOST_ROWS:
        return results
    latencies = [measurement.latency_s if measurement.ok else math.inf for _, measurement in results]
    order = np.argsort(latencies, kind="stable")
    best, rest = order[: MOST_ROWS // 2], np.sort(order[MOST_ROWS // 2 :])
    return [results[place] for place in (*best, *rest[-(MOST_ROWS - len(best)) :])]
