"""Cost models compared on traces: fitted on some configs of a task, judged on the others."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from autotune.replay.trace import Trace
from costmodels.cost_model_catalog import make_cost_model
from costmodels.metrics import Quality, assess
from costmodels.surrogate import bend

HELD_OUT = 512


@dataclass(frozen=True)
class CalibrationOutcome:
    """One fit.

    Attributes:
        quality: on configs that were not fitted.
        fit_s, predict_s: seconds here.
    """

    quality: Quality
    fit_s: float
    predict_s: float


def calibrate(trace: Trace, cost_model: str, seed: int, count: int) -> CalibrationOutcome | None:
    """Fit on ``count`` random valid configs; None where the trace has too few to judge."""
    valid = np.flatnonzero(trace.errors < 0)
    if len(valid) < count + 20:
        return None
    rng = np.random.default_rng([seed, 4])
    order = rng.permutation(valid)
    fitted, held = order[:count], order[count : count + HELD_OUT]
    features = trace.space.row_features(trace.space.rows)
    passes = rng.integers(trace.runs_s.shape[1], size=len(order))
    # one pass each, as a search would see them; the slow ones were in one pass only
    measured = np.array([np.median(trace.series(i, first)[0][:8]) for i, first in zip(order, passes, strict=True)])
    scores = bend(-np.log(measured))
    model = make_cost_model(cost_model, seed)
    began = time.perf_counter()
    model.fit(features[fitted], scores[:count])
    between = time.perf_counter()
    prediction = model.predict(features[held])
    ended = time.perf_counter()
    return CalibrationOutcome(assess(prediction, scores[count : count + len(held)]), between - began, ended - between)
