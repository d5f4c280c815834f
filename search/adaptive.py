"""The default searcher: a surrogate that starts from other tasks, and batches between trust and doubt.

Notation: m = candidates, q = size of a batch, κ = weight of the doubt, EI = expected improvement over the best gap.

    openers         of a space with several algorithms the best guess of each, one or two a batch until all are tried
    first batch     a few of the space's first guesses, then what other tasks of the template recommend;
                    without other tasks, more guesses and configs spread over the space
    afterwards      the q best of ln EI + ln P(valid)

What it takes from AdaTune: a surrogate that knows its doubt, expected improvement, exploration that follows the doubt.
Where it departs: calibrated boosted trees instead of ten trees, every untried config of an enumerated space scored
instead of a walk through it, EI in logs so that it ranks where it underflows, failures in a model of their own, a
warm start from the log, and no separate random share. The other acquisitions are kept as variants: an upper confidence
bound whose κ is drawn anew for every place, so that one batch holds sure things and long shots, and Thompson sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodels.acquisition import log_expected_improvement, thompson, upper_confidence_bound
from costmodels.cost_model import Floats, Prediction
from costmodels.cost_model_catalog import make_cost_model
from costmodels.surrogate import Surrogate
from costmodels.validity import Validity
from schedules.config import Config
from search.allocation import Outlook
from search.history import History
from search.pool import Pool, Rows
from search.prior import prior_rows
from search.searcher import Result, SearchContext, Searcher
from search.spread import spread

CANDIDATES = 4096
OUTLOOK_DRAWS = 64
MEAN_KAPPA = 0.35
OPENERS = 0.5  # share of a batch that goes to the space's openers until all are tried
GUESSES_WITH_PRIOR = 0.25  # share of the first batch that goes to the space's first guesses
GUESSES_ALONE = 0.75
DESCENT = 24  # valid trials of its own up to which a task is searched mostly around its best config
ANYWHERE = 4  # until then every such place of a batch is free

Acquisition = Callable[[Prediction, np.random.Generator], Floats]


def varied_bound(prediction: Prediction, rng: np.random.Generator) -> Floats:
    """(m,) upper confidence bound with a κ of its own."""
    return upper_confidence_bound(prediction, MEAN_KAPPA * float(rng.exponential()))


def improvement(prediction: Prediction, rng: np.random.Generator) -> Floats:
    """(m,) ln EI over the best gap, which is 0 by construction; the generator is not needed."""
    del rng
    return log_expected_improvement(prediction, 0.0)


class AdaptiveSearch(Searcher):
    """See the module's text; ``acquisition`` scores the candidates once for every place of a batch."""

    def __init__(self, context: SearchContext, acquisition: Acquisition = improvement) -> None:
        self._rng = context.rng
        self._acquisition = acquisition
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        seed = int(context.rng.integers(2**31))
        self._others = prior_rows(context)
        measured = [(rows.features[rows.valid], rows.scores[rows.valid]) for rows in self._others]
        self._surrogate = Surrogate(lambda: make_cost_model(context.cost_model, seed), measured)
        self._validity = Validity()
        self._expected: tuple[Rows, Prediction, Floats] | None = None

    def ask(self, count: int) -> list[Config]:
        """See the module's text."""
        openers = int(np.ceil(count * OPENERS))
        configs: list[Config] = []
        if not len(self._history):
            share = GUESSES_WITH_PRIOR if self._surrogate.ready else GUESSES_ALONE
            room = max(1, count - len(self._pool.openers(openers)))
            configs += self._pool.configs(self._pool.first(min(int(np.ceil(count * share)), room)))
        # Other tasks may know nothing of an algorithm that pays here, and then their best never leads to it.
        configs += self._pool.configs(self._pool.openers(min(openers, count - len(configs))))
        if self._history.valid.any() or self._surrogate.ready:
            configs += self._pool.configs(self._promising(count - len(configs)))
        if len(configs) < count:
            configs += self._pool.configs(spread(self._pool, count - len(configs), self._rng))
        return configs

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``; the surrogate is fitted when it is next asked."""
        self._history.tell(results)
        self._expected = None

    def outlook(self, count: int) -> Outlook | None:
        """What the surrogate expects of the next ``count`` trials; None while it knows nothing of this task.

        Draws of the best of the ``count`` most promising configs. Half of each one's variance is shared by all of
        them: a surrogate that is wrong about one is wrong about its neighbours, and independent draws would promise
        too much.
        """
        if count < 1 or not self._history.valid.any():
            return None
        _, prediction, log_chance = self._expectations()
        best = np.argsort(-(self._acquisition(prediction, self._rng) + log_chance), kind="stable")[:count]
        if not len(best):
            return None
        noise = self._rng.standard_normal((OUTLOOK_DRAWS, len(best))) + self._rng.standard_normal((OUTLOOK_DRAWS, 1))
        drawn = prediction.mean[best] + prediction.std[best] * noise / np.sqrt(2.0)
        works = self._rng.random(drawn.shape) < np.exp(log_chance[best])
        gains = np.where(works, drawn, -np.inf).max(axis=1)
        return Outlook(count, tuple(np.maximum(gains, 0.0).tolist()))

    def _expectations(self) -> tuple[Rows, Prediction, Floats]:
        """Candidates (m, d), what the surrogate expects of them, ln P(valid) (m,); kept until something changes."""
        if self._expected is None:
            space = self._pool.space
            # ties, which trees have many of, are broken by this order
            candidates = self._rng.permutation(self._pool.candidates(self._history.incumbents(8), CANDIDATES))
            features, valid = space.row_features(self._history.rows), self._history.valid
            if valid.any():
                self._surrogate.fit(features[valid], self._history.scores[valid])
            tried = [features, *(rows.features for rows in self._others)]
            self._validity.fit(np.concatenate(tried), np.concatenate([valid, *(rows.valid for rows in self._others)]))
            asked = space.row_features(candidates)
            log_chance = np.log(self._validity.probability(asked))
            self._expected = candidates, self._surrogate.predict(asked), log_chance
        return self._expected

    def _promising(self, count: int) -> Rows:
        """Up to ``count`` untried rows by the acquisition."""
        if self._pool.remaining == 0:
            return self._pool.draw(0)
        candidates, prediction, log_chance = self._expectations()
        self._expected = None  # the chosen ones will no longer be candidates
        chosen: list[int] = []
        near = self._near(candidates)
        for place in range(min(count, len(candidates))):
            value = self._acquisition(prediction, self._rng) + log_chance
            value[chosen] = -np.inf
            if place % ANYWHERE and near[value > -np.inf].any():
                value[~near] = -np.inf
            chosen.append(int(np.argmax(value)))
        return candidates[chosen]

    def _near(self, candidates: Rows) -> NDArray[np.bool_]:
        """(m,) which candidates are one knob away from the best so far; none once the task has shown enough itself."""
        valid = int(self._history.valid.sum())
        if not 0 < valid < DESCENT:
            return np.zeros(len(candidates), dtype=np.bool_)
        best = self._history.incumbents(1)
        away = np.abs(candidates - best)
        return np.asarray(away.sum(axis=1) == 1)


def adaptive_thompson(context: SearchContext) -> Searcher:
    """The same with a draw from every config's marginal for each place (Thompson sampling)."""
    return AdaptiveSearch(context, thompson)


def adaptive_bound(context: SearchContext) -> Searcher:
    """The same with an upper confidence bound of random weight for each place."""
    return AdaptiveSearch(context, varied_bound)
