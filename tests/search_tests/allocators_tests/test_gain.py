from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search.allocators.allocation import TaskState
from search.allocators.gain import FIRST_FACTOR, GainModel, headroom, records, tail_scale, trial_cost_s


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
    assert model.factor(tasks[0]) < 0.6 * FIRST_FACTOR
    assert model.factor(replace(tasks[0], key="new")) < 0.7 * FIRST_FACTOR


def test_one_slot_without_a_gain_is_not_the_end_of_all_gains() -> None:
    model, one = GainModel(), state([1e-3, 1.3e-3], bound_s=7e-4)
    model.observe([one])
    after = replace(one, latencies_s=(*one.latencies_s, 2e-3, 2e-3), spent_s=one.spent_s * 2)
    model.observe([after])
    assert 0.5 * FIRST_FACTOR < model.factor(after) < FIRST_FACTOR


def begun(best_s: float = 4e-4, trials: int = 16) -> TaskState:
    """A task whose latency fell to ``best_s`` in ``trials`` trials."""
    return state([best_s * (1 + 0.1 * number) for number in reversed(range(trials))])


def test_a_trial_costs_what_the_last_ones_did() -> None:
    assert trial_cost_s(replace(begun(trials=20), spent_s=(9.0,) * 4 + (0.2,) * 16)) == pytest.approx(0.2)


def test_more_trials_cut_more_but_never_below_the_bound() -> None:
    gains, one = GainModel(), begun()
    gains.observe([one])
    cuts = [gains.reduction_s(one, trials) for trials in (1, 8, 64, 10**6)]
    assert cuts == sorted(cuts)
    assert cuts[0] > 0
    assert cuts[-1] <= 4e-4 - one.bound_s


def slowing(key: str = "a", best_s: float = 4e-4, trials: int = 16, **other: object) -> TaskState:
    return state([best_s * (1 + 0.1 * number) for number in reversed(range(trials))], key, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "over", [slowing(exhausted=True), slowing(best_s=1.01e-4), slowing(trials=0)], ids=["all", "bound", "none"]
)
def test_nothing_is_expected_of_what_is_over_or_has_not_begun(over: TaskState) -> None:
    gains = GainModel()
    gains.observe([over])
    assert gains.reduction_s(over, 8) == gains.remaining_s([over], 60.0) == 0.0


def test_what_remains_grows_with_the_time_left() -> None:
    gains, states = GainModel(), [slowing("a"), slowing("b", weight=3)]
    gains.observe(states)
    assert 0 == gains.remaining_s(states, 0.0) < gains.remaining_s(states, 5.0) < gains.remaining_s(states, 60.0)
