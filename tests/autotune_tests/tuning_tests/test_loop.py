"""The loop on fakes: what it measures, what it writes, why it stops, and how it goes on."""

import math
import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from autotune.events import SlotBegan, SlotDone
from autotune.host.interruption import remembering
from autotune.tuning.job import FINAL, STAGE, WALL, Job, KernelTask
from autotune.tuning.loop import CLOSE, FINALISTS, TuningLoop
from schedules.space import Knob, Space
from schedules.task import Task
from search.allocators.allocation import Allocator
from search.allocators.simple_allocators import RoundRobin
from search.allocators.stopping import Limits
from search.searchers.random_search import RandomSearch
from search.searchers.searcher import SearchContext
from tests.autotune_tests.fakes import FakeClock, FakeMeasurer, FakeRanker, by_config
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey
from tuning_logs.sql_store import TuningLog, memory_log

SPACE = Space("toy", 1, (Knob("x", tuple(range(4))), Knob("y", tuple(range(5)))))
FREE = Limits(plateau_trials=None)
FIRST_SLOT = 2


def task(key, weight=1):
    return Task(key, f"fused_{key}", "toy", "toy", ((1,), (1,)), ("float32", "float32"), (), 10, 8, weight)


def record_key(key):
    return RecordKey(key, "target", SPACE.identity, "0")


def job(key, seed=0):
    context = SearchContext(SPACE, np.random.default_rng(seed))
    kernel = KernelTask(task(key), f"program {key}", record_key(key), SPACE, 1e-9)
    return Job(kernel, RandomSearch(context), seed, {"evaluator": "fake"})


class Watched(TuningLog):
    """A log in memory with a length: the number of its records."""

    def __init__(self):
        super().__init__(memory_log().database)

    def __len__(self):
        return len(list(self.records()))


def session(log, measurer, keys="ab", limits=FREE, batch=4, clock=None, events=None, spent_s=0.0):
    jobs = {key: job(key) for key in keys}
    if len(log):
        for key, one in jobs.items():
            one.resume(list(log.records(record_key(key))))
    observe = (lambda event: None) if events is None else events.append
    return TuningLoop(
        jobs, RoundRobin((FIRST_SLOT,)), measurer, log, limits, batch, clock or FakeClock(), observe, spent_s
    )


def test_every_config_of_every_task_is_measured_once_and_recorded():
    log, measurer = Watched(), FakeMeasurer()
    assert session(log, measurer).run() == "every task is done"
    assert len(log) == measurer.trials == 2 * SPACE.size
    for key in "ab":
        assert {record.config for record in log.records(record_key(key))} == {SPACE.config(row) for row in SPACE.rows}


def test_best_record_is_the_fastest_measured():
    log = Watched()
    session(log, FakeMeasurer()).run()
    configs = [SPACE.config(row) for row in SPACE.rows]
    fastest = min(configs, key=lambda config: by_config(job("a").candidate(config)).latency_s)
    assert log.best(record_key("a")).config == fastest


def test_a_slot_is_in_the_log_before_anybody_hears_of_it():
    log, seen = Watched(), []

    class Observer(list):
        def append(self, event):
            if isinstance(event, SlotDone):
                seen.append((event.measured, len(log)))
            else:
                assert isinstance(event, SlotBegan)
                assert event.why

    session(log, FakeMeasurer(), events=Observer(), limits=Limits(trials=12)).run()
    assert seen == [(2, 2), (2, 4), (4, 8), (4, 12)]


def test_trials_are_never_exceeded():
    log, measurer = Watched(), FakeMeasurer()
    assert session(log, measurer, limits=Limits(trials=10), batch=4).run() == "10 trials were measured"
    assert [len(slot) for slot in measurer.slots] == [FIRST_SLOT, FIRST_SLOT, 4, 2]


@pytest.mark.parametrize(
    ("at_once", "slots"),
    [(1, [FIRST_SLOT, FIRST_SLOT, 4, 4]), (4, [3, 3, 4, 4]), (16, [4, 4, 4, 4])],
)
def test_slots_leave_no_builder_idle(at_once, slots):
    """In its first slot a task's untuned program is built too."""
    measurer = FakeMeasurer()
    loop = session(Watched(), measurer, limits=Limits(trials=16), batch=4)
    loop.at_once = at_once
    loop.run()
    assert [len(slot) for slot in measurer.slots][:4] == slots


