"""Taking turns: builds together, timings alone, and never before the CPUs are idle."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure import machine_lock
from autotune.measure.machine_lock import STAT, MachineLock, await_idle, busy_share, lock_file
from autotune.measure.remote.rpc_session import DeviceSession

IDLE, BUSY = "cpu  10 0 10 100 0 0 0 0 0 0\n", "cpu  14 0 12 102 0 0 0 0 0 0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock.lock"


def free_for(path: Path, kind: int) -> bool:
    """Whether another process would get the lock now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def test_builds_run_together_and_timings_alone(path: Path) -> None:
    lock = MachineLock(path)
    with lock.together():
        assert free_for(path, fcntl.LOCK_SH)
        assert not free_for(path, fcntl.LOCK_EX)
    with lock.alone():
        assert not free_for(path, fcntl.LOCK_SH)
        with lock.alone():  # one batch, many timings
            assert not free_for(path, fcntl.LOCK_SH)
        assert not free_for(path, fcntl.LOCK_SH)
    assert free_for(path, fcntl.LOCK_EX)


def test_nobody_waits_without_a_file(tmp_path: Path) -> None:
    with MachineLock().alone(), MachineLock().together():
        assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_locked_is_said_and_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MachineLock(tmp_path / "nowhere" / "lock.lock").alone():
        assert "cannot be locked" in caplog.text


def test_a_lock_that_is_held_for_ever_is_said_and_not_waited_for(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_lock, "PATIENCE_S", 0.05)
    handle = os.open(path, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with MachineLock(path).alone():
        assert "another process has kept it locked for 0.05 s" in caplog.text
    os.close(handle)


@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_what_is_planted_in_place_of_a_lock_is_not_followed(
    path: Path, caplog: pytest.LogCaptureFixture, plant: str
) -> None:
    victim = path.with_name("victim")
    path.symlink_to(victim) if plant == "link" else os.mkfifo(path)
    with MachineLock(path).together():
        assert not victim.exists()
    assert ("cannot be locked" in caplog.text) == (plant == "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_user_s_lock_is_not_waited_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.touch()
    os.chown(path, 12345, 12345)
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with MachineLock(path).alone():
        assert "it belongs to another user" in caplog.text
    os.close(handle)


def test_a_user_s_lock_is_closed_to_others(path: Path) -> None:
    with MachineLock(path).together():
        assert path.stat().st_mode & 0o077 == 0
    assert str(os.geteuid()) in lock_file().name


def test_a_lock_ends_with_its_holder(path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from autotune.measure.machine_lock import MachineLock\n"
        "with MachineLock(Path(sys.argv[1])).alone(): print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not free_for(path, fcntl.LOCK_SH)
        holder.kill()
    assert free_for(path, fcntl.LOCK_EX)


def test_the_share_of_busy_cpus() -> None:
    assert busy_share(IDLE, BUSY) == pytest.approx(0.75)
    assert busy_share(IDLE, IDLE) == 0.0
    assert busy_share("", "") == busy_share(IDLE, "") == busy_share("", BUSY) == 0.0
    assert 0.0 <= busy_share(STAT.read_text(), STAT.read_text()) <= 1.0


class Board(DeviceSession):
    """The turns of a device that is not there and says nothing of its CPUs.

    Args:
        free: whether the lock is to be had, each time it is asked for.
    """

    def __init__(self, *free: bool) -> None:
        self._free = iter(free)
        self._shared = self._mine = False
        self._buffers = {}
        self.calls: list[str] = []

    def call(self, name: str, *args: object) -> int:
        self.calls.append(name)
        if name == "tune_read":
            return -1
        return next(self._free) if args[1] else 1

    def tensor(self, array: object) -> object:
        return array

    def empty(self, shape: object, dtype: object) -> object:
        return shape


def test_a_lock_on_a_device_is_taken_once_and_waits_only_where_others_were_met() -> None:
    board = Board(True, False, True, True)
    board.take_lock()
    board.take_lock()
    board.release_lock()
    assert board.calls == ["tune_lock", "tune_lock"]  # taken, given back
    for met in (2, 1):
        board.calls.clear()
        board.take_lock()
        assert board.calls == ["tune_lock"] * met + ["tune_read"] * 2
        board.calls.clear()
        board.take_lock()
        assert board.calls == []
        board.release_lock()


def test_a_lock_begins_when_the_cpus_are_idle() -> None:
    readings: Iterator[str] = iter([IDLE, BUSY, BUSY.replace("102", "122")])
    await_idle(lambda: next(readings))
    assert list(readings) == []
