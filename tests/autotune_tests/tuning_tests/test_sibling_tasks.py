"""Tasks of one run teach each other, and a run may end when little is left to gain."""

from __future__ import annotations

import numpy as np
import pytest
from autotune.tuning.sibling_tasks import RENEWED, Renewal, in_run

from autotune.options import Options
from autotune.tuning.job import Job
from autotune.tuning.loop import Session
from schedules.errors import UsageError
from schedules.space import Knob, Space
from schedules.task import Task
from search.allocation import Allocator, Outlook, RoundRobin
from search.random_search import RandomSearch
from search.remaining import RemainingGain
from search.searcher import SearchContext
from search.stopping import Limits
from tests.autotune_tests.fakes import FakeClock, FakeMeasurer
from tuning_logs.record import RecordKey
from tuning_logs.sql_store import memory_log

SPACE = Space("toy", 1, (Knob("x", tuple(range(8))), Knob("y", tuple(range(8)))))
FLOPS = {"a": 100, "b": 1000, "c": 120, "other": 110}


def make_jobs(searcher: str = "random") -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    spaces = dict.fromkeys(FLOPS, SPACE)
    for index, (key, flop) in enumerate(FLOPS.items()):
        template = "another" if key == "other" else "toy"
        task = Task(key, key, template, "toy", ((1,), (1,)), ("float32", "float32"), (), flop, 8)
        context = SearchContext(SPACE, np.random.default_rng(index))
        renewal = Renewal(searcher, context, task, jobs, spaces)
        record_key = RecordKey(key, "target", SPACE.identity, "0")
        jobs[key] = Job(task, "program", record_key, RandomSearch(context), 1e-9, 0, {}, renewal)
    return jobs


FIRST_SLOT = 2


def run(jobs: dict[str, Job], trials: int, until: float | None = None, allocator: Allocator | None = None) -> str:
    certificate = RemainingGain(np.random.default_rng(0), ahead=16)
    limits = Limits(trials=trials, plateau_trials=None)
    dealer = allocator or RoundRobin((FIRST_SLOT,))
    return Session(
        jobs, dealer, FakeMeasurer(), memory_log(), limits, 8, FakeClock(), lambda event: None, 0.0, certificate, until
    ).run()


def test_a_task_knows_what_others_of_its_template_have_shown() -> None:
    jobs = make_jobs()
    run(jobs, 4 * FIRST_SLOT)
    known = in_run(jobs["a"].task, jobs, dict.fromkeys(FLOPS, SPACE))
    assert [len(results) for _, results in known] == [FIRST_SLOT, FIRST_SLOT]
    assert [results for _, results in known] == [tuple(jobs[key].results) for key in "cb"]  # nearest first


def test_a_new_searcher_repeats_nothing() -> None:
    jobs = make_jobs("adaptive")
    run(jobs, 4 * (RENEWED + 16))
    for job in jobs.values():
        configs = [config for config, _ in job.results]
        assert len(set(configs)) == len(configs) > RENEWED


def test_a_searcher_with_a_model_says_what_it_expects() -> None:
    class Curious(RoundRobin):
        foresees = True

    jobs = make_jobs("adaptive")
    run(jobs, 60)
    assert jobs["a"].state.outlook is None  # nobody wanted to know, and a model is not fitted for nothing
    jobs = make_jobs("adaptive")
    run(jobs, 60, allocator=Curious((FIRST_SLOT,)))
    assert isinstance(jobs["a"].state.outlook, Outlook)


def test_a_run_ends_when_little_is_left_to_gain() -> None:
    jobs = make_jobs()
    reason = run(jobs, 200, until=0.5)
    assert "expected remaining gain" in reason
    assert all(job.state.trials >= FIRST_SLOT for job in jobs.values())
    assert sum(job.state.trials for job in jobs.values()) < 200


def test_until_is_a_share() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Options(until=1.5)
