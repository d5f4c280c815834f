"""``tune replay``: strategies compared on recorded traces, over many seeds, in several processes.

Every job is (kind, place, name, seed). It is deterministic, except for the seconds that a strategy took here, so the
number of processes changes nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.contrib.replay.allocator_replay import (
    ONE_BY_ONE,
    ORACLE,
    Curve,
    allocate,
    final_latency,
    first_slots_s,
    one_by_one,
    oracle,
    pace_of,
    total_s,
)
from autotune.contrib.replay.recorded_runs import SearchRules, first_guesses
from autotune.contrib.replay.task_replay import SearchOutcome, calibrate, choose_best, search, sibling_results
from autotune.contrib.replay.trace import Trace, TraceFile, load_traces
from autotune.contrib.replay.trajectories import PartOfTrajectories, Trajectories
from autotune.host.process_limits import end_with_parent
from schedules.config import Config
from schedules.vocabulary.errors import UsageError
from search.allocators.allocation import SLOT

Place = tuple[int, int]
"""Number of a file and of a task in it."""

NEAR = (1.05, 1.02, 1.01, 1.005)
"""Factors of the best that are told. Convention."""

GUESSES: dict[str, Callable[[Trace], tuple[Config, ...]]] = {
    "all": first_guesses,
    "template": lambda trace: trace.space.initial,
    "none": lambda _: (),
}
"""First configs of every searcher, by name: the first guesses of a run, those of the template alone, or none."""

JOBS_AT_ONCE = 5
"""Most jobs sent to a process at once. Heuristic: sending is cheap beside a job, and processes should end together."""


@dataclass(frozen=True)
class ReplayRules:
    """The rules that a comparison holds fixed.

    Attributes:
        seeds: searches of each strategy on each trace.
        first_seed: seeds are counted from here.
        near: a config (or model) within such a factor of the best is near enough.
        trials: most trials of a task.
        warm: give searchers the results of sibling tasks in the same files.
        guesses: what every searcher begins with, one slot of it at most: one of ``GUESSES``.
        portfolio: all files are one model to the allocators.
        weights: of the files' latencies in a portfolio, by name; 1 where none is given.
        fitted: numbers of configs that cost models are fitted on.
        searcher: of the trajectories that allocators are compared on.
        processes: worker processes; 1 is this one alone.
    """

    seeds: int = 30
    first_seed: int = 0
    near: tuple[float, ...] = NEAR
    trials: int = 192
    warm: bool = False
    guesses: str = "all"
    portfolio: bool = False
    weights: Mapping[str, int] = field(default_factory=dict)
    fitted: tuple[int, ...] = (32, 128)
    searcher: str = SearchRules.searcher
    processes: int = 2


@dataclass(frozen=True)
class ModelOutcome:
    """Every allocator on one model, or one portfolio, with one seed.

    Attributes:
        curves: by allocator, the oracle's among them; for a portfolio its models one by one, too.
        final_s: the model's latency when every trajectory has run to its end.
        first_s: seconds that one slot of every task takes.
        total_s: seconds until every trajectory is at its end.
    """

    curves: dict[str, Curve]
    final_s: float
    first_s: float
    total_s: float

    def time_to(self, name: str, near: float) -> float:
        """Seconds until the model is within ``near`` of its final latency; twice the whole time if it never is."""
        return min(self.curves[name].time_to(near * self.final_s), 2.0 * self.total_s)

    def area(self, name: str) -> float:
        """Area under the latency over the final one, in seconds, from when every task could have had a slot."""
        return self.curves[name].area(self.final_s, self.first_s, self.total_s)


@dataclass(frozen=True)
class Job:
    """One unit of work: strategy ``name`` of a ``kind`` on the task or model at ``place``."""

    kind: str
    place: Place
    name: str
    seed: int


def _search(files: Sequence[TraceFile], rules: ReplayRules, job: Job) -> SearchOutcome:
    trace = files[job.place[0]].traces[job.place[1]]
    guesses = GUESSES[rules.guesses](trace)
    others = [other for file in files for other in file.traces] if rules.warm else []
    siblings = sibling_results(trace, others, np.random.default_rng([job.seed, 5]))
    return search(trace, job.seed, SearchRules(rules.trials, searcher=job.name), rules.near, siblings, guesses[:SLOT])


def _allocate(files: Sequence[TraceFile], rules: ReplayRules, job: Job) -> ModelOutcome:
    """Every allocator named in ``job.name`` (with commas), on the same trajectories where their slots are the same.

    The final latency is the least that any of the trajectories end at.
    """
    limits = SearchRules(min(rules.trials, SearchRules.trials), searcher=rules.searcher)
    paces = {name: pace_of(name) for name in job.name.split(",")}
    models = list(files) if rules.portfolio else [files[job.place[0]]]
    traces, parts = _joined([_weighted(model, rules.weights.get(model.name, 1)) for model in models])
    by_pace = {pace: Trajectories(traces, job.seed, replace(limits, pace=pace)) for pace in paces.values()}
    final_s = min(final_latency(trajectories) for trajectories in by_pace.values())
    curves = {name: allocate(by_pace[pace], name, job.seed, final_s) for name, pace in paces.items()}
    if rules.portfolio:
        name, pace = next(iter(paces.items()))
        alone = [PartOfTrajectories(by_pace[pace], places) for places in parts if places]
        curves[ONE_BY_ONE] = one_by_one([allocate(own, name, job.seed, final_latency(own)) for own in alone])
    curves[ORACLE] = oracle(list(by_pace.values()))
    first = next(iter(by_pace.values()))
    return ModelOutcome(curves, final_s, first_slots_s(first), total_s(first))


def _weighted(file: TraceFile, weight: int) -> list[Trace]:
    return [replace(trace, task=replace(trace.task, weight=weight * trace.task.weight)) for trace in file.traces]


def _joined(models: Iterable[Sequence[Trace]]) -> tuple[list[Trace], list[list[int]]]:
    """The tasks of all models, each once with the sum of its weights; and the numbers of those that each model brought.

    A task that several models have belongs to the first of them.
    """
    by_key: dict[str, Trace] = {}
    parts = []
    for traces in models:
        before = len(by_key)
        for trace in traces:
            known = by_key.get(trace.task.key)
            weight = trace.task.weight + (known.task.weight if known is not None else 0)
            by_key[trace.task.key] = replace(known or trace, task=replace(trace.task, weight=weight))
        parts.append(list(range(before, len(by_key))))
    return list(by_key.values()), parts


_KINDS: dict[str, Callable[[Sequence[TraceFile], ReplayRules, Job], Any]] = {
    "evaluator": lambda files, _, job: choose_best(files[job.place[0]].traces[job.place[1]], job.name, job.seed),
    "searcher": _search,
    "cost model": lambda files, rules, job: [
        calibrate(files[job.place[0]].traces[job.place[1]], job.name, job.seed, count) for count in rules.fitted
    ],
    "allocator": _allocate,
}


@lru_cache(maxsize=1)
def _load(paths: tuple[Path, ...]) -> list[TraceFile]:
    """The files at ``paths``, read once in every process."""
    return [load_traces(path) for path in paths]


def _run(paths: tuple[Path, ...], rules: ReplayRules, job: Job) -> Any:
    return _KINDS[job.kind](_load(paths), rules, job)


class Replay:
    """A comparison on trace files.

    Raises:
        UsageError: if there is no file, or one is no trace.
    """

    def __init__(self, paths: Sequence[Path], rules: ReplayRules) -> None:
        if not paths:
            raise UsageError("no trace given; name .npz files such as research/traces/conv3x3.npz")
        self._paths = tuple(paths)
        self.rules = rules
        self.files = _load(self._paths)

    def tasks(self) -> list[Place]:
        """Place of every task."""
        return [(f, t) for f, file in enumerate(self.files) for t in range(len(file.traces))]

    def label(self, place: Place) -> str:
        """A task's name for people: its file's, with its number where the file has several."""
        file = self.files[place[0]]
        return file.name if len(file.traces) == 1 else f"{file.name}/{place[1]}"

    def outcomes(self, kind: str, places: Iterable[Place], names: Sequence[str]) -> dict[str, dict[Place, list[Any]]]:
        """Name → place → outcomes, one for each seed."""
        rules = self.rules
        seeds = range(rules.first_seed, rules.first_seed + rules.seeds)
        jobs = [Job(kind, place, name, seed) for place in places for name in names for seed in seeds]
        work = partial(_run, self._paths, rules)
        if rules.processes == 1:
            outcomes = [work(job) for job in jobs]
        else:
            context = multiprocessing.get_context("spawn")
            ending = partial(end_with_parent, os.getpid())
            with ProcessPoolExecutor(rules.processes, mp_context=context, initializer=ending) as pool:
                outcomes = list(pool.map(work, jobs, chunksize=max(1, min(JOBS_AT_ONCE, len(jobs) // 16))))
        by_name: dict[str, dict[Place, list[Any]]] = {name: {} for name in names}
        for job, outcome in zip(jobs, outcomes, strict=True):
            by_name[job.name].setdefault(job.place, []).append(outcome)
        return by_name
