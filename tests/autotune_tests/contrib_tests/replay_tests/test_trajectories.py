from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.contrib.replay.recorded_runs import SearchRules
from autotune.contrib.replay.trajectories import PartOfTrajectories, Trajectories
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


def test_slots_follow_the_pace_and_end_when_everything_was_tried() -> None:
    trajectories = Trajectories([trace("a"), trace("b", 3e-4, 1)], 0, SearchRules(pace=(2, 3)))
    assert [trajectories.state(0, slots).trials for slots in range(4)] == [0, 2, 5, 13]
    trajectories.finish()
    for task in trajectories.tasks:
        assert task.states[-1].exhausted
        assert task.states[-1].trials == len(task.trace.true_s)
        assert len(task.states) == len(task.true_s) == len(task.spent_s)
        assert (np.diff(task.spent_s) > 0).all()
        assert task.known(1) == tuple(task.results[:2])


def test_the_shipped_latency_is_the_true_one_of_what_looks_best() -> None:
    one = trace()
    trajectories = Trajectories([one], 0, SearchRules())
    trajectories.state(0, 1)
    task = trajectories.tasks[0]
    assert task.true_s[0] == one.untuned_s
    best = min((m.latency_s, config) for config, m in task.results if m.ok)[1]
    assert task.true_s[1] == one.true_s[one.space.index(best)]


def test_siblings_are_run_as_far_as_a_task_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.searchers.warm_restart.SMALL_SPACE", 8)
    pair = [trace("a"), trace("b", 3e-4, 1)]
    other = replace(pair[1], task=replace(pair[1].task, template="another"))
    for traces, slots in ((pair, 3), ([pair[0], other], 1)):
        trajectories = Trajectories(traces, 0, SearchRules(batch=4))
        trajectories.state(0, 3)
        assert len(trajectories.tasks[1].states) == slots


def test_a_part_has_the_searches_of_the_whole() -> None:
    whole = Trajectories([trace("a"), trace("b", 3e-4, 1), trace("c", 2e-4, 2)], 0, SearchRules(16))
    part = PartOfTrajectories(whole, [2, 0])
    assert part.state(0, 1) is whole.state(2, 1)
    assert part.state(1, 2) is whole.state(0, 2)
    part.finish()
    assert [task.states[-1].exhausted for task in part.tasks] == [True, True]
