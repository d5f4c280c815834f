"""Real runs of ``tune run`` on real kernels, killed at random moments; ``python -m tests.kills`` for more."""

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kills.__main__ import table
from tests.kills.campaign import Campaign, Killed, Outcome, wrong_end
from tests.kills.moments import PHASES, Place, course
from tests.kills.processes import VARIABLE, await_end, of_run, pick
from tests.tuning_logs_tests.postgres_server import PostgresServer, missing

BEGAN = [
    {"event": "phase", "name": "import"},
    {"event": "tuning_began", "tasks": [{"key": "a", "trials": 3}, {"key": "b", "trials": 0}]},
    {"event": "slot_began", "key": "a", "count": 2},
]


def check(folder, kills, seed, server=None):
    outcomes = list(Campaign(folder, seed, server=server).run(kills))
    print("\n".join(table(outcomes)))
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert sum(bool(outcome.killed.victim) for outcome in outcomes) == kills
    assert sum(outcome.records for outcome in outcomes) > 0


def test_a_killed_command(tmp_path):
    check(tmp_path, kills=1, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_two_hundred_killed_commands(tmp_path, seed):
    check(tmp_path, kills=40, seed=seed)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_killed_commands_and_the_server_of_their_log(tmp_path):
    server = PostgresServer(durable=True)
    try:
        check(tmp_path, kills=20, seed=6, server=server)
    finally:
        server.stop()


def test_the_course_of_a_run():
    assert course([], 10).phase == "start"
    assert course(BEGAN[:1], 10).phase == "import"
    begun = course(BEGAN, 10)
    assert (begun.phase, begun.pending, begun.known) == ("slots", 2, {"a": 3, "b": 0})
    done = [*BEGAN, {"event": "slot_done", "key": "a", "measured": 2}]
    assert course(done, 10).acknowledged == {"a": 2}
    assert course(done, 10).pending == 0
    assert course(done, 5).phase == "settle"
    built = course([*done, {"event": "phase", "name": "build"}], 5)
    assert (built.phase, built.finished) == ("build", False)
    assert course([*done, {"event": "result"}], 5).finished


def test_a_new_artifact_is_noticed(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    place = Place.of(out)
    assert not place.is_replaced
    assert not place.is_written
    (tmp_path / ".out-x" / "1").mkdir(parents=True)
    (tmp_path / ".out-x" / "1" / "manifest.json").write_text("")
    assert place.is_written
    (tmp_path / ".out-x").rename(tmp_path / "new")
    out.rmdir()
    assert not place.is_replaced
    (tmp_path / "new").rename(out)
    assert place.is_replaced


def test_an_orphan_is_found(monkeypatch):
    monkeypatch.setattr("tests.kills.processes.ORPHAN_S", 0.1)
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(waiting, env={**os.environ, VARIABLE: "orphan"}, start_new_session=True)
    try:
        assert [orphan.pid for orphan in await_end("orphan")[1]] == [process.pid]
        assert pick("orphan", "worker", random.Random(0)) is None
    finally:
        process.kill()
        process.wait()
    assert of_run("orphan") == []


class Told(Campaign):
    """A campaign whose runs are as a test says."""

    def killed_run(self, victim, phase):
        return Killed(victim, phase, -9, "", course([*BEGAN, *self.more], 99), 0, 0.0)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ([{"event": "slot_done", "key": "a", "measured": 2}], "2 records are lost"),
        ([{"event": "slot_began", "key": "a", "count": 9}], "9 trials will be repeated, more than a batch"),
    ],
)
def test_losses_are_found(tmp_path, more, problem):
    campaign = Told(tmp_path, 0)
    campaign.more = more
    assert campaign.examined("run", "slots").problems == (problem,)


def test_a_record_that_vanishes_and_an_artifact_that_does_not_load_are_found(tmp_path):
    campaign = Told(tmp_path, 0)
    campaign.more = []
    Path(campaign.log).write_bytes(b"")
    campaign.stored = {("a", "config")}
    campaign.out.mkdir(parents=True)
    said = " ".join(campaign.examined("run", "slots").problems)
    assert "1 records are lost" in said
    assert "a run took 3 records of task a from a log that had 1" in said
    assert "the artifact is damaged" in said
    campaign.out.rmdir()
    assert campaign.wrong_artifact(campaign.killed_run("run", "slots"), was_there=True) == ["the artifact is gone"]


def test_a_run_whose_worker_was_killed_ends_well():
    ended = Killed("worker", "slots", 1, "Traceback (most recent call last):", course([], 1), 0, 0.0)
    assert len(wrong_end(ended)) == 2


@pytest.mark.parametrize(("line", "wrong"), [("<frozen io>", 0), ("/somewhere/autotune/x.py", 1)])
def test_only_an_interruption_of_python_s_own_start_may_have_a_traceback(line, wrong):
    said = f'Traceback (most recent call last):\n  File "{line}", line 1\nKeyboardInterrupt'
    assert len(wrong_end(Killed("interruption", "start", -2, said, course([], 1), 0, 0.0))) == wrong


def test_the_table_has_a_row_per_phase_and_victim():
    killed = Killed("run", "swap", -9, "", course([], 1), 0, 0.5)
    rows = table([Outcome(killed, 3, 0, 1, ())])
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[2:]] == [
        *(f"in {phase}" for phase in PHASES),
        "of the run",
        "all",
        "not killed",
    ]
    assert "| in swap | 1 | 3 | 0 | 0 | 1 | 0.5 s | 0 |" in rows


@pytest.mark.parametrize("more", [1e-6, 1e-1])
def test_an_artifact_that_computes_something_else_is_found(tmp_path, monkeypatch, more):
    campaign = Campaign(tmp_path, 0)
    campaign.out.mkdir(parents=True)
    outputs = [array + more * abs(array).max() for array in campaign.expected]
    monkeypatch.setattr(
        "tests.kills.campaign.InferenceSession", lambda out: SimpleNamespace(run=lambda names, feed: outputs)
    )
    ended = Killed("run", "swap", -9, "", course([], 1), 0, 0.0)
    assert bool(campaign.wrong_artifact(ended, was_there=True)) == (more > 1e-2)
