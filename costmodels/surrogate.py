"""Surrogate: a cost model of one task that starts from what was known of its template before.

Notation: n = own rows, d = features, y = a score's gap to the best of its task (≤ 0).

    y(x) ≈ β·g(x) + r(x)

g: the gap that was expected before, by the posterior of the template (``costmodels.posterior``), or 0; r: fitted on
what g leaves of the own rows.

β is the own rows' regression on g, drawn towards 1 by a prior worth a few rows: what is known of the template is
used at once, and soon ignored where it is wrong. A search needs ranks only, and gaps rank across tasks. Only the top of
the surface matters, so the low tail is bent: a gap beyond ``KNEE`` counts as KNEE·(1 + ln(gap / KNEE)).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodels.cost_model import CostModel, Floats, Prediction

KNEE = 0.2
"""Gap in scores beyond which the low tail is bent. Heuristic, not measured."""

PRIOR_WEIGHT = 0.02
"""Sum of squares of g, in scores², at which half of β is from the data: a few rows near the top. Heuristic."""


def bend(scores: Floats) -> Floats:
    """(n,) gaps to the best score, as negative numbers, with the low tail compressed."""
    gap = np.max(scores) - scores
    return -np.where(gap <= KNEE, gap, KNEE * (1.0 + np.log(np.maximum(gap, KNEE) / KNEE)))


class Surrogate:
    """``make`` gives an unfitted cost model."""

    def __init__(self, make: Callable[[], CostModel]) -> None:
        self._make = make
        self._own: CostModel | None = None
        self.beta_ = 1.0

    def fit(self, features: Floats, scores: Floats, expected: Floats) -> Surrogate:
        """Learn from the task's own valid measurements.

        Args:
            features: (n, d), n ≥ 1.
            scores: (n,).
            expected: (n,) gaps that the template's posterior expects; zeros without one.
        """
        gaps = bend(scores)
        centred = expected - expected.mean()
        slope = float(centred @ (gaps - gaps.mean())) + PRIOR_WEIGHT
        self.beta_ = float(np.clip(slope / (float(centred @ centred) + PRIOR_WEIGHT), 0.0, 1.5))
        # One row leaves nothing over: it is its task's best.
        self._own = self._make().fit(features, gaps - self.beta_ * expected) if len(gaps) > 1 else None
        return self

    def predict(self, features: Floats, expected: Floats, deviation: Floats) -> Prediction:
        """Gap and its standard deviation at ``features`` (m, d).

        Args:
            expected: (m,) gaps that the template's posterior expects.
            deviation: (m,) their standard deviations, which count until the task has rows of its own.
        """
        if self._own is None:
            return Prediction(expected, deviation)
        own = self._own.predict(features)
        # The own model's calibrated residuals already contain the errors of what was known before.
        return Prediction(own.mean + self.beta_ * expected, own.std)
