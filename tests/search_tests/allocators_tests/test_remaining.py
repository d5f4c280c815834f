from __future__ import annotations

from dataclasses import replace

import pytest

from search.allocators.remaining import GAIN_FACTOR, Remaining, remaining_gain, together, why_enough
from search.allocators.stopping import Limits
from tests.search_tests.states import known


def test_remaining_gain_falls_with_trials_and_ends_at_zero_when_all_is_tried() -> None:
    history = [1e-3 * 1.1**index for index in range(8)]
    early, late = known("a", [*history]), known("a", [*history, *[2e-3] * 48])
    before, after = (remaining_gain([state], Limits()) for state in (early, late))
    assert 0.0 < after.high_share < before.high_share < 1.0
    assert after.high_share == pytest.approx(GAIN_FACTOR / 56)
    assert remaining_gain([replace(late, exhausted=True)], Limits()).high_s == 0.0
    done = known("a", [*late.latencies_s, *[2e-3] * 64])  # its plateau is long enough that it gets no more trials
    assert remaining_gain([done], Limits()).high_s == 0.0


def test_tasks_count_by_their_share() -> None:
    young, old = known("young", [1e-3] * 4), known("old", [1e-3] * 40)
    little, much = (remaining_gain([replace(young, weight=weight), old], Limits()) for weight in (1, 9))
    assert little.high_share < much.high_share
    assert why_enough(much, 1.0) is not None
    assert why_enough(much, much.high_share) is None
    assert "remaining gain at most" in much.text


def test_a_task_nobody_tried_may_gain_all_of_its_latency() -> None:
    remaining = remaining_gain([known("a", [])], Limits())
    assert remaining.high_s == remaining.model_s > 0.0


def test_what_is_left_of_several_models_is_added_up_unless_one_is_unknown() -> None:
    assert together([Remaining(2.0, 1.0), Remaining(1.0, 0.5)]) == Remaining(3.0, 1.5)
    assert together([Remaining(2.0, 1.0), None]) is None
    assert together([]) is None
