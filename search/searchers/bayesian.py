"""scikit-optimize's own ask/tell loop as a searcher: extra trees, expected improvement, constant-liar batches."""

from __future__ import annotations

import warnings

import numpy as np
from skopt import Optimizer
from skopt.space import Integer

from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.searcher import SearchContext

CANDIDATES = 400
"""Points that the optimiser scores for each place of a batch. Heuristic, not measured."""

TREES = 30
"""Trees of the surrogate. Heuristic, not measured."""

LEAST_DATA = 4
"""Valid measurements before the optimiser is asked. Heuristic, not measured."""


class BayesianSearch(LearningSearcher):
    """``skopt.Optimizer`` over choice indices; random configs replace what it repeats or the constraint forbids."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        self._lengths = [len(knob.choices) for knob in context.space.knobs]
        self._free = [index for index, length in enumerate(self._lengths) if length > 1]
        self._seed = int(context.rng.integers(2**31))

    def _propose(self, count: int) -> Rows:
        if not self._free or not count or int(self._history.valid.sum()) < LEAST_DATA:
            return self._pool.none()
        rows = self._suggested(count)
        return rows[self._pool.untried(rows)]

    def _suggested(self, count: int) -> Rows:
        """(≤ count, d) distinct rows from a new optimiser that is told everything so far.

        It is new each time, because a failure's score and a config measured again change what was told before.
        """
        scores = self._history.filled_scores
        optimizer = Optimizer(
            [Integer(0, self._lengths[index] - 1) for index in self._free],
            base_estimator="ET",
            n_initial_points=0,
            acq_func="EI",
            acq_optimizer="sampling",
            acq_optimizer_kwargs={"n_points": CANDIDATES},
            random_state=(self._seed + len(scores)) % 2**31,
        )
        optimizer.base_estimator_.set_params(n_estimators=TREES)
        told = self._history.rows[:, self._free].tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a point was evaluated before: the pool filters those
            optimizer.tell(told, (-scores).tolist())
            points = optimizer.ask(n_points=count, strategy="cl_min") if count > 1 else [optimizer.ask()]
        rows = np.zeros((len(points), len(self._lengths)), dtype=np.int32)
        rows[:, self._free] = np.array(points, dtype=np.int32)
        return np.unique(rows, axis=0)
