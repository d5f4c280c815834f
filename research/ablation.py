"""Variants of the default searcher that differ in one thing each, to see what that thing brings.

    tune replay TRACES --searcher adaptive,research.ablation:doubting,research.ablation:joint

from the repository's root with ``PYTHONPATH=.``. What brought nothing is no part of the default (docs/lab: search).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodels.boosted import Boosted
from costmodels.cost_model import Floats, Prediction
from costmodels.surrogate import Surrogate
from research.log_improvement import log_expected_improvement
from search.searchers.adaptive import ANYWHERE, CANDIDATES, PARENTS, AdaptiveSearch
from search.searchers.pool import Rows
from search.searchers.searcher import Result, SearchContext

JOINT_REACH = 0.02
"""Mean squared distance per feature, in ranges squared, at which a chosen config tells 1/e of another's variance."""

COST_REACH = 0.05
"""The same, at which the seconds of a trial say 1/e as much of another's."""

SEED = 0
"""Of the ensembles of other sizes; their tasks and trials have the seeds of the replay."""

LEAST_COSTS = 6
"""Trials before seconds are predicted."""


def _squares(asked: Floats, told: Floats) -> Floats:
    """(m, n) mean squared distances per feature, features scaled to unit range."""
    spans = np.ptp(np.concatenate([asked, told]), axis=0)
    unit = np.where(spans > 0, spans, 1.0)
    left, right = asked / unit, told / unit
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2.0 * left @ right.T
    return np.asarray(np.maximum(squares, 0.0) / asked.shape[1])


def alone(context: SearchContext) -> AdaptiveSearch:
    """Pooling off: results of sibling tasks are not used."""
    return AdaptiveSearch(replace(context, siblings=()))


def untaught(context: SearchContext) -> AdaptiveSearch:
    """What was learned of the template on random layers is not used beyond the first guesses, which all rivals have."""
    return AdaptiveSearch(replace(context, template=None))


def no_descent(context: SearchContext) -> AdaptiveSearch:
    """Tasks without a prior are searched anywhere from the beginning, as those with one are."""

    class Free(AdaptiveSearch):
        def _near(self, candidates: Rows) -> NDArray[np.bool_]:
            return np.zeros(len(candidates), dtype=np.bool_)

    return Free(context)


def descent(context: SearchContext) -> AdaptiveSearch:
    """Tasks with a prior are searched as those without one are, mostly one knob away from the best config at first."""

    class Descending(AdaptiveSearch):
        def _near(self, candidates: Rows) -> NDArray[np.bool_]:
            template, self._template = self._template, None
            try:
                return super()._near(candidates)
            finally:
                self._template = template

    return Descending(context)


class _Doubting(AdaptiveSearch):
    """Expected improvement in the place of the expected score, in logs, so that it ranks where it underflows."""

    def _value(self, prediction: Prediction) -> Floats:
        return log_expected_improvement(prediction, 0.0)  # the best gap is 0 by definition


def forest_doubting(context: SearchContext) -> AdaptiveSearch:
    """The same with the cost model whose doubt is calibrated best."""
    return _Doubting(replace(context, cost_model="forest"))


def forest(context: SearchContext) -> AdaptiveSearch:
    """That cost model without doubt."""
    return AdaptiveSearch(replace(context, cost_model="forest"))


def _ensemble(context: SearchContext, members: int, rounds: int, rate: float) -> AdaptiveSearch:
    """The default cost model in another size."""
    search = AdaptiveSearch(context)
    search._surrogate = Surrogate(lambda: Boosted(SEED, members, rounds, rate))
    return search


def five_by_twenty(context: SearchContext) -> AdaptiveSearch:
    """What the ensemble was before it was made smaller."""
    return _ensemble(context, 5, 20, 0.3)


def five_by_ten(context: SearchContext) -> AdaptiveSearch:
    """Half of the rounds."""
    return _ensemble(context, 5, 10, 0.5)


def three_by_eight(context: SearchContext) -> AdaptiveSearch:
    """Smaller than the default."""
    return _ensemble(context, 3, 8, 0.5)


def two_by_eight(context: SearchContext) -> AdaptiveSearch:
    """The fewest members that disagree."""
    return _ensemble(context, 2, 8, 0.5)


def gaussian_process(context: SearchContext) -> AdaptiveSearch:
    """Another cost model."""
    return AdaptiveSearch(replace(context, cost_model="gaussian-process"))


class _Joint(_Doubting):
    """A chosen config takes variance from what is near it, as its measurement would in a Gaussian process."""

    def _promising(self, count: int) -> Rows:
        candidates = self._rng.permutation(self._pool.candidates(self._history.incumbents(PARENTS), CANDIDATES))
        if not len(candidates):
            return candidates
        prediction, log_chance = self._expectations(candidates)
        features, near = self._pool.space.row_features(candidates), self._near(candidates)
        chosen: list[int] = []
        for place in range(min(count, len(candidates))):
            value = self._value(prediction) + log_chance
            value[chosen] = -np.inf
            if place % ANYWHERE and near[value > -np.inf].any():
                value[~near] = -np.inf
            chosen.append(int(np.argmax(value)))
            told = np.exp(-_squares(features, features[chosen[-1:]])[:, 0] / JOINT_REACH)
            prediction = replace(prediction, std=prediction.std * np.sqrt(np.maximum(1.0 - told, 1e-4)))
        return candidates[chosen]


class _PerSecond(_Doubting):
    """Expected improvement per second: the seconds of a trial are those of tried configs near by."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        self._tried: list[Rows] = []
        self._seconds: list[float] = []

    def tell(self, results: Sequence[Result]) -> None:
        super().tell(results)
        for config, measured in results:
            row = self._pool.row(config)
            if row is not None:
                self._tried.append(row)
                self._seconds.append(measured.compile_s + measured.run_s)

    def _expectations(self, candidates: Rows) -> tuple[Prediction, Floats]:
        prediction, log_chance = super()._expectations(candidates)
        if len(self._tried) < LEAST_COSTS:
            return prediction, log_chance
        space, logs = self._pool.space, np.log(np.maximum(self._seconds, 1e-3))
        votes = np.exp(
            -_squares(space.row_features(candidates), space.row_features(np.stack(self._tried))) / COST_REACH
        )
        return prediction, log_chance - (votes @ (logs - logs.mean())) / (votes.sum(axis=1) + 1.0)


doubting, joint, per_second = _Doubting, _Joint, _PerSecond
