"""What a child process does first, what it may take, and how its end is described."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.host.process_limits import cap_memory, cause_of_death, is_out_of_memory, isolate, log_tail, signal_of


def status_of(work: Callable[[], object]) -> int:
    """``waitpid`` status of a fork that does ``work`` and then exits with 0."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(3)
    return os.waitpid(pid, 0)[1]


def test_an_isolated_child_writes_to_its_log_and_ignores_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"

    def work() -> None:
        isolate(log)
        os.kill(os.getpid(), signal.SIGINT)
        os.write(1, b"to the output\n")
        os.write(2, b"to the errors\n")
        assert os.read(0, 1) == b""

    assert status_of(work) == 0
    assert log.read_text() == "to the output\nto the errors\n"


def test_memory_beyond_the_cap_is_refused_and_up_to_it_granted() -> None:
    # Pages are mapped, not taken from the heap: one that earlier tests left behind may hold 256 MiB free already.
    def within() -> None:
        cap_memory(256 << 20)
        mmap.mmap(-1, 64 << 20)

    def beyond() -> None:
        cap_memory(64 << 20)
        mmap.mmap(-1, 256 << 20)

    assert status_of(within) == 0
    assert os.waitstatus_to_exitcode(status_of(beyond)) == 3


@pytest.mark.parametrize(("blow", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_is_named(blow: signal.Signals, name: str) -> None:
    status = status_of(lambda: os.kill(os.getpid(), blow))
    assert (cause_of_death(status), signal_of(status)) == (name, blow)


def test_an_exit_status_is_a_number() -> None:
    status = status_of(lambda: os._exit(7))
    assert (cause_of_death(status), signal_of(status)) == ("exit status 7", 0)


def test_texts_of_failed_allocations_are_known() -> None:
    assert is_out_of_memory("terminate called after throwing an instance of 'std::bad_alloc'")
    assert not is_out_of_memory("Segmentation fault")


def test_the_tail_of_a_log_has_no_frames_of_a_stack(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert log_tail(log) == ""
    log.write_text('Traceback\n\n  File "a.py", line 1\n  File "b.py", line 2\nboom()\nValueError: no\n')
    assert log_tail(log) == "Traceback boom() ValueError: no"
    assert log_tail(log, limit=5) == "r: no"


LOOK = "import gc; print(gc.get_threshold())"


def printed(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip().splitlines()[-1]


def test_collecting_rarely_sets_the_thresholds() -> None:
    code = f"from autotune.host.process_limits import collect_rarely; collect_rarely(); {LOOK}"
    assert printed(code) == "(50000, 20, 50)"


def test_a_command_collects_rarely() -> None:
    code = f"import sys; sys.argv = ['tune', '--version']\nfrom autotune.__main__ import main\nmain()\n{LOOK}"
    assert printed(code) == "(50000, 20, 50)"


def test_the_library_leaves_the_thresholds_of_its_caller() -> None:
    assert printed(f"import autotune; autotune.Options; {LOOK}") == printed(LOOK)
