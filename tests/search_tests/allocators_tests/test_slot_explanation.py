"""Expected reductions are never negative, smaller when less time is left, and 0 where nothing can come."""

from dataclasses import replace

import pytest

from search.allocators.allocation import TaskState
from search.allocators.gain import GainModel
from search.allocators.latency_reduction import LatencyReduction
from search.allocators.slot_explanation import remaining_s


def state(key="a", best_s=4e-4, trials=16, weight=1):
    latencies = tuple(best_s * (1 + 0.1 * number) for number in reversed(range(trials)))
    return TaskState(key, "conv", weight, 10**8, 1e-4, latencies, (0.1,) * trials)


@pytest.mark.parametrize(
    "over", [replace(state(), exhausted=True), state(best_s=1.01e-4), state(trials=0)], ids=["all", "bound", "none"]
)
def test_nothing_is_expected_of_what_is_over_or_has_not_begun(over):
    gains = GainModel()
    gains.observe([over])
    assert gains.reduction_s(over, 8) == remaining_s(gains, [over], 60.0) == 0.0


def test_what_remains_grows_with_the_time_left():
    gains, states = GainModel(), [state("a"), state("b", weight=3)]
    gains.observe(states)
    assert 0 == remaining_s(gains, states, 0.0) < remaining_s(gains, states, 5.0) < remaining_s(gains, states, 60.0)


def test_latency_reduction_names_its_numbers():
    allocator, states = LatencyReduction(), [state("a"), state("b", trials=0)]
    assert allocator.next(states) == "b"
    assert "nothing is known of it" in allocator.why("b", states)
    assert "8 trials in 0.8 s are expected to cut" in allocator.why("a", states)
