from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.replay.recorded_runs import SearchRules
from autotune.replay.task_replay import calibrate, choose_best, search, sibling_results
from tests.autotune_tests.replay_tests.made_up import trace


def test_calibration_takes_a_config_that_was_slow_from_its_only_pass() -> None:
    found = trace()
    runs = found.runs_s.copy()
    runs[::2, 1:] = np.nan
    outcome = calibrate(replace(found, runs_s=runs), "gaussian-process", 0, 8)
    assert outcome is not None
    assert np.isfinite(outcome.quality.error)
    assert calibrate(found, "forest", 0, len(found.true_s)) is None


def test_a_search_ends_at_the_first_config_near_the_best() -> None:
    found = trace()
    everything = search(found, 0, SearchRules(searcher="random"), 1e9)
    assert (everything.trials, everything.found) == (1, True)
    nothing = search(found, 0, SearchRules(12, searcher="random"), 0.5)
    assert (nothing.trials, nothing.found, nothing.asked) == (18, False, 12)


def test_the_choice_is_one_of_the_best() -> None:
    outcome = choose_best(trace(), "adaptive", 0)
    assert 0.0 <= outcome.excess < 0.1
    assert outcome.run_s > 0


def test_siblings_are_other_tasks_of_the_same_template_initial_configs_first() -> None:
    one, other = trace("a"), trace("b", 3e-4, 1)
    alien = replace(other, task=replace(other.task, key="c", template="another"))
    ((space, results),) = sibling_results(one, [one, other, alien], np.random.default_rng(0), 6)
    assert space is other.space
    assert [config for config, _ in results][:2] == list(other.space.initial)
    assert len(results) == 6
