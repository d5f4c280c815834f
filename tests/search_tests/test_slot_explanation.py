"""What is said of the future: never negative, less when less is left, nothing where nothing can come."""

from dataclasses import replace

import pytest

from search.allocation import TaskState
from search.gain import GainModel
from search.latency_reduction import ExpectedCut
from search.slot_explanation import cost_s, cut_s, remaining_s


def state(key="a", best_s=4e-4, trials=16, weight=1):
    latencies = tuple(best_s * (1 + 0.1 * number) for number in reversed(range(trials)))
    return TaskState(key, "conv", weight, 10**8, 1e-4, latencies, (0.1,) * trials)


def test_a_trial_costs_what_the_last_ones_did():
    assert cost_s(replace(state(), spent_s=(9.0,) * 0 + (0.2,) * 16)) == pytest.approx(0.2)


def test_more_trials_cut_more_but_never_below_the_bound():
    gains, one = GainModel(), state()
    gains.observe([one])
    cuts = [cut_s(gains, one, trials) for trials in (1, 8, 64, 10**6)]
    assert cuts == sorted(cuts)
    assert cuts[0] > 0
    assert cuts[-1] <= one.best_s - one.bound_s


@pytest.mark.parametrize(
    "over", [replace(state(), exhausted=True), state(best_s=1.01e-4), state(trials=0)], ids=["all", "bound", "none"]
)
def test_nothing_is_expected_of_what_is_over_or_has_not_begun(over):
    gains = GainModel()
    gains.observe([over])
    assert cut_s(gains, over, 8) == remaining_s(gains, [over], 60.0) == 0.0


def test_what_remains_grows_with_the_time_left():
    gains, states = GainModel(), [state("a"), state("b", weight=3)]
    gains.observe(states)
    assert 0 == remaining_s(gains, states, 0.0) < remaining_s(gains, states, 5.0) < remaining_s(gains, states, 60.0)


def test_expected_cut_names_its_numbers():
    allocator, states = ExpectedCut(), [state("a"), state("b", trials=0)]
    assert allocator.next(states) == "b"
    assert "nothing is known of it" in allocator.why("b", states)
    assert "8 trials in 0.8 s are expected to cut" in allocator.why("a", states)
