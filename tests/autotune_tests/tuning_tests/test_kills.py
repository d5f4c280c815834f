"""A run killed at any moment: what it acknowledged is in the log, and the next run repeats one batch at most."""

import os
import random
import select
import signal
import time
from collections import Counter

import numpy as np
import pytest

from autotune.events import SlotDone
from autotune.tuning.job import Job, KernelTask
from autotune.tuning.loop import TuningLoop
from schedules.space import Knob, Space
from schedules.task import Task
from search.allocators.simple_allocators import RoundRobin
from search.allocators.stopping import Limits
from search.searchers.random_search import RandomSearch
from search.searchers.searcher import SearchContext
from tests.autotune_tests.fakes import by_config
from tests.tuning_logs_tests.samples import any_program
from tests.tuning_logs_tests.test_processes import forked
from tuning_logs.maintenance import verify
from tuning_logs.record import RecordKey
from tuning_logs.sql_store import open_log

SPACE = Space("toy", 1, (Knob("x", tuple(range(300))), Knob("y", tuple(range(300)))))
BATCH = 4
TASKS = "abc"
MEASURED, ACKNOWLEDGED = b"m", b"a"


class ToldMeasurer:
    """Writes a byte to ``pipe`` for every config it measures, at once and without a buffer."""

    origins = ()

    def __init__(self, pipe):
        self._pipe = pipe

    def measure(self, candidates, incumbent_s=None):
        measured = []
        for candidate in candidates:
            os.write(self._pipe, MEASURED)
            measured.append(by_config(candidate))
        return measured


def key_of(task):
    return RecordKey(task, "target", SPACE.identity, "0")


def run(path, seed, pipe):
    """Tune without end, as ``tune run`` does: resume from the log, then slot after slot."""
    log = open_log(path)
    jobs = {}
    for name in TASKS:
        task = Task(name, name, "toy", "toy", ((1,), (1,)), ("float32", "float32"), (), 10, 8)
        searcher = RandomSearch(SearchContext(SPACE, np.random.default_rng(seed)))
        jobs[name] = Job(KernelTask(task, "program", key_of(name), SPACE, 1e-9), searcher, seed)
        jobs[name].resume(list(log.records(key_of(name))))

    def observe(event):
        if isinstance(event, SlotDone):
            os.write(pipe, ACKNOWLEDGED * event.measured)

    limits = Limits(plateau_trials=None)
    TuningLoop(jobs, RoundRobin(), ToldMeasurer(pipe), log, limits, BATCH, time.perf_counter, observe).run()


def killed_run(path, rng):
    """Kill a run at a random moment; (configs measured, records acknowledged)."""
    reading, writing = os.pipe()
    seed = rng.randrange(1 << 30)
    child = forked(lambda: run(path, seed, writing))
    os.close(writing)
    if rng.random() < 0.9:  # the others die while they open the log and resume
        select.select([reading], [], [], 30)
    time.sleep(rng.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = Counter()
    while more := os.read(reading, 65536):
        said.update(more)
    os.close(reading)
    return said[MEASURED[0]], said[ACKNOWLEDGED[0]]


def check_killed_runs(path, kills, seed):
    """After every kill; the totals (records, measurements that were lost)."""
    rng = random.Random(seed)
    stored, lost = 0, 0
    for _ in range(kills):
        measured, acknowledged = killed_run(path, rng)
        log = open_log(path)
        pairs = [(record.key.task, record.config) for record in log.records()]
        assert len(set(pairs)) == len(pairs)  # nothing that is in the log was measured again
        new = len(pairs) - stored
        assert acknowledged <= new <= measured
        assert measured - new <= BATCH  # what the next run may have to repeat
        assert verify(log, any_program).ok
        log.close()
        stored += new
        lost += measured - new
    return stored, lost


def test_killed_runs(tmp_path):
    stored, _ = check_killed_runs(tmp_path / "t.db", kills=10, seed=1)
    assert stored > 0


@pytest.mark.slow
def test_two_hundred_killed_runs(tmp_path):
    stored, lost = check_killed_runs(tmp_path / "t.db", kills=200, seed=2)
    print(f"200 kills: {stored} records, {lost} measurements lost")
    assert stored > 0  # how many there are depends on how fast the machine is
