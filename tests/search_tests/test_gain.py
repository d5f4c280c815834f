from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from schedules.errors import UsageError
from search.allocation import TaskState
from search.gain import FIRST_FACTOR, GainModel, headroom, records, tail_scale
from search.remaining import Remaining, RemainingGain, together, why_enough
from search.searcher import SearchContext
from search.searcher_catalog import make_searcher
from tests.conformance import spaces


def state(latencies_s: list[float | None], key: str = "a", bound_s: float = 1e-4, **other: object) -> TaskState:
    start = TaskState(key, "conv", 1, 10**8, bound_s, tuple(latencies_s), tuple(0.1 for _ in latencies_s))
    return replace(start, **other)  # type: ignore[arg-type]


def test_records_fall_with_trials_and_add_up() -> None:
    assert records(2, 8) > records(10, 8) > 3 * records(26, 8)
    assert records(64, 8) < 0.05
    assert records(8, 24) == pytest.approx(records(8, 8) + records(16, 16))


def test_tail_scale_is_larger_for_a_wider_top() -> None:
    wide = tail_scale([1e-3 * 1.2**index for index in range(16)])
    narrow = tail_scale([1e-3 * 1.01**index for index in range(16)])
    assert wide > 2 * narrow > 0
    assert tail_scale([None, None]) == tail_scale([])


def test_expected_gain_is_capped_by_the_bound() -> None:
    model = GainModel()
    near, far, unbound = state([1.01e-4] * 8), state([9e-4] * 8), state([9e-4] * 8, bound_s=0.0)
    model.observe([near, far])
    assert model.expected(near, 1000) <= headroom(near) < 0.01
    assert model.expected(far, 8) > model.expected(near, 8)
    assert np.isinf(headroom(unbound))
    assert (model.draws(near, 1000, 200, np.random.default_rng(0)) <= headroom(near)).all()
    assert np.isfinite(model.expected(unbound, 8))


def test_promises_that_were_not_kept_lower_the_factor_of_the_template() -> None:
    model = GainModel()
    tasks = [state([1e-3, 1.3e-3, 1.7e-3, 2e-3] * 2, key=str(index)) for index in range(4)]
    assert model.factor(tasks[0]) == pytest.approx(FIRST_FACTOR)
    for _ in range(4):
        model.observe(tasks)
        tasks = [replace(t, latencies_s=t.latencies_s + (2e-3,) * 8, spent_s=t.spent_s + (0.1,) * 8) for t in tasks]
    model.observe(tasks)
    assert model.factor(tasks[0]) < 0.5 * FIRST_FACTOR
    assert model.factor(replace(tasks[0], key="new")) < 0.5 * FIRST_FACTOR


def test_remaining_gain_falls_and_ends_at_zero_when_all_is_tried() -> None:
    tracker = RemainingGain(np.random.default_rng(0))
    early = [state([1e-3 * 1.1**index for index in range(8)])]
    tracker.observe(early)
    before = tracker.estimate(early)
    late = [state([1e-3 * 1.1**index for index in range(8)] + [2e-3] * 200)]
    tracker.observe(late)
    after = tracker.estimate(late)
    assert 0.0 < after.share < before.share < 1.0
    assert before.low_s <= before.gain_s <= before.high_s
    assert tracker.estimate([replace(late[0], exhausted=True)]).gain_s == 0.0
    assert why_enough(after, 0.5) is not None
    assert why_enough(before, 1e-6) is None
    assert "expected remaining gain" in before.text


def test_remaining_gain_of_tasks_nobody_tried_is_unknown_not_infinite() -> None:
    remaining = RemainingGain(np.random.default_rng(0)).estimate([state([])])
    assert remaining.gain_s == 0.0
    assert remaining.model_s > 0.0
    with pytest.raises(UsageError, match="between 0 and 1"):
        RemainingGain(np.random.default_rng(0)).estimate([state([])], level=80.0)


def test_adaptive_search_says_what_it_expects() -> None:
    space = spaces.enumerated()
    searcher = make_searcher("adaptive", SearchContext(space, np.random.default_rng(0)))
    assert searcher.outlook(8) is None  # type: ignore[attr-defined]
    expected = []
    while configs := searcher.ask(8):
        searcher.tell([(config, spaces.timed(config)) for config in configs])
        outlook = searcher.outlook(8)  # type: ignore[attr-defined]
        if outlook is not None:
            assert outlook.trials == 8
            expected.append(np.mean(outlook.gains))
    assert expected[-1] < 0.5 * expected[0]
    assert searcher.outlook(8) is None  # type: ignore[attr-defined]


def test_an_outlook_does_not_repeat_or_lose_configs() -> None:
    space = spaces.enumerated()
    searcher = make_searcher("adaptive", SearchContext(space, np.random.default_rng(0)))
    asked = []
    for _ in range(4):
        configs = searcher.ask(8)
        asked += configs
        searcher.tell([(config, spaces.timed(config)) for config in configs])
        searcher.outlook(8)  # type: ignore[attr-defined]
    assert len(set(asked)) == 32


def test_what_is_left_of_several_models_is_added_up_unless_one_is_unknown() -> None:
    one, other = Remaining(2.0, 0.5, 0.25, 1.0, 0.8), Remaining(1.0, 0.25, 0.0, 0.5, 0.8)
    assert together([one, other]) == Remaining(3.0, 0.75, 0.25, 1.5, 0.8)
    assert together([one, None]) is None
    assert together([]) is None
