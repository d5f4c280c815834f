"""Real runs that are interrupted or killed: what is on disk afterwards, and who is left running."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from autotune.cli.main import main
from tests.autotune_tests.tiny import save_tiny
from tests.tuning_logs_tests.samples import any_program
from tuning_logs.maintenance import verify
from tuning_logs.sql_store import open_log

RUN = [sys.executable, "-c", "import sys; from autotune.cli.main import main; sys.exit(main())", "run", "tiny.onnx"]
OPTIONS = ["--log", "t.db", "--threads", "1", "--budget", "600s", "--until", "never", "--json"]
DEADLINE_S = 60.0


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny.onnx")
    return tmp_path


def records(path):
    """How many records the log holds; 0 before there is one."""
    if not path.exists():
        return 0
    log = open_log(path)
    count = sum(1 for _ in log.records())
    log.close()
    return count


def started(folder):
    """A run in a session of its own, once its first slot is in the log, and its processes."""
    process = subprocess.Popen(
        [*RUN, *OPTIONS], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + DEADLINE_S
    while not records(folder / "t.db"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no slot was ever finished"
        time.sleep(0.2)
    return process, psutil.Process(process.pid).children(recursive=True)


def all_end(processes):
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    return not alive


def test_ctrl_c_on_a_terminal_ships_the_best_so_far(workplace):
    process, workers = started(workplace)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to everybody
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, err
    data = json.loads(out)
    assert data["interrupted"] is True
    assert data["verified"]["passed"] is True
    assert "Traceback" not in err
    assert workers
    assert all_end(workers)
    assert records(workplace / "t.db") == data["measured_trials"] > 0
    assert main(["verify", "tiny.tuned", "tiny.onnx"]) == 0


def test_a_killed_run_leaves_a_sound_log_that_the_next_one_uses(workplace, capsys):
    process, workers = started(workplace)
    process.kill()
    process.communicate()
    assert all_end(workers)
    assert not [path.name for path in workplace.iterdir() if "tuned" in path.name]
    log = open_log(workplace / "t.db")
    assert verify(log, any_program).ok
    log.close()
    before = records(workplace / "t.db")
    trials = ["--trials", str(before + 1), "--quiet"]
    assert main(["run", "tiny.onnx", *OPTIONS, *trials]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["reused_records"], data["measured_trials"]) == (before, 1)
