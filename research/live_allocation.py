"""``python -m research.live_allocation MODEL.onnx …``: allocators compared by runs of ``tune run`` on this machine.

Each allocator tunes each model from an empty log and an empty cache for the whole budget, one after the other, in an
order that turns with the model. Then every config that was ever the best of its task in one of the runs is timed once
more, in turn with the others of that task. By these timings, which all runs share, a run's latency is the weighted sum
over the tasks of its best config so far. Printed are the seconds of tuning until it stays within 5, 2 and 1 % of the
least that any of the runs reached, how far above that it ended, and their geometric means. A run that never comes so
near counts with its budget and is marked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from autotune.artifact.make_plan import UNTUNED
from autotune.host.machine import host_target
from autotune.importer.guarded_import import import_model
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Candidate
from autotune.tuning.job import FINAL, STAGE
from autotune.tuning.search_program import cold_bytes
from research.kept_runs import collected, write_run
from schedules.config import Config
from search.allocators.allocator_catalog import DEFAULT_ALLOCATOR
from tuning_logs.sql_store import open_log

NEAR = (1.05, 1.02, 1.01)
RIVALS = (DEFAULT_ALLOCATOR, "round-robin-paced")
ROUNDS = 3
"""Timings in turn of all configs of a task; the median counts."""

Best = Mapping[str, Sequence[tuple[float, Config]]]
"""Task key → seconds of tuning, and the config that was the best from then on."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.live_allocation", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--allocators", default=",".join(RIVALS))
    parser.add_argument("--budget-s", type=float, default=75.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the runs, as research/kept_runs.py writes them")
    options = parser.parse_args()
    allocators = options.allocators.split(",")
    all_seconds = []
    for number, model in enumerate(options.models):
        turned = [*allocators[number % len(allocators) :], *allocators[: number % len(allocators)]]
        with tempfile.TemporaryDirectory() as folder:
            for allocator in turned:
                tune(model, allocator, options.budget_s, options.seed, Path(folder))
            runs = {name: bests(Path(folder) / f"{name}.db", Path(folder) / f"{name}.events") for name in allocators}
            if options.keep:
                for name in allocators:
                    keep(options.keep, model, name, options.seed, Path(folder))
        latency_s = true_latencies(model, runs)
        rows = seconds(runs, latency_s, options.budget_s)
        all_seconds.append(rows)
        ends_s = [curve(runs[name], latency_s)[-1][1] for name in allocators]
        for name, row, end_s in zip(allocators, rows, ends_s, strict=True):
            cells = " ".join(cell(one, options.budget_s) for one in row)
            print(f"{model.stem:24} {name:20} {cells} ended at {end_s / min(ends_s):.3f}", flush=True)
    means = np.exp(np.log(np.array(all_seconds)).mean(axis=0))
    for name, row in zip(allocators, means, strict=True):
        ratios = " ".join(f"{one:.2f}" for one in row / means[0])
        print(f"{'geometric mean':24} {name:20}", *(f"{one:7.1f} " for one in row), f"times the first: {ratios}")


def cell(seconds_to: float, budget_s: float) -> str:
    """One number of a row; ``+`` if the run never came so near."""
    return f"{seconds_to:7.1f}{'+' if seconds_to >= budget_s else ' '}"


def tune(model: Path, allocator: str, budget_s: float, seed: int, folder: Path) -> None:
    """One run from an empty log and an empty cache, which leaves ``allocator``'s log and events in ``folder``."""
    command = [sys.executable, "-m", "autotune", "run", str(model), "--until", "never", "--budget", f"{budget_s:g}s"]
    command += ["--allocator", allocator, "--seed", str(seed), "--no-peer", "--quiet"]
    command += ["--log", str(folder / f"{allocator}.db"), "--events", str(folder / f"{allocator}.events")]
    with tempfile.TemporaryDirectory() as cache:
        command += ["--out", str(Path(cache) / "out.tuned")]
        subprocess.run(command, check=True, env={**os.environ, "XDG_CACHE_HOME": cache}, stdout=subprocess.DEVNULL)


def keep(kept: Path, model: Path, allocator: str, seed: int, folder: Path) -> None:
    """Write a run for ``research.until`` and ``research.kept_allocation``."""
    log, events = folder / f"{allocator}.db", folder / f"{allocator}.events"
    run = collected(model.stem, f"{allocator}, seed {seed}, {host_target().fingerprint}", log, [events])
    kept.mkdir(parents=True, exist_ok=True)
    write_run(run, kept / f"{model.stem}.{allocator}.{seed}.json.gz")


def bests(log_path: Path, events: Path) -> Best:
    """The best configs so far of each task of one run."""
    log = open_log(log_path)
    tried: dict[str, list[tuple[Config, float]]] = defaultdict(list)
    for key in log.counts():
        if key.space != UNTUNED.identity:
            for record in log.records(key):
                if record.provenance.get(STAGE) != FINAL:
                    valid = record.measurement.ok
                    tried[key.task].append((record.config, record.measurement.latency_s if valid else np.inf))
    log.close()
    found: dict[str, list[tuple[float, Config]]] = defaultdict(list)
    for task, count, elapsed_s in slots(events):
        known = tried[task][:count]
        if known and np.isfinite(min(latency for _, latency in known)):
            config = min(known, key=lambda one: one[1])[0]
            if not found[task] or found[task][-1][1] != config:
                found[task].append((elapsed_s, config))
    return found


def slots(events: Path) -> Iterator[tuple[str, int, float]]:
    """Task, its trials so far and the seconds of tuning at the end of each slot."""
    for event in map(json.loads, events.read_text().splitlines()):
        if event["event"] == "slot_done":
            yield event["key"], event["trials"], event["elapsed_s"]


def true_latencies(model: Path, runs: Mapping[str, Best]) -> dict[tuple[str, Config], float]:
    """Weighted latency in the model of each config that was once the best of its task, timed in turn."""
    target = host_target()
    _, program = import_model(model, {}, target)
    latency_s = {}
    with LocalMeasurer(target) as measurer:
        measurer.cold_bytes = cold_bytes(program)
        for task in program.tasks:
            configs = list(dict.fromkeys(config for run in runs.values() for _, config in run.get(task.key, ())))
            candidates = [Candidate(task, program.programs[task.key], config) for config in configs]
            timed = [measurer.rank(candidates) for _ in range(ROUNDS)] if candidates else []
            for number, config in enumerate(configs):
                middle_s = np.median([one[number].latency_s for one in timed if one[number].ok] or [np.inf])
                latency_s[task.key, config] = task.weight * float(middle_s)
    return latency_s


def seconds(
    runs: Mapping[str, Best], latency_s: Mapping[tuple[str, Config], float], budget_s: float
) -> list[list[float]]:
    """Seconds until each run stays within each of ``NEAR`` of the least latency of all runs; ``budget_s`` if never."""
    curves = [curve(run, latency_s) for run in runs.values()]
    least_s = min(latency for points in curves for _, latency in points)
    rows = []
    for points in curves:
        late = [[number for number, (_, latency) in enumerate(points) if latency > near * least_s] for near in NEAR]
        firsts = [numbers[-1] + 1 if numbers else 0 for numbers in late]
        rows.append([points[first][0] if first < len(points) else budget_s for first in firsts])
    return rows


def curve(run: Best, latency_s: Mapping[tuple[str, Config], float]) -> list[tuple[float, float]]:
    """Seconds of tuning and the model's latency, from when every task has a kernel."""
    changes = sorted((when, key, config) for key, found in run.items() for when, config in found)
    current: dict[str, float] = {}
    points = []
    for when, key, config in changes:
        current[key] = min(latency_s[key, config], current.get(key, np.inf))
        if len(current) == len(run):
            points.append((when, sum(current.values())))
    return points


if __name__ == "__main__":
    main()
