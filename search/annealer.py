"""Simulated annealing over a value function on a space: AutoTVM's optimiser, which AdaTune keeps.

Notation: p = walkers, d = knobs, k = iteration.

As in TVM's ``sa_model_optimizer.py``: p walkers, each step sets one random knob to another value; a step is taken with
probability min(1, exp((new − old) / T)), T falls linearly from ``temperature`` to 0, and the walk ends after 500
steps or when the best configs seen have not changed for 50. Departure: steps out of the constraint are not taken
(AutoTVM's spaces have none).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.cost_model import Floats
from search.pool import MANY, Pool, Rows

Value = Callable[[Rows], Floats]
"""(n, d) rows → (n,) values, larger is better."""


@dataclass(frozen=True)
class Cooling:
    """How long and how hot.

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
    """Keeps its walkers between calls, as AutoTVM does."""

    def __init__(self, pool: Pool, rng: np.random.Generator, cooling: Cooling) -> None:
        self._pool = pool
        self._rng = rng
        self._cooling = cooling
        self._lengths = np.array([len(knob.choices) for knob in pool.space.knobs])
        self._walkers: Rows | None = None

    def best(self, value: Value, count: int) -> Rows:
        """The ``count`` best untried rows that the walk came across, best first."""
        space, cooling = self._pool.space, self._cooling
        if space.enumerated and len(space.rows) <= MANY:
            # the model is asked about every row once; a step is then a look-up
            table = value(space.rows)
            value = lambda rows: table[self._pool.places(rows)]  # noqa: E731
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
            inside = self._pool.valid(moved)
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
