"""Timing whole models: what counts, in which order models are run, and who runs beside whom."""

import threading

import pytest

from autotune.backends.executor import Span
from autotune.graph.steps import Group
from autotune.runtime.model_timing import (
    LEAST_RUNS,
    RACE_RUNS,
    WARM_RUNS,
    at_work,
    median_s,
    median_timeline,
    race,
    session_run,
    timelines,
)


def sequence(values):
    """A run that returns ``values`` one after the other, and the last one from then on."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_the_first_runs_do_not_count():
    # One run before all others, then five; the first of those is a fifth.
    assert median_s(sequence([9.0, 9.0, 1.0, 2.0, 3.0, 4.0]), seconds=0.0) == 2.5
    calls = []
    median_s(lambda: calls.append(0) or 1.0, seconds=0.0)
    assert len(calls) == 1 + LEAST_RUNS


def test_a_race_runs_models_in_turn_in_alternating_order():
    calls = []
    runs = [lambda name=name, took=took: calls.append(name) or took for name, took in (("a", 1.0), ("b", 2.0))]
    assert race(runs, seconds=0.0) == [1.0, 2.0]
    timed = calls[2 * WARM_RUNS :]
    assert timed[:8] == ["a", "a", "b", "b", "b", "b", "a", "a"]
    assert len(timed) == 2 * 2 * RACE_RUNS


def test_a_session_is_run_on_the_feed():
    class Session:
        def run(self, names, feed):
            seen.append((names, feed))

    seen = []
    assert session_run(Session(), {"x": 1})() >= 0.0
    assert seen == [(None, {"x": 1})]


def test_a_median_timeline_leaves_out_the_first_runs():
    group, made = Group("0", 0, 1), []

    def timeline():
        late = 9.0 if len(made) < WARM_RUNS else 0.0
        made.append([Span(group, late + 1.0, late + 2.0)])
        return made[-1]

    assert median_timeline(timeline) == [Span(group, 1.0, 2.0)]
    assert len(made) == WARM_RUNS + RACE_RUNS
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
