from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.contrib.replay import task_replay
from autotune.contrib.replay.recorded_runs import ReplayBench, SearchRules
from autotune.contrib.replay.task_replay import calibrate, choose_best, search, sibling_results
from schedules.config import Config
from search.searchers.searcher import SearchContext, Searcher
from search.searchers.searcher_catalog import SEARCHERS, make_searcher
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace
from tuning_logs.measurement import Measurement


def test_calibration_takes_a_config_that_was_slow_from_its_only_pass() -> None:
    recorded = trace()
    runs = recorded.runs_s.copy()
    runs[::2, 1:] = np.nan
    outcome = calibrate(replace(recorded, runs_s=runs), "gaussian-process", 0, 8)
    assert outcome is not None
    assert np.isfinite(outcome.quality.error)
    assert calibrate(recorded, "forest", 0, len(recorded.true_s)) is None


def test_a_search_ends_when_a_config_is_near_the_best_by_every_factor() -> None:
    recorded = trace()
    everything = search(recorded, 0, SearchRules(searcher="random"), [1e9])
    assert (everything.trials, everything.reached) == ((1,), (True,))
    nothing = search(recorded, 0, SearchRules(12, searcher="random"), [1e9, 0.5])
    assert (nothing.trials, nothing.reached, nothing.asked) == ((1, 18), (True, False), 12)
    assert nothing.tuning_s[0] == everything.tuning_s[0] < nothing.tuning_s[1]


@pytest.mark.parametrize("places", [(), (3, 11, 20, 7)])
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_every_rival_begins_with_the_same_guesses_and_knows_no_others(
    searcher: str, places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, asked, spaces = trace(), [], []
    guesses = [recorded.space.config(recorded.space.rows[place]) for place in places]
    measure = ReplayBench.measure

    def noted(bench: ReplayBench, config: Config) -> Measurement:
        asked.append(config)
        return measure(bench, config)

    def made(name: str, context: SearchContext) -> Searcher:
        spaces.append(context.space)
        return make_searcher(name, context)

    monkeypatch.setattr(ReplayBench, "measure", noted)
    monkeypatch.setattr(task_replay, "make_searcher", made)
    search(recorded, 0, SearchRules(16, searcher=searcher), [0.5], guesses=guesses)
    assert asked[: len(guesses)] == guesses
    assert len(asked) == len(set(asked)) == 16
    assert not spaces[0].initial


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
