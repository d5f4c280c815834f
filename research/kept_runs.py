"""Whole runs of ``tune run``, kept small enough for the repository: what was tried of every task, and when slots ended.

A run that ended by itself and one that went on from its log to the end of the budget are kept as one, so that what a
certificate stated on the way can be compared with what came, again whenever the certificate changes.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.make_plan import UNTUNED
from autotune.tuning.job import FINAL, STAGE
from schedules.config import Config
from tuning_logs.sql_store import open_log

FOLDER = Path(__file__).parent / "runs"
DIGITS = 5
"""Significant digits of latencies: noise is a hundred times as large."""


@dataclass(frozen=True)
class KeptTask:
    """A task and what was tried of it, in order.

    Attributes:
        template: whose space it is; empty if nothing was tried.
        weight: of its latency in the model.
        bound_s: least seconds by the roofline.
        latencies_s: as the run saw them; None for a failed trial.
        true_s: by the last timing of each config, in turn with the other finalists where it was one; None for a failed
            trial.
    """

    template: str
    weight: int
    bound_s: float
    latencies_s: Sequence[float | None] = ()
    true_s: Sequence[float | None] = ()


@dataclass(frozen=True)
class KeptSlot:
    """A slot that ended.

    Attributes:
        elapsed_s: seconds of tuning until then.
        key: of its task.
        trials: of the task until then.
        exhausted: whether it found nothing left to try.
    """

    elapsed_s: float
    key: str
    trials: int
    exhausted: bool


@dataclass(frozen=True)
class KeptRun:
    """A run and the one that went on from it.

    Attributes:
        made: date, machine and commit.
        tasks: by key.
        slots: of both, in order.
    """

    model: str
    made: str
    tasks: Mapping[str, KeptTask]
    slots: Sequence[KeptSlot]


def collected(model: str, made: str, log: Path, events: Sequence[Path]) -> KeptRun:
    """What is kept of the runs whose ``--events`` are given in order, and of their log."""
    first, slots = _events(events)
    tried = _tried(log)
    tasks = {}
    for key, task in first.items():
        template, *latencies = tried.get(key, ("", (), ()))
        tasks[key] = KeptTask(template, task["weight"], 1e-6 * task["bound_us"], *latencies)
    return KeptRun(model, made, tasks, slots)


def write_run(run: KeptRun, path: Path) -> None:
    """Compressed JSON, the same bytes for the same run."""
    path.write_bytes(gzip.compress(json.dumps(asdict(run)).encode(), mtime=0))


def read_run(path: Path) -> KeptRun:
    """What ``write_run`` wrote."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    tasks = {key: KeptTask(**task) for key, task in data["tasks"].items()}
    return KeptRun(data["model"], data["made"], tasks, [KeptSlot(**slot) for slot in data["slots"]])


def kept_runs(folder: Path) -> Iterator[KeptRun]:
    """All of ``folder``, by the names of their files."""
    yield from map(read_run, sorted(folder.glob("*.json.gz")))


def _events(paths: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], list[KeptSlot]]:
    """Tasks by key as the first run announced them, and all slots."""
    tasks: dict[str, dict[str, Any]] = {}
    slots: list[KeptSlot] = []
    for path in paths:
        before_s = slots[-1].elapsed_s if slots else 0.0
        for event in map(json.loads, path.read_text().splitlines()):
            if event["event"] == "tuning_began" and not tasks:
                tasks = {task["key"]: task for task in event["tasks"]}
            elif event["event"] == "slot_done":
                elapsed_s = round(before_s + event["elapsed_s"], 3)
                slots.append(KeptSlot(elapsed_s, event["key"], event["trials"], event.get("measured") == 0))
    return tasks, slots


def _tried(path: Path) -> dict[str, tuple[str, list[float | None], list[float | None]]]:
    """Task key → its template, and latencies as ``KeptTask`` has them."""
    log = open_log(path)
    tried: dict[str, list[tuple[Config, float | None]]] = defaultdict(list)
    last: dict[str, dict[Config, float]] = defaultdict(dict)
    templates = {}
    for key in log.counts():
        if key.space == UNTUNED.identity:
            continue
        templates[key.task] = key.space.rpartition("/")[0]
        for record in log.records(key):
            latency_s = float(f"{record.measurement.latency_s:.{DIGITS}g}") if record.measurement.ok else None
            if record.provenance.get(STAGE) != FINAL:
                tried[key.task].append((record.config, latency_s))
            if latency_s is not None:
                last[key.task][record.config] = latency_s
    log.close()
    return {
        task: (
            templates[task],
            [latency_s for _, latency_s in configs],
            [last[task].get(config) for config, _ in configs],
        )
        for task, configs in tried.items()
    }
