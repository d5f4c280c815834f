from __future__ import annotations

from dataclasses import replace

import numpy as np

from search.allocators.remaining import Remaining, RemainingGain, together, why_enough
from search.allocators.stopping import Limits
from tests.search_tests.states import known


def test_remaining_gain_falls_and_ends_at_zero_when_all_is_tried() -> None:
    tracker = RemainingGain(np.random.default_rng(0), Limits())
    early = [known("a", [1e-3 * 1.1**index for index in range(8)])]
    tracker.observe(early)
    before = tracker.estimate(early)
    late = [known("a", [1e-3 * 1.1**index for index in range(8)] + [2e-3] * 48)]
    tracker.observe(late)
    after = tracker.estimate(late)
    assert 0.0 < after.share < before.share < 1.0
    assert before.low_s <= before.gain_s <= before.high_s
    assert tracker.estimate([replace(late[0], exhausted=True)]).gain_s == 0.0
    done = [known("a", [*late[0].latencies_s, *[2e-3] * 64])]  # its plateau is long enough that it gets no more trials
    assert tracker.estimate(done).gain_s == 0.0
    assert why_enough(after, 0.5) is not None
    assert why_enough(before, 1e-6) is None
    assert before.share < before.high_share
    assert why_enough(before, 0.5 * (before.share + before.high_share)) is None  # only the expectation is below
    assert "expected remaining gain" in before.text


def test_remaining_gain_of_tasks_nobody_tried_is_unknown_not_infinite() -> None:
    remaining = RemainingGain(np.random.default_rng(0), Limits()).estimate([known("a", [])])
    assert remaining.gain_s == 0.0
    assert remaining.model_s > 0.0


def test_what_is_left_of_several_models_is_added_up_unless_one_is_unknown() -> None:
    one, other = Remaining(2.0, 0.5, 0.25, 1.0), Remaining(1.0, 0.25, 0.0, 0.5)
    assert together([one, other]) == Remaining(3.0, 0.75, 0.25, 1.5)
    assert together([one, None]) is None
    assert together([]) is None
