"""AdaTune (Li et al., NeurIPS 2020): annealing over expected improvement, exploration that follows the uncertainty.

Notation: μ, σ = mean and standard deviation over trees of the throughput, y* = best throughput so far,
z = (μ − y*) / σ.

    EI = (μ − y*)·Φ(z) + σ·φ(z)          walked over by simulated annealing to make a plan of 32
    ε_t = min(1, mean σ over 20 random configs / y*)     share of the plan that is random

Throughput, not its logarithm, as in the paper: a failure is 0, and ε is a ratio of throughputs. Two variants:

- the paper's: throughput relative to y*, so that EI, σ and the temperature are shares of the best;
- the released code's (``tuner/RF_cost_model.py``, ``dynamic_model_based_tuner.py``): ten trees, and values in FLOPS,
  beside which a temperature of 1 is negligible: the walk only climbs.
"""

from __future__ import annotations

from costmodels.acquisition import expected_improvement
from costmodels.cost_model import Floats
from costmodels.forest import Forest
from search.searchers.autotvm import Cooling, PlannedSearch, Value
from search.searchers.searcher import SearchContext

PROBES = 20
"""Random configs over which ε_t averages σ, as in the released code."""

STEPS = 120
"""Most steps of a walk in a space too large to list, instead of 500. Heuristic: the forest takes 3 ms to predict 64
walkers, and the walk settles long before."""


class AnnealingSearch(PlannedSearch):
    """AdaTune's contextual optimiser; the released code has ten trees and temperature 0."""

    def __init__(self, context: SearchContext, trees: int = 40, temperature: float = 1.0) -> None:
        steps = Cooling.steps if context.space.enumerated else STEPS
        super().__init__(context, Cooling(steps=steps, temperature=temperature))
        self._trees = trees
        self._model: Forest | None = None

    def value(self, features: Floats, throughput: Floats) -> Value:
        """Expected improvement in shares of y*."""
        model = Forest(self._seed, trees=self._trees, calibrated=False).fit(features, throughput / throughput.max())
        self._model = model
        return lambda rows: expected_improvement(model.predict(self._pool.space.row_features(rows)), 1.0)

    def share(self) -> float:
        """ε_t: mean σ of random configs, in shares of y*."""
        probes = self._pool.scatter(PROBES)
        if self._model is None or not len(probes):
            return 1.0
        return min(float(self._model.predict(self._pool.space.row_features(probes)).std.mean()), 1.0)
