"""Timing whole models: what counts, in which order models are run, and who runs beside whom."""

import threading

import pytest

from autotune.backends.executor import Span
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.steps import Group
from autotune.runtime import model_timing
from autotune.runtime.model_timing import (
    DUEL_RUNS,
    DUEL_S,
    LEAST_RUNS,
    LOST_RUNS,
    QUIET_S,
    RACE_RUNS,
    WARM_RUNS,
    at_work,
    is_faster,
    median_s,
    median_timeline,
    occupied_s,
    race,
    ratios,
    session_run,
    timelines,
)


class Clock:
    """Stands for the module ``time``: only runs and pauses take time."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    def sequence(self, values, calls=None):
        """A run that takes ``values`` one after the other, and the last one from then on; it is noted in ``calls``."""
        left = list(values)

        def run():
            took = left.pop(0) if len(left) > 1 else left[0]
            self.now_s += took
            if calls is not None:
                calls.append(took)
            return took

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(model_timing, "time", clock)
    return clock


def test_the_first_runs_do_not_count(clock):
    # One run before all others, then five; the first of those is a fifth.
    assert median_s(clock.sequence([9.0, 9.0, 1.0, 2.0, 3.0, 4.0]), seconds=0.0) == 2.5
    assert median_s(clock.sequence([9.0, 9.0, 1.0, 2.0, 3.0, 4.0]), 0.0, 2.5) == 2.5, "it might be the faster one"
    assert median_s(clock.sequence([9.0]), 0.0, 2.0) == 9.0, "one run says that it is not"
    calls = []
    median_s(clock.sequence([1.0], calls), seconds=0.0)
    assert len(calls) == 1 + LEAST_RUNS


def test_a_race_runs_models_in_turn_in_alternating_order(clock):
    calls = []
    runs = [clock.sequence([took], calls) for took in (0.01, 0.02)]
    assert race(runs, seconds=0.0) == [0.01, 0.02]
    timed = calls[2 * WARM_RUNS :]
    assert timed[:8] == [0.01, 0.01, 0.02, 0.02, 0.02, 0.02, 0.01, 0.01]
    assert len(timed) == 2 * 2 * RACE_RUNS


def test_two_models_are_compared_round_by_round(clock):
    drift = [1.0] * WARM_RUNS + [r for r in [1.0, 2.0, 4.0, 8.0] * DUEL_RUNS for _ in (0, 1)]  # which both meet alike
    runs = [clock.sequence([0.03 * parts * factor for factor in drift]) for parts in (3, 2)]
    assert ratios(*runs) == pytest.approx((1.5, 1.5, 1.5))


def test_pauses_count_in_the_seconds_of_a_comparison(clock, monkeypatch):
    monkeypatch.setattr(model_timing, "DUEL_S", DUEL_S)
    calls = []
    ratios(clock.sequence([1e-6], calls), clock.sequence([1e-6]))
    assert len(calls) == pytest.approx(DUEL_S / QUIET_S, rel=0.02)  # two runs for each of two pauses


def test_the_interval_of_a_median_leaves_out_what_is_as_likely_to_be_chance(clock):
    one = clock.sequence([3e-3] * WARM_RUNS + [3e-3 * (1.0 + n) for n in range(DUEL_RUNS) for _ in (0, 1)])
    low, middle, high = ratios(one, clock.sequence([3e-3]))
    rounds = [1.0 + n for n in range(int(low) - 1, int(high))]
    assert middle == pytest.approx(1.0 + (DUEL_RUNS - 1) / 2)
    assert 0.25 < len(rounds) / DUEL_RUNS < 0.4  # 2 * 0.98 / sqrt(40) = 0.31, to whole rounds


def test_a_comparison_is_over_once_the_second_one_has_lost_every_round(clock):
    calls = []
    fast, slow = clock.sequence([0.01]), clock.sequence([0.011], calls)
    assert ratios(fast, slow) == pytest.approx((1 / 1.1,) * 3)
    assert len(calls) == WARM_RUNS + 2 * LOST_RUNS
    calls.clear()
    assert ratios(slow, fast) == pytest.approx((1.1,) * 3)  # what is gained is measured in full
    assert len(calls) >= WARM_RUNS + 2 * DUEL_RUNS


def test_a_model_is_faster_if_its_median_and_its_shortest_run_are(clock):
    def times(*rounds):
        return clock.sequence([0.02] * WARM_RUNS + [took for took in rounds * DUEL_RUNS for _ in (0, 1)])

    assert is_faster(times(0.02), times(0.03))
    assert not is_faster(times(0.02), times(0.02))
    assert not is_faster(times(0.02), times(0.03, 0.03, 0.03, 0.01)), "other processes hold it up in most rounds"
    assert not is_faster(times(0.02, 0.03, 0.02, 0.04), times(0.03, 0.02, 0.04, 0.025)), "it is in half of the rounds"


def test_models_that_take_seconds_are_run_a_few_times(clock):
    calls = []
    assert race([clock.sequence([20.0], calls), clock.sequence([21.0])], seconds=0.0) == [20.0, 21.0]
    assert len(calls) == WARM_RUNS + 2 * LEAST_RUNS


def test_what_subgraphs_and_copies_occupy_is_found_in_their_runs():
    lanes = (cpu_lane(0, 1), Lane("sim:0", 1, 1, "sim:0"), Lane("sim:0 in", 2, 1, "sim:0", copies=True))
    groups = (
        Group("a", 0, 1),
        Group("copy of a", 2, 1, (0,)),
        Group("copy of x", 2, 1),
        Group("b", 1, 1, (1,)),
        Group("c", 0, 1),
    )
    spans = ((0.0, 1.0), (1.25, 2.0), (2.0, 2.5), (2.5, 4.0), (1.0, 3.0))
    run = [Span(group, *span) for group, span in zip(groups, spans, strict=True)]
    seconds = occupied_s([run] * 3, lanes)
    # Of the first copy a quarter is handing over, and half of the device's subgraph; the second copy follows the first.
    assert seconds == pytest.approx({"a": 1.0, "sim:0 in": 1.0 + 0.5, "b": 2.0, "c": 2.0})


def test_a_session_is_run_on_the_feed():
    class Session:
        def run(self, names, feed):
            seen.append((names, feed))

    seen = []
    assert session_run(Session(), {"x": 1})() >= 0.0
    assert seen == [(None, {"x": 1})]


def test_a_median_timeline_leaves_out_the_first_runs():
    group, runs = Group("0", 0, 1), []

    def timeline():
        late = 9.0 if len(runs) < WARM_RUNS else 0.0
        runs.append([Span(group, late + 1.0, late + 2.0)])
        return runs[-1]

    assert median_timeline(timeline) == [Span(group, 1.0, 2.0)]
    assert len(runs) == WARM_RUNS + RACE_RUNS
    assert len(timelines(timeline)) == RACE_RUNS


def test_at_work_ends_with_its_body_even_if_that_fails():
    ran = threading.Event()
    before = threading.active_count()

    def run():
        ran.set()
        return 0.0

    def fail():
        with at_work(run):
            assert ran.wait(10)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert threading.active_count() == before
