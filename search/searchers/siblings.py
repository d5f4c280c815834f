"""Results of sibling tasks (of the same template) as training data for this one.

Notation: n = results of one task, d = features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from costmodels.posterior import TaskRows, TemplatePosterior, blank
from schedules.space import Space
from schedules.vocabulary.errors import UsageError
from search.searchers.searcher import Result, Siblings

MOST_TASKS = 24
"""Sibling tasks used. Heuristic: their rows update the posterior once for every searcher."""

MOST_ROWS = 32
"""Results used of one sibling task. Heuristic, as above."""


@dataclass(frozen=True)
class SiblingRows:
    """One sibling task: features (n, d), scores (n,) with NaN where a config failed, and its space's extents."""

    features: Floats
    scores: Floats
    extents: tuple[int, ...]

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(n,) whether each config was timed."""
        return ~np.isnan(self.scores)

    @property
    def timed(self) -> TaskRows:
        """The valid results."""
        return TaskRows(self.features[self.valid], self.scores[self.valid], self.extents)


def sibling_rows(space: Space, siblings: Siblings) -> list[SiblingRows]:
    """``siblings`` in the columns of ``space``, nearest task first.

    Only tasks whose spaces have the same feature names take part: the template is the same, the sizes differ.
    Of more than ``MOST_ROWS`` results the best half and the newest rest are kept.
    """
    columns = space.feature_names
    kept: list[SiblingRows] = []
    for other, results in siblings:
        if len(kept) >= MOST_TASKS or other.feature_names != columns:
            continue
        rows, scores = [], []
        for config, measurement in _kept([result for result in results if result[0].space == other.identity]):
            try:
                rows.append(other.row(config))
            except UsageError:  # a knob value that the space no longer offers
                continue
            scores.append(-math.log(measurement.latency_s) if measurement.ok else math.nan)
        if rows:
            kept.append(SiblingRows(other.row_features(np.stack(rows)), np.array(scores), other.extents))
    return kept


def _kept(results: list[Result]) -> list[Result]:
    """The best half of ``MOST_ROWS`` results, then the newest others, oldest first."""
    if len(results) <= MOST_ROWS:
        return results
    latencies = [measurement.latency_s if measurement.ok else math.inf for _, measurement in results]
    order = np.argsort(latencies, kind="stable")
    best, rest = order[: MOST_ROWS // 2], np.sort(order[MOST_ROWS // 2 :])
    return [results[place] for place in (*best, *rest[-(MOST_ROWS - len(best)) :])]


def posterior_of(
    space: Space, template: TemplatePosterior | None, siblings: Sequence[SiblingRows]
) -> TemplatePosterior | None:
    """Return what is known of the configs of ``space``: its template's posterior after ``siblings``; None if nothing.

    A template that nobody recorded starts with weights of 0, so that its siblings alone decide.
    """
    told = [rows for rows in siblings if rows.valid.sum() >= 2]
    if template is None and not told:
        return None
    known = template or blank(space, np.concatenate([rows.timed.features for rows in told]))
    return known.updated([rows.timed for rows in told])
