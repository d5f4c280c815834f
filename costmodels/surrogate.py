"""Surrogate: a cost model of one task that starts from the results of its sibling tasks (of the same template).

Notation: n = own rows, N = rows of sibling tasks, d = features, y = a score's gap to the best of its task (≤ 0).

    y(x) ≈ β·g(x) + r(x)      g fitted once on the siblings, r on what g leaves of the own rows

β is the own rows' regression on g, drawn towards 1 by a prior worth a few rows: the results of similar tasks are used
at once, those of others are soon ignored. A search needs ranks only, and gaps rank across tasks. Only the top of the
surface matters, so the low tail is bent: a gap beyond ``KNEE`` counts as KNEE·(1 + ln(gap / KNEE)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from costmodels.cost_model import CostModel, Floats, Prediction
from schedules.errors import UsageError

KNEE = 0.2
"""Gap in scores beyond which the low tail is bent. Heuristic, not measured."""

PRIOR_WEIGHT = 0.02
"""Sum of squares of g, in scores², at which half of β is from the data: a few rows near the top. Heuristic."""

Rows = tuple[Floats, Floats]
"""Features (n, d) and scores (n,) of one task's valid measurements."""


def bend(scores: Floats) -> Floats:
    """(n,) gaps to the best score, as negative numbers, with the low tail compressed."""
    gap = np.max(scores) - scores
    return -np.where(gap <= KNEE, gap, KNEE * (1.0 + np.log(np.maximum(gap, KNEE) / KNEE)))


class Surrogate:
    """``make`` gives an unfitted cost model; ``siblings`` are the rows of sibling tasks, columns as this task's.

    Attributes:
        siblings: those with at least two rows.
    """

    def __init__(self, make: Callable[[], CostModel], siblings: Sequence[Rows] = ()) -> None:
        self._make = make
        self._own: CostModel | None = None
        self.beta_ = 1.0
        self.siblings = [rows for rows in siblings if len(rows[1]) >= 2]

    @cached_property
    def _shared(self) -> CostModel | None:
        """g, fitted when it is first needed: many tasks of a run never get a slot."""
        if not self.siblings:
            return None
        features = np.concatenate([features for features, _ in self.siblings])
        return self._make().fit(features, np.concatenate([bend(scores) for _, scores in self.siblings]))

    @property
    def ready(self) -> bool:
        """Whether it has anything to predict from."""
        return self._own is not None or bool(self.siblings)

    def fit(self, features: Floats, scores: Floats) -> Surrogate:
        """Learn from the task's own valid measurements: ``features`` (n, d), ``scores`` (n,), n ≥ 1."""
        gaps = bend(scores)
        if self._shared is not None:
            shared = self._shared.predict(features).mean
            centred = shared - shared.mean()
            slope = float(centred @ (gaps - gaps.mean())) + PRIOR_WEIGHT
            self.beta_ = float(np.clip(slope / (float(centred @ centred) + PRIOR_WEIGHT), 0.0, 1.5))
            gaps = gaps - self.beta_ * shared
        self._own = self._make().fit(features, gaps)
        return self

    def predict(self, features: Floats) -> Prediction:
        """Expected gap and its standard deviation at ``features`` (m, d).

        Raises:
            UsageError: without own rows and siblings.
        """
        shared = self._shared.predict(features) if self._shared is not None else None
        if self._own is None:
            if shared is None:
                raise UsageError("Surrogate.predict was called before fit and without sibling tasks; fit it first")
            return shared
        own = self._own.predict(features)
        if shared is None:
            return own
        # The own model's calibrated residuals already contain the errors of the shared model.
        return Prediction(own.mean + self.beta_ * shared.mean, own.std)
