"""Errors of code that is not ours, and its runs at the end of the interpreter."""

import subprocess
import sys

import pytest

from autotune.host.third_party import ThirdPartyError, third_party
from schedules.vocabulary.errors import ModelError


def test_any_error_is_one_line_and_keeps_its_cause():
    with pytest.raises(ThirdPartyError, match=r"^first$") as caught, third_party():
        raise IndexError("first\nsecond")
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("error", [ModelError("ours"), KeyboardInterrupt()])
def test_our_own_errors_and_interrupts_pass(error):
    with pytest.raises(type(error)), third_party():
        raise error


DAEMON = """
import threading, time
from autotune.host.third_party import foreign_runs

runs, inside = foreign_runs(), threading.Event()

def work():
    while True:
        with runs:
            inside.set()
            time.sleep(0.2)  # a run
            ended.append(1)

ended = []
threading.Thread(target=work, daemon=True).start()
inside.wait()
import atexit
atexit.register(lambda: print("begun", len(ended)))  # before the wait: handlers run in reverse
"""


def test_the_end_of_the_interpreter_waits_for_runs_of_daemon_threads():
    seen = "import atexit\natexit.register(lambda: print('waited', len(ended) > 0))\n"  # the first is the last to run
    done = subprocess.run(
        [sys.executable, "-c", seen + DAEMON], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun 0\nwaited True\n", "")


def test_the_main_thread_may_run_at_exit_and_errors_leave_no_trace():
    code = """
import atexit
from autotune.host.third_party import foreign_runs

def late():
    with foreign_runs():
        print("ran")

atexit.register(late)
try:
    with foreign_runs():
        raise ValueError
except ValueError:
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
