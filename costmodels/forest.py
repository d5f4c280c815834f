"""Random forest and extra trees of scikit-optimize, with calibrated standard deviations.

Notation: n = number of configs, m = rows predicted, d = features, t = trees.

The surrogate of AdaTune: mean and standard deviation over trees. scikit-optimize adds the variance within leaves
(Hutter et al. 2014, section 4.3.2). Departure: rows left out of a tree's bootstrap give unbiased errors, by which the
standard deviation is scaled until its 80 % interval covers 80 % of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from skopt.learning import ExtraTreesRegressor, RandomForestRegressor

from costmodels.calibration import conformal_scale
from costmodels.cost_model import CostModel, Floats, Prediction
from schedules.vocabulary.errors import UsageError

TREES = 40
"""Trees of a forest; the paper has ten. Heuristic, not measured."""

LEAST_STD = 1e-3
"""Least standard deviation in scores, 0.1 % of a latency. Heuristic: no timing is better than that."""


class Forest(CostModel):
    """Bagged trees on one thread: random forest, or with ``extra`` extremely randomised trees.

    ``calibrated`` scales the standard deviation; without it, it is the trees' own as in the papers.
    """

    def __init__(self, seed: int, extra: bool = False, trees: int = TREES, calibrated: bool = True) -> None:
        self._seed = seed
        self._kind = ExtraTreesRegressor if extra else RandomForestRegressor
        self._trees = trees
        self._calibrated = calibrated
        self.forest_: Any = None
        self.scale_ = 1.0

    def fit(self, features: Floats, scores: Floats) -> Forest:
        """Learn from ``features`` (n, d) and ``scores`` (n,)."""
        self.forest_ = self._kind(
            n_estimators=self._trees,
            bootstrap=True,
            min_samples_leaf=1,
            max_features=0.6,
            n_jobs=1,
            random_state=self._seed,
        )
        self.forest_.fit(features, scores)
        if self._calibrated:
            self.scale_ = conformal_scale(*self._held_out(features, scores))
        return self

    def _by_tree(self, features: Floats) -> Floats:
        """(t, m) expectation of each tree."""
        # The compiled trees are called directly: scikit-learn's checks cost more than the prediction.
        narrow = np.ascontiguousarray(features, dtype=np.float32)
        return np.stack([tree.tree_.predict(narrow).ravel() for tree in self.forest_.estimators_])

    def _held_out(self, features: Floats, scores: Floats) -> tuple[Floats, Floats]:
        """Errors and standard deviations of rows that at least three trees did not see."""
        unseen = np.ones((self._trees, len(scores)), dtype=np.bool_)
        for tree, drawn in enumerate(self.forest_.estimators_samples_):
            unseen[tree, drawn] = False
        enough = unseen.sum(axis=0) >= 3
        by_tree = np.where(unseen, self._by_tree(features), np.nan)[:, enough]
        if not enough.any():
            return np.zeros(0), np.zeros(0)
        stds = np.maximum(np.nanstd(by_tree, axis=0, ddof=1), LEAST_STD)
        return np.nanmean(by_tree, axis=0) - scores[enough], stds

    def predict(self, features: Floats) -> Prediction:
        """Mean and scaled standard deviation over trees.

        Raises:
            UsageError: before ``fit``.
        """
        if self.forest_ is None:
            raise UsageError("Forest.predict was called before fit; fit it on at least one measurement")
        by_tree = self._by_tree(features)
        stds = np.maximum(by_tree.std(axis=0, ddof=1), LEAST_STD)
        return Prediction(by_tree.mean(axis=0), stds * self.scale_)
