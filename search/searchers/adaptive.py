"""The default searcher: every batch is what is expected to be fastest, by all that is known of a config.

Notation: m = candidates, q = size of a batch.

    seeds           of a space with several algorithms one config of each, one or two a batch until all are tried
    first batch     a few of the space's initial configs, then what the template's prior or sibling tasks recommend;
                    without either, more initial configs and configs spread over the space
    afterwards      the q best of the expected ln speed + ln P(valid)

From AdaTune comes a surrogate that is fitted anew for every batch. Departures: it starts from the template's prior or,
without one, from sibling tasks; boosted trees instead of a forest; in an enumerated space all untried configs are
scored instead of a walk through it; failures in a model of their own; no random share; and no expected improvement:
beside first guesses and a prior, the uncertainty of single configs changes nothing (docs/lab: search).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats, Prediction
from costmodels.cost_model_catalog import make_cost_model
from costmodels.posterior import TemplatePosterior
from costmodels.surrogate import KNEE, Surrogate
from costmodels.validity import Validity
from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.searcher import SearchContext
from search.searchers.siblings import posterior_of, sibling_rows

CANDIDATES = 4096
"""Most candidates scored for a batch. Heuristic: the default cost model predicts as many in 5 ms."""

PARENTS = 8
"""Best configs whose neighbours are candidates in a space too large to list. Heuristic, not measured."""

SEED_SHARE = 0.5
"""Share of a batch that goes to the space's seeds until all are tried. Heuristic: the rest of the batch still follows
what is recommended."""

INITIAL_SHARE = 0.75
"""Share of the first batch that goes to the space's initial configs. Heuristic, not measured."""

INITIAL_SHARE_WITH_PRIOR = 0.25
"""The same where sibling tasks recommend configs. Heuristic, not measured."""

DESCENT = 24
"""Valid trials of its own up to which a task without a prior is searched mostly one knob away from its best config.
With a prior a search needs up to 5 % fewer trials without it (docs/lab: search)."""

ANYWHERE = 4
"""During the descent, one place in so many of a batch is free. Heuristic, not measured."""


class AdaptiveSearch(LearningSearcher):
    """Asks for what a surrogate expects to be fastest."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        seed = int(context.rng.integers(2**31))
        self._template = context.template
        self._siblings = sibling_rows(context.space, context.siblings)
        self._surrogate = Surrogate(lambda: make_cost_model(context.cost_model, seed))
        self._validity = Validity()

    def _propose(self, count: int) -> Rows:
        """Initial configs in the first batch, seeds until all are tried, then promising or spread configs."""
        seeds = int(np.ceil(count * SEED_SHARE))
        chosen = self._pool.none()
        if not len(self._history):
            share = INITIAL_SHARE_WITH_PRIOR if self._siblings and self._template is None else INITIAL_SHARE
            room = max(1, count - len(self._pool.seeds(seeds)))
            chosen = self._pool.initial(min(int(np.ceil(count * share)), room))
            self._pool.take(chosen)
        # Sibling tasks may know nothing of an algorithm that is fast here, and then they never recommend it.
        chosen = np.concatenate([chosen, self._pool.seeds(min(seeds, count - len(chosen)))])
        self._pool.take(chosen)
        if self._history.valid.any() or self._siblings or self._template is not None:
            chosen = np.concatenate([chosen, self._promising(count - len(chosen))])
            self._pool.take(chosen)
        if len(chosen) < count:
            chosen = np.concatenate([chosen, self._pool.spread(count - len(chosen))])
        return chosen

    def _promising(self, count: int) -> Rows:
        """Up to ``count`` untried rows, those of the largest value."""
        if self._pool.remaining == 0:
            return self._pool.none()
        # Trees give many candidates the same score; the order of the candidates decides among them.
        candidates = self._rng.permutation(self._pool.candidates(self._history.incumbents(PARENTS), CANDIDATES))
        prediction, log_chance = self._expectations(candidates)
        values, near = self._value(prediction) + log_chance, self._near(candidates)
        chosen: list[int] = []
        for place in range(min(count, len(candidates))):
            open_ = near if place % ANYWHERE and near.any() else np.isfinite(values)
            chosen.append(int(np.argmax(np.where(open_, values, -np.inf))))
            values[chosen[-1]], near[chosen[-1]] = -np.inf, False
        return candidates[chosen]

    @cached_property
    def _space_features(self) -> Floats:
        """(size, d) features of the space's rows."""
        return self._pool.space.row_features(self._pool.space.rows)

    def _features(self, rows: Rows) -> Floats:
        """(n, d) features of ``rows``, derived once for a space that is not large."""
        space = self._pool.space
        if space.enumerated and space.size <= CANDIDATES:
            return self._space_features[space.places(rows)]
        return space.row_features(rows)

    @cached_property
    def _posterior(self) -> TemplatePosterior | None:
        """The posterior of the template, sibling tasks included; None if nothing is known."""
        return posterior_of(self._pool.space, self._template, self._siblings)

    @cached_property
    def _space_gaps(self) -> Floats:
        """(size,) gaps that the template's posterior expects of the space's rows."""
        return self._expected(self._pool.space.rows)

    def _expected(self, rows: Rows) -> Floats:
        """(n,) the same of ``rows`` (n, d); zeros where nothing is known."""
        if self._posterior is None:
            return np.zeros(len(rows))
        return -self._posterior.slowness(self._features(rows), self._pool.space.extents)

    def _gaps(self, rows: Rows) -> Floats:
        """(n,) the same, derived once for a space that can be listed."""
        space = self._pool.space
        return self._space_gaps[space.places(rows)] if space.enumerated else self._expected(rows)

    def _value(self, prediction: Prediction) -> Floats:
        """(m,) what measuring a config is worth, in ln of its speed."""
        return prediction.mean

    def _expectations(self, candidates: Rows) -> tuple[Prediction, Floats]:
        """Return the prediction of the surrogate, fitted anew, for ``candidates`` (m, d), and ln P(valid) (m,)."""
        rows, valid = self._history.rows, self._history.valid
        features = self._features(rows)
        if valid.any():
            own = self._gaps(rows[valid])
            self._surrogate.fit(features[valid], self._history.scores[valid], own)
        tried = [features, *(rows.features for rows in self._siblings)]
        self._validity.fit(np.concatenate(tried), np.concatenate([valid, *(rows.valid for rows in self._siblings)]))
        asked = self._features(candidates)
        log_chance = np.log(self._validity.probability(asked))
        known = self._posterior
        deviation = np.full(len(asked), KNEE) if known is None or valid.any() else known.deviation(asked)
        return self._surrogate.predict(asked, self._gaps(candidates), deviation), log_chance

    def _near(self, candidates: Rows) -> NDArray[np.bool_]:
        """(m,) which candidates are one knob away from the best so far; none with a prior or after the descent."""
        if self._template is not None or not 0 < int(self._history.valid.sum()) < DESCENT:
            return np.zeros(len(candidates), dtype=np.bool_)
        away = np.abs(candidates - self._history.incumbents(1))
        return np.asarray(away.sum(axis=1) == 1)
