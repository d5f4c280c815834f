"""How fast a big log is: ``python -m tests.tuning_logs_tests.log_speed``, a million records by default.

Not a test, since no test asserts a time. It writes the records of 300 tasks in batches of 64, one of the tasks with a
tenth of them, then opens the log anew and asks for the best of every task. Then ``--users`` processes ask for the best
of random tasks for some seconds while ``--writers`` processes go on appending.

``--postgres`` starts a server of its own, which writes through to the disk as PostgreSQL does by default.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from tests.tuning_logs_tests.postgres_server import PostgresServer
from tests.tuning_logs_tests.samples import config, failed, other_key, timed
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import open_log

TASKS = 300
BATCH = 64
TOGETHER_S = 10.0
"""Seconds that users and writers work side by side."""


def made(count: int, seed: int = 1) -> Iterator[TuningRecord]:
    """Records of which a tenth failed, and configs are measured twice now and then."""
    rng = random.Random(seed)
    for index in range(count):
        key = other_key(task=f"task{0 if rng.random() < 0.1 else rng.randrange(TASKS)}")
        number = rng.randrange(count)
        when = float(seed * count + index)
        if rng.random() < 0.1:
            yield failed(number, key=key, when=when)
        else:
            latencies = [rng.uniform(1e-4, 1e-2) for _ in range(5)]
            record = timed(number, *latencies, key=key, when=when)
            yield dataclasses.replace(record, config=config(number % 2000), trace=f'[["Split",{number}]]' * 40)


def lap_ms(work: Callable[[], object]) -> float:
    """Milliseconds that ``work`` takes."""
    start_s = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start_s)


def alone(count: int, address: str) -> None:
    """One process: append all, open, ask."""
    log = open_log(address)
    records = made(count)
    append_ms = 0.0
    while batch := list(itertools.islice(records, BATCH)):
        append_ms += lap_ms(functools.partial(log.append, batch))
    print(f"append  {1e3 * count / append_ms:8.0f} records/s in batches of {BATCH}")
    print(f"size    {log.database.bytes() / count:8.0f} bytes per record")
    log.close()
    print(f"open    {lap_ms(lambda: open_log(address).close()):8.2f} ms")
    log = open_log(address)
    unknown = other_key(task="unknown")
    print(f"best    {lap_ms(lambda: log.best(unknown)):8.2f} ms for an unknown task, the first query")
    best_ms = [lap_ms(functools.partial(log.best, other_key(task=f"task{task}"))) for task in range(TASKS)]
    print(f"        {best_ms[0]:8.2f} ms for the first task, which has most records")
    print(f"        {statistics.median(best_ms):8.2f} ms median of {TASKS} tasks, {max(best_ms[1:]):.2f} at most")
    print(
        f"explain {lap_ms(lambda: log.explain_miss(other_key(task='task0', target='elsewhere'))):8.2f} ms for that task"
    )
    log.close()


def _user(address: str, seed: int, laps: SimpleQueue[list[float]]) -> None:
    """Ask for the best of random tasks."""
    log, rng, took = open_log(address), random.Random(seed), []
    until_s = time.monotonic() + TOGETHER_S
    while time.monotonic() < until_s:
        took.append(lap_ms(functools.partial(log.best, other_key(task=f"task{rng.randrange(TASKS)}"))))
        time.sleep(0.01)  # a tuning run asks now and then
    log.close()
    laps.put(took)


def _writer(address: str, seed: int, laps: SimpleQueue[list[float]]) -> None:
    """Append batches."""
    log, records, took = open_log(address), made(1 << 40, seed), []
    until_s = time.monotonic() + TOGETHER_S
    while time.monotonic() < until_s:
        batch = list(itertools.islice(records, BATCH))
        took.append(lap_ms(functools.partial(log.append, batch)))
    log.close()
    laps.put(took)


def together(address: str, users: int, writers: int) -> None:
    """Users who ask while writers append."""
    context = multiprocessing.get_context("spawn")
    asked: SimpleQueue[list[float]] = context.SimpleQueue()
    written: SimpleQueue[list[float]] = context.SimpleQueue()
    work = [context.Process(target=_user, args=(address, 100 + n, asked)) for n in range(users)]
    work += [context.Process(target=_writer, args=(address, 1000 + n, written)) for n in range(writers)]
    for process in work:
        process.start()
    best_ms = [lap for _ in range(users) for lap in asked.get()]
    append_ms = [lap for _ in range(writers) for lap in written.get()]
    for process in work:
        process.join()
    print(f"{users} users beside {writers} writers, {TOGETHER_S:.0f} s:")
    if best_ms:
        print(f"best    {_quantiles(best_ms)}, {len(best_ms)} queries")
    if append_ms:
        rate = BATCH * len(append_ms) / TOGETHER_S
        print(f"append  {_quantiles(append_ms)} per batch of {BATCH}; {rate:.0f} records/s in all")


def _quantiles(laps_ms: list[float]) -> str:
    cuts = statistics.quantiles(laps_ms, n=100)
    return f"{cuts[49]:8.2f} ms median, {cuts[98]:.2f} at p99"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--users", type=int, default=0)
    parser.add_argument("--writers", type=int, default=0)
    options = parser.parse_args()
    server = PostgresServer(durable=True) if options.postgres else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            address = server.new_database() if server else str(Path(folder) / "tuning.db")
            alone(options.records, address)
            if options.users or options.writers:
                together(address, options.users, options.writers)
    finally:
        if server:
            server.stop()


if __name__ == "__main__":
    main()
