"""The curve of speed over trials, on one recorded task."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.contrib.replay.trace import load_traces
from research.curve import shares
from research.packing import TRACES


def test_shares_begin_at_the_first_guess_and_end_near_the_best() -> None:
    (trace,) = load_traces(TRACES / "depthwise.npz").traces
    untried, once, often = shares([trace], 0, (0, 1, 30))
    first = trace.true_s[trace.space.index(trace.space.initial[0])]
    assert untried == pytest.approx(trace.best_s / first)
    assert once == untried  # the first trial is the first guess
    assert untried < often <= 1.0


def test_a_task_whose_guess_fails_runs_untuned() -> None:
    (trace,) = load_traces(TRACES / "depthwise.npz").traces
    trace.true_s[trace.space.index(trace.space.initial[0])] = np.nan
    assert shares([trace], 0, (0, 1))[0] == pytest.approx(trace.best_s / trace.untuned_s)
