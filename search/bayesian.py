"""scikit-optimize's own ask/tell loop as a searcher: extra trees, expected improvement, constant-liar batches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from skopt import Optimizer
from skopt.space import Integer

from schedules.config import Config
from search.history import History
from search.pool import Pool, Rows
from search.searcher import Result, SearchContext, Searcher

CANDIDATES = 400  # points that the optimiser scores for each place of a batch
TREES = 30
FAILURE_GAP = 1.0  # a failure counts as e times slower than the slowest success


class BayesianSearch(Searcher):
    """``skopt.Optimizer`` over choice indices; random configs replace what it repeats or the constraint forbids."""

    def __init__(self, context: SearchContext) -> None:
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        self._told = 0
        lengths = [len(knob.choices) for knob in context.space.knobs]
        self._free = [index for index, length in enumerate(lengths) if length > 1]
        self._lengths = lengths
        self._seed = int(context.rng.integers(2**31))

    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` configs from the optimiser once something valid is known, random ones before."""
        chosen: list[Config] = []
        if self._free and count and int(self._history.valid.sum()) >= 4:
            rows = self._suggested(count)
            chosen = self._pool.configs(rows[self._pool.untried(rows)])
        return [*chosen, *self._pool.configs(self._pool.draw(count - len(chosen)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``."""
        self._history.tell(results)

    def _suggested(self, count: int) -> Rows:
        """(≤ count, d) distinct rows from a fresh optimiser told everything so far.

        Fresh, because a failure's stand-in and a re-measured config change what was told before.
        """
        scores = self._history.scores
        scores = np.where(np.isnan(scores), np.nanmin(scores) - FAILURE_GAP, scores)
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
