"""The tuner's process: told of sizes, restarted a few times, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from autotune.runtime.adaptive import tuner_process
from autotune.runtime.adaptive.tuner_process import IDLE, RESTARTS, TunerProcess
from tests.autotune_tests.runtime_tests.adaptive_tests.waiting import wait_for

SIZES = [[[[1, 4]], 0.5]]


@pytest.fixture
def process(monkeypatch, tmp_path):
    monkeypatch.setattr(tuner_process, "WAIT_S", 1e-3)
    monkeypatch.setattr(tuner_process, "MODULE", f"{__package__}.spoken")
    processes = []

    def start(*lines, then="end"):
        settings = {"lines": [*lines], "then": then}
        processes.append(TunerProcess(settings, tmp_path / "log"))
        return processes[-1]

    yield start
    for tuner in processes:
        tuner.end()


def heard(process):
    """Sizes that could not be taken, once the process has ended."""
    left = []

    def ended():
        left.extend(process.listen())
        return process.pid is None

    wait_for(ended)
    return left


def test_what_is_said_is_the_state(process):
    tuner = process("state tuning for 1x4", "built", then="wait")
    assert tuner.state == IDLE
    assert tuner.offer(SIZES)
    wait_for(lambda: tuner.listen() == [] and tuner.state == "tuning for 1x4")
    tuner.end()
    assert tuner.pid is None
    assert not tuner.offer(SIZES)


def test_sizes_that_came_too_late_may_be_offered_again(process):
    tuner = process("state idle", "done 1")
    assert tuner.offer(SIZES)
    assert tuner.offer([[[[2, 4]], 0.1]])
    assert heard(tuner) == [[[[[2, 4]], 0.1]]]
    assert tuner.state == IDLE


@pytest.mark.parametrize("lines", [("failed the disk is full", "done 1"), ("state tuning",)])
def test_after_failures_in_a_row_there_is_no_other_process(process, lines):
    tuner = process(*lines, then="end" if "failed" in lines[0] else "crash")
    for _ in range(RESTARTS):
        wait_for(lambda: tuner.offer(SIZES))
        assert heard(tuner) == [SIZES]
    assert tuner.has_given_up
    assert not tuner.offer(SIZES)
    assert "the disk is full" in tuner.state or "a line of its log; it is not started again" in tuner.state


def test_a_killed_process_is_another_one_next_time(process):
    tuner = process("state tuning", then="wait")
    tuner.offer(SIZES)
    first = tuner.pid
    os.kill(first, signal.SIGKILL)
    assert heard(tuner) == [SIZES]
    wait_for(lambda: tuner.offer(SIZES))
    assert tuner.pid != first


@pytest.mark.parametrize("module", [f"{__package__}.spoken", tuner_process.MODULE])
def test_it_ends_when_its_session_is_killed(module, tmp_path):
    settings = {"lines": [], "then": "wait"}
    if module == tuner_process.MODULE:
        settings = {"model": "m.onnx", "out": str(tmp_path / "m.tuned"), "threads": 1, "cpu_share": 1.0, "until": 0.0}
    script = f"""
        import sys, time
        from pathlib import Path
        from autotune.runtime.adaptive import tuner_process
        tuner_process.MODULE = {module!r}
        tuner = tuner_process.TunerProcess({settings!r}, Path({str(tmp_path / "log")!r}))
        tuner.offer([])
        print(tuner.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    child = psutil.Process(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(60)
    assert not psutil.pid_exists(pid)


def test_a_folder_that_somebody_removed_is_made_again(process, tmp_path):
    tuner = process("state a", then="wait")
    tuner._log = tmp_path / "removed" / "cache" / "log"
    assert tuner.offer(SIZES)
    wait_for(lambda: tuner.listen() == [] and tuner.state == "a")


def test_settings_are_plain_data(process, tmp_path):
    tuner = process("state a", then="wait")
    tuner.offer(SIZES)
    wait_for(lambda: tuner.listen() == [] and tuner.state == "a")
    said = json.loads(Path(tmp_path / "log").read_text().splitlines()[0])
    assert said["parent"] == os.getpid()
