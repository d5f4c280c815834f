"""How fast a big log is: ``python -m tests.tuning_logs_tests.log_speed [RECORDS]``, a million by default.

Not a test, since no test asserts a time. It writes RECORDS records of 300 tasks in batches of 64, one of the tasks with
a tenth of them, then opens the log anew and asks for the best of every task.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.tuning_logs_tests.samples import config, failed, other_key, timed
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import open_log

TASKS = 300
BATCH = 64


def made(count: int) -> Iterator[TuningRecord]:
    """Records of which a tenth failed, and configs are measured twice now and then."""
    rng = random.Random(1)
    for index in range(count):
        key = other_key(task=f"task{0 if rng.random() < 0.1 else rng.randrange(TASKS)}")
        number = rng.randrange(count)
        if rng.random() < 0.1:
            yield failed(number, key=key, when=float(index))
        else:
            latencies = [rng.uniform(1e-4, 1e-2) for _ in range(5)]
            record = timed(number, *latencies, key=key, when=float(index))
            yield dataclasses.replace(record, config=config(number % 2000), trace=f'[["Split",{number}]]' * 40)


def lap_ms(work: Callable[[], object]) -> float:
    """Milliseconds that ``work`` takes."""
    start_s = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start_s)


def main(count: int, path: Path) -> None:
    """Measure and print."""
    log = open_log(path)
    records = made(count)
    append_ms = 0.0
    while batch := list(itertools.islice(records, BATCH)):
        append_ms += lap_ms(functools.partial(log.append, batch))
    log.close()
    print(f"append  {1e3 * count / append_ms:8.0f} records/s in batches of {BATCH}")
    print(f"size    {path.stat().st_size / count:8.0f} bytes per record")
    print(f"open    {lap_ms(lambda: open_log(path).close()):8.2f} ms")
    log = open_log(path)
    unknown = other_key(task="unknown")
    print(f"best    {lap_ms(lambda: log.best(unknown)):8.2f} ms for an unknown task, the first query")
    best_ms = [lap_ms(functools.partial(log.best, other_key(task=f"task{task}"))) for task in range(TASKS)]
    print(f"        {best_ms[0]:8.2f} ms for the first task, which has most records")
    print(f"        {statistics.median(best_ms):8.2f} ms median of {TASKS} tasks, {max(best_ms[1:]):.2f} at most")
    print(
        f"explain {lap_ms(lambda: log.explain_miss(other_key(task='task0', target='elsewhere'))):8.2f} ms for that task"
    )
    log.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, Path(folder) / "tuning.db")
