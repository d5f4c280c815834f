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
from search.searchers.searcher import SearchContext

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
        features, scores = [], []
        for config, measurement in results:
            try:
                row = space.row(config)
            except UsageError:  # a knob value that the space no longer offers
                continue
            features.append(row)
            scores.append(-math.log(measurement.latency_s) if measurement.ok else math.nan)
        if features:
            found.append(_kept(space.row_features(np.stack(features)), np.array(scores)))
    return found


def _kept(features: Floats, scores: Floats) -> PriorRows:
    if len(scores) > MOST_ROWS:
        order = np.argsort(np.where(np.isnan(scores), np.inf, -scores), kind="stable")
        best, rest = order[: MOST_ROWS // 2], np.sort(order[MOST_ROWS // 2 :])
        chosen = np.concatenate([best, rest[-(MOST_ROWS - len(best)) :]])
        features, scores = features[chosen], scores[chosen]
    return PriorRows(features, scores)
