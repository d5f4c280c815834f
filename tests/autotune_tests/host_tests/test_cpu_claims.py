"""Servers on one machine take different cores while there are some that others do not use."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from autotune.host import cpu_claims
from autotune.host.cpu_claims import CpuClaims, session_cpus, session_groups
from autotune.host.machine import read_host


@pytest.fixture
def other(tmp_path):
    """Starts processes that note CPUs, each until its standard input is closed."""
    script = (
        "import sys; from pathlib import Path; from autotune.host.cpu_claims import CpuClaims\n"
        "CpuClaims(Path(sys.argv[1])).note(map(int, sys.argv[2:])); print('noted', flush=True); sys.stdin.read()\n"
    )
    started = []

    def start(*cpus):
        command = [sys.executable, "-c", script, str(tmp_path / "cpus"), *map(str, cpus)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"noted\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def claims(tmp_path):
    return CpuClaims(tmp_path / "cpus")


def test_the_cores_that_others_do_not_use_come_first(claims, other):
    assert claims.least_used(range(8), 2) == tuple(range(8))
    first = other(0, 1)
    assert claims.least_used(range(8), 2) == (2, 3, 4, 5, 6, 7)
    assert claims.least_used(range(8), 6) == (2, 3, 4, 5, 6, 7)
    assert claims.least_used(range(8), 7) == tuple(range(8))  # too few are free
    other(0, 2, 3)
    assert claims.least_used(range(4), 1) == (1, 2, 3)
    assert claims.least_used(range(8), 8) == claims.least_used(range(8), 9) == tuple(range(8))
    first.kill()
    first.wait()
    assert claims.least_used(range(4), 1) == (1,)
    assert len(list((claims._folder).iterdir())) == 1  # the file of the dead process is gone


def test_a_process_does_not_give_way_to_itself(claims):
    claims.note([0, 1])
    assert claims.least_used(range(4), 2) == (0, 1, 2, 3)
    claims.note([2])
    (path,) = claims._folder.iterdir()
    assert path.read_text() == "0 1 2"
    assert CpuClaims(claims._folder).least_used(range(4), 1) == (3,)


def test_a_session_takes_free_cores(claims, other, monkeypatch):
    host = replace(read_host(), allowed=tuple(range(8)), cores=tuple(range(0, 8, 2)), nodes=())
    monkeypatch.setattr(cpu_claims, "read_host", lambda: host)
    monkeypatch.setattr(cpu_claims, "CLAIMS", claims)
    assert session_cpus(2) == (0, 2)
    (own,) = claims._folder.iterdir()
    own.unlink()
    other(0, 2)
    again = CpuClaims(claims._folder)
    monkeypatch.setattr(cpu_claims, "CLAIMS", again)
    assert session_cpus(2) == (4, 6)
    assert session_groups(2, 1) == [[4], [6]]
    assert session_cpus(4) == (0, 2, 4, 6)


@pytest.mark.parametrize("plant", ["garbage", "link", "pipe", "folder", "held"])
def test_what_is_planted_in_the_folder_is_no_error(claims, tmp_path, plant):
    claims._folder.mkdir(mode=0o700)
    path, victim = claims._folder / "x", tmp_path / "victim"
    victim.write_text("0")
    handle = None
    if plant == "garbage":
        path.write_bytes(b"\xff 99999999999999 -1 a 1.5")
    elif plant == "link":
        path.symlink_to(victim)
    elif plant == "pipe":
        os.mkfifo(path)
    elif plant == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff 0 99999999999999 -1 a 1.5")
        handle = os.open(path, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    expected = (1, 2, 3) if plant == "held" else (0, 1, 2, 3)
    assert claims.least_used(range(4), 1) == expected
    assert victim.read_text() == "0"
    if handle is not None:
        os.close(handle)


def test_without_a_folder_of_its_own_a_process_is_alone(tmp_path):
    (tmp_path / "file").write_text("")
    claims = CpuClaims(tmp_path / "file" / "cpus")
    claims.note([0])
    assert claims.least_used(range(4), 1) == (0, 1, 2, 3)
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 12345, 12345)
        claims = CpuClaims(tmp_path / "theirs")
        claims.note([0])
        assert list((tmp_path / "theirs").iterdir()) == []


def test_a_comparison_looks_at_no_other_process(claims, other):
    other(0)
    claims.enabled = False
    claims.note([1])
    assert claims.least_used(range(4), 1) == (0, 1, 2, 3)
    assert len(list(claims._folder.iterdir())) == 1