def test_budget_counts_earlier_runs():
    clock = FakeClock(step=1.0)
    measurer = FakeMeasurer()
    reason = session(Watched(), measurer, limits=Limits(budget_s=20.0), clock=clock).run()
    assert reason == "the 20 s for trials are spent"
    fresh = measurer.trials
    measurer = FakeMeasurer()
    session(Watched(), measurer, limits=Limits(budget_s=20.0), clock=FakeClock(step=1.0), spent_s=10.0).run()
    assert 0 < measurer.trials < fresh
    measurer = FakeMeasurer()
    session(Watched(), measurer, limits=Limits(budget_s=20.0), clock=FakeClock(step=1.0), spent_s=20.0).run()
    assert measurer.trials == 0


def test_slots_alternate_between_tasks_under_round_robin():
    measurer = FakeMeasurer()
    session(Watched(), measurer, limits=Limits(trials=12)).run()
    assert [slot[0].task.key for slot in measurer.slots] == ["a", "b", "a", "b"]
    assert all(candidate.program == f"program {candidate.task.key}" for slot in measurer.slots for candidate in slot)


def test_failures_are_records_and_the_run_goes_on():
    def half(candidate):
        if candidate.config["x"] in (0, 1):
            return Measurement(error="timeout", message="too slow")
        return by_config(candidate)

    log, events = Watched(), []
    session(log, FakeMeasurer(half), keys="a", events=events).run()
    failed = [record for record in log.records() if not record.measurement.ok]
    assert len(failed) == 10
    assert {record.measurement.error for record in failed} == {"timeout"}
    assert sum(event.failed for event in events if isinstance(event, SlotDone)) == 10
    assert log.best(record_key("a")).config["x"] in (2, 3)


def test_a_task_of_failures_only_ends_too():
    log = Watched()
    broken = FakeMeasurer(lambda candidate: Measurement(error="worker_died", message="gone"))
    assert session(log, broken, keys="a").run() == "every task is done"
    assert log.best(record_key("a")) is None


def test_an_interrupted_slot_is_lost_and_nothing_else():
    log, measurer = Watched(), FakeMeasurer()
    working = measurer.answer

    def interrupted(candidate):
        if len(measurer.slots) == 3:
            raise KeyboardInterrupt
        return working(candidate)

    measurer.answer = interrupted
    with pytest.raises(KeyboardInterrupt):
        session(log, measurer).run()
    assert len(log) == 2 * FIRST_SLOT
    resumed = FakeMeasurer()
    session(log, resumed).run()
    assert resumed.trials == 2 * SPACE.size - 2 * FIRST_SLOT
    assert len(log) == 2 * SPACE.size


def test_ctrl_c_that_a_callback_dropped_ends_the_run_before_the_next_slot():
    log, measurer = Watched(), FakeMeasurer()
    working = measurer.answer

    def deaf(candidate):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return working(candidate)

    measurer.answer = deaf
    loop = session(log, measurer)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), remembering(loop.interruption):
        loop.run()
    assert len(log) == FIRST_SLOT
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("after", [False, True], ids=["before it is logged", "once it is logged"])
def test_ctrl_c_while_a_slot_is_logged_leaves_it_logged_and_counted(after):
    class Pressed(Watched):
        def append(self, records):
            if not after:
                signal.raise_signal(signal.SIGINT)
            added = super().append(records)
            if after:
                signal.raise_signal(signal.SIGINT)
            return added

    log = Pressed()
    loop = session(log, FakeMeasurer())
    with pytest.raises(KeyboardInterrupt), remembering(loop.interruption):
        loop.run()
    assert len(log) == sum(one.state.trials for one in loop.jobs.values()) == FIRST_SLOT


def test_a_second_ctrl_c_does_not_wait_for_the_log():
    class Stuck(Watched):
        def append(self, records):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second Ctrl-C was held")

    log = Stuck()
    loop = session(log, FakeMeasurer())
    with pytest.raises(KeyboardInterrupt), remembering(loop.interruption):
        loop.run()
    assert len(log) == 0


def test_a_program_with_its_own_way_with_ctrl_c_keeps_it():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        loop = session(Watched(), FakeMeasurer())
        with remembering(loop.interruption):
            signal.raise_signal(signal.SIGINT)
        assert (heard, loop.interruption.asked) == ([1], False)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_finished_run_measures_nothing_again():
    log = Watched()
    session(log, FakeMeasurer()).run()
    again = FakeMeasurer()
    assert session(log, again).run() == "every task is done"
    assert again.trials == 0


def test_records_carry_what_resuming_needs():
    log = Watched()
    session(log, FakeMeasurer(), keys="a", limits=Limits(trials=4), clock=FakeClock(step=0.5)).run()
    records = list(log.records())
    assert {record.provenance["evaluator"] for record in records} == {"fake"}
    assert all(record.host and record.when > 1e9 and record.seed == 0 for record in records)
    wall_s = sum(float(record.provenance[WALL]) for record in records)
    resumed = job("a")
    resumed.resume(records)
    assert wall_s == pytest.approx(sum(resumed.state.spent_s))
    assert wall_s > 0


