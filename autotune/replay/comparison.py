"""``tune replay``: strategies compared on recorded traces, over many seeds, on two processes.

Every job is (kind, trace, name, seed) and is deterministic for it but for the seconds that thinking took here; so the
number of processes changes nothing.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.replay.allocator_replay import ORACLE, Curve, allocate, final_latency, oracle, rules_of, total_s
from autotune.replay.calibration_replay import CalibrationOutcome, calibrate
from autotune.replay.evaluator_replay import EvaluatorOutcome, choose_best
from autotune.replay.search_replay import Prior, SearchOutcome, SearchRules, prior_of, search
from autotune.replay.trace import Trace, TraceFile, load_traces
from autotune.replay.trajectories import CourseRules, Courses
from schedules.errors import UsageError


@dataclass(frozen=True)
class ReplayRules:
    """What a comparison holds fixed.

    Attributes:
        seeds: searches of each strategy on each trace.
        first_seed: seeds are counted from here.
        near: a config (or model) within this factor of the best is near enough.
        trials: most trials of a task.
        warm: give searchers what other tasks of the template in the same files have shown.
        blind: searchers do not get the templates' first guesses.
        fitted: numbers of configs that cost models are fitted on.
        searcher: of the courses that allocators are compared on.
        processes: worker processes; 1 is this one alone.
    """

    seeds: int = 30
    first_seed: int = 0
    near: float = 1.05
    trials: int = 192
    warm: bool = False
    blind: bool = False
    fitted: tuple[int, ...] = (32, 128)
    searcher: str = "adaptive"
    evaluator: str = "adaptive"
    cost_model: str = "boosted"
    processes: int = 2


@dataclass(frozen=True)
class ModelOutcome:
    """Every allocator on one model with one seed.

    Attributes:
        curves: by allocator, the oracle's among them.
        final_s: the model's latency when every course has run to its end.
        total_s: seconds until then.
    """

    curves: dict[str, Curve]
    final_s: float
    total_s: float


@dataclass(frozen=True)
class Job:
    """One unit of work: ``kind`` says which function, ``place`` which file (and task)."""

    kind: str
    place: tuple[int, int]
    name: str
    seed: int


class Stage:
    """The files and rules of a comparison, in every process that works on it."""

    def __init__(self, paths: Sequence[str], rules: ReplayRules) -> None:
        self.files = [load_traces(Path(path)) for path in paths]
        self.rules = rules

    def trace(self, job: Job) -> Trace:
        """The job's task."""
        return self.files[job.place[0]].traces[job.place[1]]

    def run(self, job: Job) -> Any:
        """The job's outcome."""
        return _KINDS[job.kind](self, job)

    def evaluate(self, job: Job) -> EvaluatorOutcome:
        """One tuning with the evaluator called ``job.name``."""
        return choose_best(self.trace(job), job.name, job.seed)

    def search(self, job: Job) -> SearchOutcome:
        """One search with the searcher called ``job.name``."""
        rules, trace = self.rules, self.trace(job)
        if rules.blind:
            trace = replace(trace, space=replace(trace.space, initial=()))
        limits = SearchRules(rules.trials, near=rules.near, evaluator=rules.evaluator, cost_model=rules.cost_model)
        prior: Prior = ()
        if rules.warm:
            others = [other for file in self.files for other in file.traces]
            prior = prior_of(trace, others, np.random.default_rng([job.seed, 5]))
        return search(trace, job.name, job.seed, limits, prior)

    def calibrate(self, job: Job) -> list[CalibrationOutcome | None]:
        """One fit for each of the rules' counts of the cost model called ``job.name``."""
        return [calibrate(self.trace(job), job.name, job.seed, count) for count in self.rules.fitted]

    def allocate(self, job: Job) -> ModelOutcome:
        """Every allocator named in ``job.name`` (with commas), on the same courses where their slots are the same.

        The final latency is the least that any of the courses end at; the oracle has the slots of the first named.
        """
        rules = self.rules
        limits = CourseRules(
            min(rules.trials, CourseRules.trials), searcher=rules.searcher, cost_model=rules.cost_model,
            evaluator=rules.evaluator,
        )  # fmt: skip
        names = job.name.split(",")
        wanted = {name: rules_of(name, limits) for name in names}
        traces = self.files[job.place[0]].traces
        courses = {each: Courses(traces, job.seed, each) for each in dict.fromkeys(wanted.values())}
        final_s = min(final_latency(each) for each in courses.values())
        curves = {name: allocate(courses[wanted[name]], name, job.seed, final_s) for name in names}
        first = courses[wanted[names[0]]]
        curves[ORACLE] = oracle(first)
        return ModelOutcome(curves, final_s, total_s(first))


_KINDS: dict[str, Callable[[Stage, Job], Any]] = {
    "evaluator": Stage.evaluate,
    "searcher": Stage.search,
    "cost model": Stage.calibrate,
    "allocator": Stage.allocate,
}

_stage: list[Stage] = []
"""This process's stage: loaded once by ``_open``, used by every job."""


def _open(paths: Sequence[str], rules: ReplayRules) -> None:
    _stage[:] = [Stage(paths, rules)]


def _run(job: Job) -> Any:
    return _stage[0].run(job)


class Replay:
    """A comparison on trace files.

    Raises:
        UsageError: if there is no file, or one is no trace.
    """

    def __init__(self, paths: Sequence[Path], rules: ReplayRules) -> None:
        if not paths:
            raise UsageError("no trace given; name .npz files such as tests/bench/traces/conv3x3.npz")
        self._paths = [str(path) for path in paths]
        self.rules = rules
        self._stage = Stage(self._paths, rules)

    @property
    def files(self) -> list[TraceFile]:
        """What was loaded."""
        return self._stage.files

    def tasks(self) -> list[tuple[int, int]]:
        """Place of every task."""
        return [(f, t) for f, file in enumerate(self.files) for t in range(len(file.traces))]

    def label(self, place: tuple[int, int]) -> str:
        """A task's name for people: its file's, with its number where the file has several."""
        file = self.files[place[0]]
        return file.name if len(file.traces) == 1 else f"{file.name}/{place[1]}"

    def outcomes(self, kind: str, places: Iterable[tuple[int, int]], names: Sequence[str]) -> dict[Job, Any]:
        """Outcome of every (place, name, seed)."""
        rules = self.rules
        seeds = range(rules.first_seed, rules.first_seed + rules.seeds)
        jobs = [Job(kind, place, name, seed) for place in places for name in names for seed in seeds]
        if rules.processes == 1:
            return {job: self._stage.run(job) for job in jobs}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            rules.processes, mp_context=context, initializer=_open, initargs=(self._paths, rules)
        ) as pool:
            return dict(zip(jobs, pool.map(_run, jobs, chunksize=max(1, min(5, len(jobs) // 16))), strict=True))
