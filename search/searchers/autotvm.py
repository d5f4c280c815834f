"""AutoTVM's search, the papers' baseline: plans made by simulated annealing over a cost model.

Notation: p = walkers, d = knobs, ε = share of a plan that is random.

As in TVM's ``model_based_tuner.py``: every ``PLAN`` new measurements the model is fitted anew and an annealing walk
proposes the next plan. The last share ε of a plan is random instead. Before the first plan everything is random.

As in TVM's ``sa_model_optimizer.py``: p walkers; each step sets one random knob to another value and is taken with
probability min(1, exp((new − old) / T)). T falls linearly from ``temperature`` to 0. The walk ends after 500 steps, or
when the best configs seen have not changed for 50. Departure: steps out of the constraint are not taken (AutoTVM's
spaces have none).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.boosted import BoostedRank
from costmodels.cost_model import Floats
from search.searchers.history import LearningSearcher
from search.searchers.pool import MANY, Pool, Rows
from search.searchers.searcher import Result, SearchContext

PLAN = 32
"""Configs of a plan, as in AdaTune's comparison; TVM's default is 64."""

EPSILON = 0.05
"""ε of AutoTVM's rule, as in TVM."""

WALKERS = 128
"""Walkers of AutoTVM's rule, as in TVM."""

Value = Callable[[Rows], Floats]
"""(n, d) rows → (n,) values, larger is better."""


@dataclass(frozen=True)
class Cooling:
    """Length and temperature of a walk; the defaults are TVM's.

    Attributes:
        steps: most iterations.
        patience: iterations without a new config among the best after which it stops.
        temperature: T of the first step; 0 takes only steps that do not lose.
        walkers: p.
    """

    steps: int = 500
    patience: int = 50
    temperature: float = 1.0
    walkers: int = 64


class Annealer:
    """Simulated annealing over a value function on a space; it keeps its walkers between calls, as AutoTVM does."""

    def __init__(self, pool: Pool, rng: np.random.Generator, cooling: Cooling) -> None:
        self._pool = pool
        self._rng = rng
        self._cooling = cooling
        self._lengths = np.array([len(knob.choices) for knob in pool.space.knobs])
        self._walkers: Rows | None = None

    def best(self, value: Value, count: int) -> Rows:
        """The ``count`` best untried rows that the walk visited, best first."""
        space, cooling = self._pool.space, self._cooling
        if space.enumerated and len(space.rows) <= MANY:
            # The model predicts every row once; a step is then a look-up.
            table = value(space.rows)
            value = lambda rows: table[space.places(rows)]  # noqa: E731
        if self._walkers is None:
            self._walkers = self._pool.scatter(cooling.walkers)
        walkers = self._walkers
        values = value(walkers)
        seen = {row.tobytes(): worth for row, worth in zip(walkers, values, strict=True)}
        changed = 0
        for step in range(cooling.steps):
            if step - changed >= cooling.patience:
                break
            moved = self._step(walkers)
            inside = self._pool.space.allowed(moved)
            gained = np.full(len(walkers), -np.inf)
            gained[inside] = value(moved[inside])
            heat = cooling.temperature * (1.0 - step / cooling.steps) + 1e-9
            taken = self._rng.random(len(walkers)) < np.exp(np.minimum((gained - values) / heat, 0.0))
            taken &= inside
            walkers, values = np.where(taken[:, None], moved, walkers), np.where(taken, gained, values)
            floor = sorted(seen.values())[-count] if len(seen) >= count else -np.inf
            for row, worth in zip(moved[inside], gained[inside], strict=True):
                if worth > floor and row.tobytes() not in seen:
                    seen[row.tobytes()] = worth
                    changed = step
        self._walkers = walkers.astype(np.int32)
        rows = np.stack([np.frombuffer(key, dtype=np.int32) for key in seen])
        rows = rows[np.argsort(-np.array(list(seen.values())), kind="stable")]
        return rows[self._pool.untried(rows)][:count]

    def _step(self, rows: Rows) -> Rows:
        """``rows`` with one random knob each set to another value, where it has another."""
        knob = self._rng.integers(rows.shape[1], size=len(rows))
        lengths = self._lengths[knob]
        at = np.arange(len(rows)), knob
        moved = rows.copy()
        shift = 1 + np.floor(self._rng.random(len(rows)) * np.maximum(lengths - 1, 1)).astype(np.int32)
        moved[at] = np.where(lengths > 1, (rows[at] + shift) % lengths, rows[at])
        return moved


class PlannedSearch(LearningSearcher):
    """Asks along a plan; a subclass says how to value configs and how much to explore."""

    def __init__(self, context: SearchContext, cooling: Cooling) -> None:
        super().__init__(context)
        self._annealer = Annealer(self._pool, context.rng, cooling)
        self._plan: list[Rows] = []
        self._plans = 0
        self._seed = int(context.rng.integers(2**31))

    @abstractmethod
    def value(self, features: Floats, throughput: Floats) -> Value:
        """The function to climb, learned from ``features`` (n, d) and ``throughput`` (n,) in runs per second.

        The throughput of a failure is 0.
        """

    @abstractmethod
    def share(self) -> float:
        """ε in [0, 1] of the next plan; called after ``value``."""

    def tell(self, results: Sequence[Result]) -> None:
        """Learn; after every ``PLAN`` measurements make a new plan."""
        super().tell(results)
        if len(self._history) >= PLAN * (self._plans + 1) and self._history.valid.any():
            self._plans += 1
            throughput = np.nan_to_num(np.exp(self._history.scores), nan=0.0)
            best = self._annealer.best(self.value(self._history.features, throughput), PLAN)
            self._plan = list(best[: max(len(best) - int(self.share() * PLAN), 0)])

    def _propose(self, count: int) -> Rows:
        """The next of the plan that are still untried."""
        chosen = [self._pool.none()]
        while len(chosen) <= count and self._plan:
            row = self._plan.pop(0)[None, :]
            if self._pool.untried(row)[0]:
                chosen.append(row)
        return np.concatenate(chosen)


class AutoTvmSearch(PlannedSearch):
    """TVM's ``XGBTuner`` with ``loss_type="rank"``: XGBoost on pairwise ranks."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context, Cooling(walkers=WALKERS))

    def value(self, features: Floats, throughput: Floats) -> Value:
        """The model's rank."""
        model = BoostedRank(self._seed).fit(features, throughput)
        return lambda rows: model.rank(self._pool.space.row_features(rows))

    def share(self) -> float:
        """ε."""
        return EPSILON