def test_records_keep_the_trace_that_came_with_the_measurement():
    log = Watched()
    traced = Measurement((1e-5,), trace='[[["GetSBlock"]],[]]')
    session(log, FakeMeasurer(lambda candidate: traced), keys="a", limits=Limits(trials=2)).run()
    assert [record.trace for record in log.records()] == [traced.trace] * 2


def test_resumed_history_is_in_the_state():
    log = Watched()
    session(log, FakeMeasurer(), keys="a", limits=Limits(trials=8)).run()
    resumed = job("a")
    resumed.resume(list(log.records(record_key("a"))))
    assert resumed.state.trials == 8
    assert resumed.state.best_s == log.best(record_key("a")).measurement.latency_s
    told = {record.config for record in log.records()}
    assert not told & set(resumed.ask(4))


def test_an_allocator_that_has_enough_ends_the_run():
    class Content(Allocator):
        def next(self, states):
            return None

    loop = session(Watched(), FakeMeasurer())
    loop.allocator = Content()
    assert loop.run() == "no task is expected to gain more"


def test_an_empty_answer_closes_the_task():
    one = job("a")
    assert len(one.ask(SPACE.size)) == SPACE.size
    configs = [SPACE.config(row) for row in SPACE.rows]
    one.tell([(config, by_config(one.candidate(config))) for config in configs], 0.0)
    assert one.ask(1) == []
    assert one.state.exhausted


def finals(log):
    return [record for record in log.records() if record.provenance.get(STAGE) == FINAL]


def test_finalists_are_timed_once_more_and_recorded_as_such():
    log, ranker = Watched(), FakeRanker()
    loop = session(log, ranker)
    loop.run()
    loop.settle()
    assert [{candidate.task.key for candidate in batch} for batch in ranker.ranked] == [{"a"}, {"b"}]
    assert len(finals(log)) == sum(map(len, ranker.ranked))
    for batch, key in zip(ranker.ranked, "ab", strict=True):
        measured = sorted(by_config(job(key).candidate(SPACE.config(row))).latency_s for row in SPACE.rows)
        again = [by_config(candidate).latency_s for candidate in batch]
        close = [latency_s for latency_s in measured if latency_s <= CLOSE * measured[0]]
        assert again == close[:FINALISTS]
        assert len(again) > 1


def test_settling_begins_with_what_weighs_most_and_ends_at_its_deadline():
    log, ranker = Watched(), FakeRanker()
    loop = session(log, ranker)
    loop.run()
    loop.jobs["b"].kernel = replace(loop.jobs["b"].kernel, task=task("b", weight=9))
    loop.settle(deadline=-math.inf)
    assert ranker.ranked == []
    loop.settle()
    assert [batch[0].task.key for batch in ranker.ranked] == ["b", "a"]


def test_the_best_record_is_what_settling_says():
    log = Watched()
    loop = session(log, FakeRanker(), keys="a")
    loop.run()
    lucky = log.best(record_key("a"))
    loop.settle()
    assert log.best(record_key("a")).config == lucky.config
    loop.measurer.rank_answer = lambda candidate: Measurement((3e-5 if candidate.config == lucky.config else 2e-5,))
    loop.settle()
    assert log.best(record_key("a")).config != lucky.config
    assert log.best(record_key("a")).measurement.latency_s < 2e-5 * CLOSE


def test_corrections_are_no_trials_when_a_run_resumes():
    log = Watched()
    limits = Limits(trials=12, plateau_trials=None)
    first = session(log, FakeRanker(), keys="a", limits=limits, clock=FakeClock(step=0.5))
    first.run()
    first.settle()
    assert finals(log)
    resumed = job("a")
    resumed.resume(list(log.records(record_key("a"))))
    assert resumed.state.trials == 12
    again = FakeRanker()
    loop = session(log, again, keys="a", limits=limits)
    assert loop.run() == "12 trials were measured"
    loop.settle()
    assert (again.trials, again.ranked) == (0, [])


def test_what_an_earlier_run_found_best_is_timed_anew():
    log, measurer = Watched(), FakeMeasurer()
    session(log, measurer, limits=Limits(trials=8)).run()
    assert not measurer.led
    again = FakeMeasurer()
    session(log, again, limits=Limits(trials=16)).run()
    best = {key: log.best(record_key(key)) for key in "ab"}
    assert {candidate.task.key for candidate, _ in again.led} == {"a", "b"}
    assert all(len([one for one, _ in again.led if one.task.key == key]) == 1 for key in best)
    assert all(latency_s >= best[candidate.task.key].measurement.latency_s for candidate, latency_s in again.led)
