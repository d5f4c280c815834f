"""Many processes write one log, and processes are killed while they write: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tuning_logs_tests.samples import KEY, any_program, timed
from tuning_logs.maintenance import verify
from tuning_logs.sql_store import open_log

pytestmark = pytest.mark.endurance


def forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process that ends with code 0 only if nothing was raised; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def write_singly(address: str | Path, process: int, count: int) -> None:
    """Append ``count`` records, each in its own transaction."""
    log = open_log(address)
    for index in range(count):
        log.append([timed(process * 10_000 + index, 1.0 + index, when=float(index))])
    log.close()


def check_many_writers(address: str | Path, processes: int, count: int) -> None:
    """``processes`` × ``count`` records into one log, which they create together, and into which they all merge."""
    children = [forked(lambda number=number: write_singly(address, number, count)) for number in range(processes)]  # type: ignore[misc]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
    log = open_log(address)
    numbers = [record.config.integer("unroll") for record in log.records(KEY)]
    assert sorted(numbers) == sorted(process * 10_000 + index for process in range(processes) for index in range(count))
    assert verify(log, any_program).ok
    log.close()


BATCH = 4


def write_and_acknowledge(address: str | Path, pipe: int) -> None:
    """Append batches without end, and one byte to ``pipe`` after each."""
    log = open_log(address)
    done = sum(1 for _ in log.records(KEY)) // BATCH
    while True:
        log.append([timed(done * BATCH + index, 1.0) for index in range(BATCH)])
        os.write(pipe, b".")
        done += 1


def killed_writer(address: str | Path, rng: random.Random) -> int:
    """Kill a writer at a random moment; how many batches it had acknowledged."""
    reading, writing = os.pipe()
    child = forked(lambda: write_and_acknowledge(address, writing))
    os.close(writing)
    for _ in range(rng.choice([0, 1, 2, 5])):  # some are killed before their first batch, while they open the log
        select.select([reading], [], [], 30)
    time.sleep(rng.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    acknowledged = b""
    while more := os.read(reading, 4096):
        acknowledged += more
    os.close(reading)
    return len(acknowledged)


def check_killed_writers(address: str | Path, kills: int, seed: int, settle: Callable[[], None] = lambda: None) -> None:
    """After every kill the log opens, holds whole batches, all acknowledged ones, and at most one more.

    ``settle`` waits until a server is done with what the dead writer had already sent.
    """
    rng = random.Random(seed)
    stored = 0
    for _ in range(kills):
        acknowledged = killed_writer(address, rng)
        settle()
        log = open_log(address)
        numbers = sorted(record.config.integer("unroll") for record in log.records(KEY))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) % BATCH == 0
        batches = len(numbers) // BATCH - stored
        assert acknowledged <= batches <= acknowledged + 1
        stored += batches
        assert verify(log, any_program).ok
        log.close()
    assert stored > 0


def test_many_writers(tmp_path: Path) -> None:
    check_many_writers(tmp_path / "tuning.db", processes=4, count=40)


def test_killed_writers(tmp_path: Path) -> None:
    check_killed_writers(tmp_path / "tuning.db", kills=12, seed=1)


def test_writers_killed_while_they_create_the_log(tmp_path: Path) -> None:
    rng = random.Random(2)
    for index in range(6):
        path = tmp_path / f"{index}.db"
        child = forked(lambda path=path: open_log(path).close())  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        write_singly(path, 0, 1)


@pytest.mark.slow
def test_thirty_two_writers(tmp_path: Path) -> None:
    check_many_writers(tmp_path / "tuning.db", processes=32, count=500)


@pytest.mark.slow
def test_two_hundred_killed_writers(tmp_path: Path) -> None:
    check_killed_writers(tmp_path / "tuning.db", kills=200, seed=3)
