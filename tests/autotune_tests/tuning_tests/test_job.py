"""Jobs: what they know, what they ask, and what tasks of one template learn from each other."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.measure.measurer import Origin
from autotune.options import Options
from autotune.tuning.job import Job, KernelTask, sibling_results
from autotune.tuning.loop import TuningLoop
from schedules.space import Knob, Space
from schedules.task import Task
from schedules.vocabulary.errors import UsageError
from search.allocators.simple_allocators import RoundRobin
from search.allocators.stopping import DISPROVED, Limits
from search.searchers.random_search import RandomSearch
from search.searchers.searcher import SearchContext
from search.searchers.warm_restart import MAX_OWN_TRIALS, WarmRestart
from tests.autotune_tests.fakes import FakeClock, FakeMeasurer
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey
from tuning_logs.sql_store import memory_log

SPACE = Space("toy", 1, (Knob("x", tuple(range(8))), Knob("y", tuple(range(8)))))
FLOPS = {"a": 100, "b": 1000, "c": 120, "other": 110}
FIRST_SLOT = 2


def make_job(key: str, flop: int = 100, searcher: str = "random", template: str = "toy", seed: int = 0) -> Job:
    task = Task(key, key, template, "toy", ((1,), (1,)), ("float32", "float32"), (), flop, 8)
    context = SearchContext(SPACE, np.random.default_rng(seed))
    kernel = KernelTask(task, "program", RecordKey(key, "target", SPACE.identity, "0"), SPACE, 1e-9)
    return Job(kernel, RandomSearch(context), warm_restart=WarmRestart(searcher, context))


def make_jobs(searcher: str = "random") -> dict[str, Job]:
    return {
        key: make_job(key, flop, searcher, "another" if key == "other" else "toy", index)
        for index, (key, flop) in enumerate(FLOPS.items())
    }


def run(jobs: dict[str, Job], trials: int, until: float = 0.0) -> str:
    limits = Limits(trials=trials, plateau_trials=None)
    allocator, log = RoundRobin((FIRST_SLOT,)), memory_log()
    return TuningLoop(
        jobs, allocator, FakeMeasurer(), log, limits, 8, FakeClock(), lambda event: None, 0.0, until
    ).run()


def test_siblings_are_tasks_of_the_same_template_nearest_in_operations_first() -> None:
    jobs = make_jobs()
    run(jobs, 4 * FIRST_SLOT)
    known = sibling_results(jobs["a"], jobs.values())
    assert [results for _, results in known] == [tuple(jobs[key].results) for key in "cb"]
    assert [len(results) for _, results in known] == [FIRST_SLOT, FIRST_SLOT]


def test_siblings_no_longer_matter_after_many_trials() -> None:
    jobs = make_jobs()
    run(jobs, 4 * (MAX_OWN_TRIALS + 16))
    assert sibling_results(jobs["a"], jobs.values()) == ()


def test_a_searcher_made_anew_repeats_no_config() -> None:
    jobs = make_jobs("adaptive")
    run(jobs, 4 * (MAX_OWN_TRIALS + 16))
    for job in jobs.values():
        configs = [config for config, _ in job.results]
        assert len(set(configs)) == len(configs) > MAX_OWN_TRIALS


def test_a_run_ends_when_little_is_left_to_gain() -> None:
    jobs = make_jobs()
    reason = run(jobs, 200, until=0.5)
    assert "remaining gain at most" in reason
    assert all(job.state.trials >= FIRST_SLOT for job in jobs.values())
    assert sum(job.state.trials for job in jobs.values()) < 200


def test_a_run_that_ended_so_ends_at_once_when_it_is_asked_again() -> None:
    jobs = make_jobs()
    run(jobs, 200, until=0.5)
    again = make_jobs()
    for key, job in again.items():
        job.resume(job.records([(config, measured) for config, measured in jobs[key].results], 0.1))
    assert "remaining gain at most" in run(again, 200, until=0.5)
    assert [job.state.trials for job in again.values()] == [job.state.trials for job in jobs.values()]


def test_until_is_a_share() -> None:
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        Options(until=1.5)


def test_the_effort_says_how_little_is_enough() -> None:
    assert Options().enough == Options(effort="quick").enough > Options(effort="full").enough > 0.0
    assert Options(until=0.2, effort="full").enough == 0.2
    assert Options(until=0.0).enough == 0.0


def test_a_kernel_faster_than_its_bound_disproves_the_bound() -> None:
    job = make_job("a")
    config = SPACE.config(SPACE.rows[0])
    job.tell([(config, Measurement((job.kernel.bound_s,)))], 0.1)
    assert job.state.bound_s == job.kernel.bound_s
    job.tell([(config, Measurement((0.9 * DISPROVED * job.kernel.bound_s,)))], 0.1)
    assert job.state.bound_s == 0.0


def test_records_name_who_measured() -> None:
    job = make_job("a")
    results = [(SPACE.config(row), Measurement((1e-5,))) for row in SPACE.rows[:2]]
    here = job.records(results, 0.5)
    there = job.records(results, 0.5, origins=[Origin("one"), Origin("two", "worker-7")])
    assert len({record.host for record in here}) == 1
    assert [record.host for record in there] == ["one", "two"]
    assert [record.provenance.get("worker") for record in there] == [None, "worker-7"]
