"""The default searcher: a surrogate that starts from sibling tasks, and batches that follow its uncertainty.

Notation: m = candidates, q = size of a batch, κ = weight of the uncertainty, EI = expected improvement over the best
score.

    seeds           of a space with several algorithms one config of each, one or two a batch until all are tried
    first batch     a few of the space's initial configs, then what sibling tasks recommend;
                    without sibling tasks, more initial configs and configs spread over the space
    afterwards      the q best of ln EI + ln P(valid)

From AdaTune come a surrogate with an uncertainty, expected improvement, and exploration that follows that uncertainty.
Departures: calibrated boosted trees instead of ten trees; in an enumerated space every untried config is scored instead
of a walk through it; EI in logs, so that it ranks where it underflows; failures in a model of their own; a warm start
from the log; no separate random share. Two other acquisitions are variants: an upper confidence bound whose κ is drawn
anew for every place of a batch, and Thompson sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodels.acquisition import log_expected_improvement, thompson, upper_confidence_bound
from costmodels.cost_model import Floats, Prediction
from costmodels.cost_model_catalog import make_cost_model
from costmodels.surrogate import Surrogate
from costmodels.validity import Validity
from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.prior import prior_rows
from search.searchers.searcher import SearchContext

CANDIDATES = 4096
"""Most candidates scored for a batch. Heuristic: the default cost model predicts as many in 5 ms."""

PARENTS = 8
"""Best configs whose neighbours are candidates in a space too large to list. Heuristic, not measured."""

MEAN_KAPPA = 0.35
"""Mean of κ of the upper confidence bound. Heuristic, not measured."""

SEED_SHARE = 0.5
"""Share of a batch that goes to the space's seeds until all are tried. Heuristic: the rest of the batch still follows
what is recommended."""

INITIAL_SHARE = 0.75
"""Share of the first batch that goes to the space's initial configs. Heuristic, not measured."""

INITIAL_SHARE_WITH_PRIOR = 0.25
"""The same where sibling tasks recommend configs. Heuristic, not measured."""

DESCENT = 24
"""Valid trials of its own up to which a task is searched mostly one knob away from its best config: without it
coordinate descent needed 4 % fewer trials, with it 4 % more (docs/adatune.md)."""

ANYWHERE = 4
"""During the descent, one place in so many of a batch is free. Heuristic, not measured."""

Acquisition = Callable[[Prediction, np.random.Generator], Floats]


def _bound(prediction: Prediction, rng: np.random.Generator) -> Floats:
    return upper_confidence_bound(prediction, MEAN_KAPPA * float(rng.exponential()))


def _improvement(prediction: Prediction, rng: np.random.Generator) -> Floats:
    """(m,) ln EI over the best gap, which is 0 by definition."""
    del rng
    return log_expected_improvement(prediction, 0.0)


ACQUISITIONS: dict[str, Acquisition] = {"bound": _bound, "improvement": _improvement, "thompson": thompson}


class AdaptiveSearch(LearningSearcher):
    """Searches with a surrogate; the ``acquisition`` of that name scores the candidates for every place of a batch."""

    def __init__(
        self, context: SearchContext, acquisition: Literal["bound", "improvement", "thompson"] = "improvement"
    ) -> None:
        super().__init__(context)
        self._acquisition = ACQUISITIONS[acquisition]
        seed = int(context.rng.integers(2**31))
        self._siblings = prior_rows(context)
        measured = [(rows.features[rows.valid], rows.scores[rows.valid]) for rows in self._siblings]
        self._surrogate = Surrogate(lambda: make_cost_model(context.cost_model, seed), measured)
        self._validity = Validity()

    def _propose(self, count: int) -> Rows:
        """Initial configs in the first batch, seeds until all are tried, then promising or spread configs."""
        seeds = int(np.ceil(count * SEED_SHARE))
        chosen = self._pool.none()
        if not len(self._history):
            share = INITIAL_SHARE_WITH_PRIOR if self._surrogate.ready else INITIAL_SHARE
            room = max(1, count - len(self._pool.seeds(seeds)))
            chosen = self._pool.initial(min(int(np.ceil(count * share)), room))
            self._pool.take(chosen)
        # Sibling tasks may know nothing of an algorithm that is fast here, and then they never recommend it.
        chosen = np.concatenate([chosen, self._pool.seeds(min(seeds, count - len(chosen)))])
        self._pool.take(chosen)
        if self._history.valid.any() or self._surrogate.ready:
            chosen = np.concatenate([chosen, self._promising(count - len(chosen))])
            self._pool.take(chosen)
        if len(chosen) < count:
            chosen = np.concatenate([chosen, self._pool.spread(count - len(chosen))])
        return chosen

    def _promising(self, count: int) -> Rows:
        """Up to ``count`` untried rows by the acquisition."""
        if self._pool.remaining == 0:
            return self._pool.none()
        # Trees give many candidates the same score; the order of the candidates decides among them.
        candidates = self._rng.permutation(self._pool.candidates(self._history.incumbents(PARENTS), CANDIDATES))
        prediction, log_chance = self._expectations(candidates)
        chosen: list[int] = []
        near = self._near(candidates)
        for place in range(min(count, len(candidates))):
            value = self._acquisition(prediction, self._rng) + log_chance
            value[chosen] = -np.inf
            if place % ANYWHERE and near[value > -np.inf].any():
                value[~near] = -np.inf
            chosen.append(int(np.argmax(value)))
        return candidates[chosen]

    def _expectations(self, candidates: Rows) -> tuple[Prediction, Floats]:
        """What the surrogate, fitted anew, expects of ``candidates`` (m, d), and ln P(valid) (m,)."""
        features, valid = self._history.features, self._history.valid
        if valid.any():
            self._surrogate.fit(features[valid], self._history.scores[valid])
        tried = [features, *(rows.features for rows in self._siblings)]
        self._validity.fit(np.concatenate(tried), np.concatenate([valid, *(rows.valid for rows in self._siblings)]))
        asked = self._pool.space.row_features(candidates)
        log_chance = np.log(self._validity.probability(asked))
        return self._surrogate.predict(asked), log_chance

    def _near(self, candidates: Rows) -> NDArray[np.bool_]:
        """(m,) which candidates are one knob away from the best so far; none after the descent."""
        if not 0 < int(self._history.valid.sum()) < DESCENT:
            return np.zeros(len(candidates), dtype=np.bool_)
        away = np.abs(candidates - self._history.incumbents(1))
        return np.asarray(away.sum(axis=1) == 1)
