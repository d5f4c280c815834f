"""The machine that misbehaves, and what is seen of it; ``python -m tests.soak`` for hours of it."""

import dataclasses
import itertools
import os
import random
import subprocess
import sys
import time

import pytest

from tests.kills.campaign import Campaign, Killed, Outcome
from tests.kills.moments import course
from tests.soak.__main__ import FLAT_MIB, begun, grown, runs, table
from tests.soak.residents import Held
from tests.soak.scenarios import Scenarios, disk
from tests.soak.shim import Shim

SOON_S = 1.0
"""Within which a disk fills up after the first trial; a run of 60 trials measures for longer."""

CLOCKS = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"

SYNC = "import os, time; f = open('x', 'wb'); start = time.perf_counter(); os.fsync(f); os.fdatasync(f); "


@pytest.fixture
def shim(tmp_path):
    return Shim(tmp_path)


def told(shim, code, folder):
    environment = {**os.environ, **shim.environment}
    out = subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, check=True)
    return [float(word) for word in out.stdout.split()]


@pytest.mark.parametrize("offset_s", [-86400, 0, 10 * 365 * 86400])
def test_the_time_of_day_is_set_and_clocks_that_only_go_forward_are_not(shim, tmp_path, offset_s):
    shim.set(offset_s=offset_s)
    of_day, of_calendar, forward = told(shim, CLOCKS, tmp_path)
    assert abs(of_day - time.time() - offset_s) < 60
    assert abs(of_calendar - time.time() - offset_s) < 60
    assert abs(forward - time.monotonic()) < 60


def test_writing_through_takes_longer(shim, tmp_path):
    shim.set(sync_s=0.3)
    (took_s,) = told(shim, SYNC + "print(time.perf_counter() - start)", tmp_path)
    assert took_s >= 0.6


FLAT = [Held(n, 0, 100.0 + n % 3, 20, 9) for n in range(40)]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, []),
        ({"rss_mib": 100 + 2 * FLAT_MIB}, ["memory grew from 101.0 to 116.0 MiB"]),
        ({"files": 30}, ["files grew from 20 to 30"]),
        ({"threads": 12}, ["threads grew from 9 to 12"]),
    ],
)
def test_what_a_process_holds_more_of_at_the_end_is_seen(changed, problem):
    assert grown([*FLAT[:30], *(dataclasses.replace(sample, **changed) for sample in FLAT[30:])]) == problem


def test_the_table_has_a_row_per_scenario():
    killed = Killed("full disk", "build", 1, "", course([], 1), 0, 0.5)
    rows = table({"full disk": [Outcome(killed, 3, 0, 1, ()), Outcome(killed, 0, 1, 2, ("1 records are lost",))]})
    assert rows[-1] == "| full disk | 2 | 2 | 3 | 1 | 0 | 2 | 1 |"


@pytest.fixture
def scenarios(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = disk(folder)
        with mounted:
            yield folder, Scenarios(Shim(tmp_path), random.Random(0))
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_run_on_a_full_disk_loses_nothing(scenarios):
    folder, machine = scenarios
    machine.phases = ("slots",)
    campaign = Campaign(folder, 0, phase_s={"slots": SOON_S})
    outcome = campaign.judged(lambda: machine.full_disk(campaign))
    assert outcome.killed.code != 0
    assert outcome.problems == ()


@pytest.mark.slow
def test_every_scenario_of_every_model(scenarios):
    folder, machine = scenarios
    campaigns = begun(folder, 1)
    problems = [
        (name, problem)
        for name, outcome in itertools.islice(runs(campaigns, machine, float("inf")), 21)
        for problem in outcome.problems
    ]
    assert problems == []
