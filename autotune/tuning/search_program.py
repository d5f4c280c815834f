"""Search the configs of one program's tasks: open the jobs with what the log knows, run the loop, settle, summarise."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from autotune.artifact.make_plan import UNTUNED, record_key
from autotune.builder.reuse import Reuse
from autotune.events import Observer, TuningBegan, TuningEnded
from autotune.host.interruption import Interruption, remembering
from autotune.host.roofline import Roofline
from autotune.importer.program import Program
from autotune.measure.measurer import Candidate, MeasurementBackend, Origin
from autotune.options import Options
from autotune.tuning.job import Job, KernelTask, wall_s
from autotune.tuning.loop import TuningLoop
from schedules.lower import BASELINE
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from search.allocators.allocation import TaskState
from search.allocators.allocator_catalog import make_allocator
from search.allocators.remaining import Remaining, remaining_gain
from search.allocators.stopping import Limits
from search.searchers.searcher import SearchContext
from search.searchers.searcher_catalog import make_searcher
from search.searchers.warm_restart import WarmRestart
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog

SETTLING_SHARE = 0.05
"""Share of the budget kept for timing the finalists. Heuristic."""

UNTUNED_SHARE = 0.1
"""Share of the budget, beyond its end, in which tasks without a slot may be timed untuned, which reports want.
Heuristic: without an end, SSDLite (156 tasks, nothing compiled before) was tuned for 17 s of a budget of 5, and for 6
with this."""

NEARLY_SPENT_SHARE = 0.08
"""Share of the budget below which a resumed run starts no other slot. Heuristic: a slot and its finalists could not end
in what is left."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JoinedTasks:
    """The kernels of several programs, each once.

    Attributes:
        tasks: with the weights of all programs that have them added up, most work first.
        programs, spaces: as in ``Program``.
    """

    tasks: tuple[Task, ...]
    programs: Mapping[str, str]
    spaces: Mapping[str, Space]


@dataclass(frozen=True)
class SearchRequest:
    """The program to search, its machine and its budget.

    Attributes:
        options: strategies, seed, limits; its budget is this search's own.
        roofline: gives the bounds of the machine that measures; asked when the search begins, since it may have to be
            measured.
    """

    program: Program | JoinedTasks
    target: Target
    log: TuningLog
    measurer: MeasurementBackend
    options: Options
    roofline: Callable[[Target], Roofline]


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search.

    Attributes:
        reason: why it ended, in words.
        interrupted: by Ctrl-C.
        remaining: bound of what more tuning would bring.
        before, after: state of every tunable task, in order.
        jobs: task key → its history.
        roofline: bounds of the machine that measured.
        phase_s: seconds of ``search``, ``compile`` and ``measure``.
    """

    reason: str
    interrupted: bool
    remaining: Remaining
    before: tuple[TaskState, ...]
    after: tuple[TaskState, ...]
    jobs: Mapping[str, Job]
    roofline: Roofline
    phase_s: Mapping[str, float]

    @property
    def measured_trials(self) -> int:
        """Trials of this search."""
        return sum(state.trials for state in self.after) - sum(state.trials for state in self.before)

    @property
    def reused_records(self) -> int:
        """Records of these tasks that the log held before."""
        return sum(job.reused_records for job in self.jobs.values())

    def of(self, tasks: Iterable[Task]) -> SearchOutcome:
        """Return the outcome for ``tasks`` alone; time and what remains are still those of the whole."""
        keys = {task.key for task in tasks}
        return replace(
            self,
            before=tuple(state for state in self.before if state.key in keys),
            after=tuple(state for state in self.after if state.key in keys),
            jobs={key: job for key, job in self.jobs.items() if key in keys},
        )

    @property
    def failed_trials(self) -> int:
        """Trials of this search without a latency."""
        after, before = (sum(state.latencies_s.count(None) for state in states) for states in (self.after, self.before))
        return after - before


def search_program(request: SearchRequest, observe: Observer) -> SearchOutcome:
    """Search within the request's budget. Ctrl-C ends the search and is reported in the outcome, not raised."""
    began = time.perf_counter()
    options, measurer = request.options, request.measurer
    before_s = (measurer.compile_s, measurer.measure_s)
    roofline = request.roofline(request.target)
    jobs, spent_s = _open_jobs(request, roofline)
    left_s = max(0.0, options.seconds - spent_s)
    if left_s < NEARLY_SPENT_SHARE * options.seconds:
        left_s = 0.0
    _announce(jobs.values(), measurer)
    interruption = Interruption()
    limits = Limits(budget_s=options.seconds * (1.0 - SETTLING_SHARE), trials=options.trials)
    loop = TuningLoop(
        jobs,
        make_allocator(options.allocator, np.random.default_rng(options.seed)),
        measurer,
        request.log,
        limits,
        options.batch,
        time.perf_counter,
        observe,
        options.seconds - left_s,
        options.enough,
        interruption,
        measurer.at_once,
    )
    before = _states(jobs)
    observe(TuningBegan(tuple(job.task for job in jobs.values()), before, left_s))
    interrupted, reason = False, ""
    try:
        with remembering(interruption):
            reason = loop.run()
            loop.settle(began + left_s)
            served = {state.key for state in _states(jobs) if state.trials}
            _measure_untuned(request, served, began + left_s + UNTUNED_SHARE * options.seconds, interruption)
            interruption.check()  # Ctrl-C that was swallowed in what was measured last
    except KeyboardInterrupt:
        interrupted, reason = True, "interrupted"
    after = _states(jobs)
    remaining = remaining_gain(after, limits)
    observe(TuningEnded(reason))
    compile_s, measure_s = measurer.compile_s - before_s[0], measurer.measure_s - before_s[1]
    search_s = time.perf_counter() - began - compile_s - measure_s
    phase_s = {"compile": compile_s, "measure": measure_s, "search": search_s}
    return SearchOutcome(reason, interrupted, remaining, before, after, jobs, roofline, phase_s)


def _states(jobs: Mapping[str, Job]) -> tuple[TaskState, ...]:
    return tuple(job.state for job in jobs.values())


def _open_jobs(request: SearchRequest, roofline: Roofline) -> tuple[dict[str, Job], float]:
    """Jobs by task key, of every task that has a choice, and the seconds that earlier runs spent on them."""
    program, log, target, options = request.program, request.log, request.target, request.options
    log.add_target(target)
    kernels = {}
    for task in program.tasks:
        space = program.spaces[task.key]
        if space.knobs:
            text = program.programs[task.key]
            log.add_workload(task.key, text)
            bound_s = roofline.bound_s(int(task.flop / space.saving), task.bytes, task.operands)
            kernels[task.key] = KernelTask(task, text, record_key(task, space, target), space, bound_s)
    known = {key: list(log.records(kernel.key, kernel.space)) for key, kernel in kernels.items()}
    counted = (records for key, records in known.items() if key not in options.elsewhere)
    spent_s = sum(wall_s(record) for records in counted for record in records)
    # Similar tasks help with what is still to be tried: a run that only confirms an earlier one does not look for them.
    reuse = Reuse(log, target) if spent_s < (1.0 - NEARLY_SPENT_SHARE) * options.seconds else None
    jobs = {}
    for index, task in enumerate(program.tasks):
        if task.key in kernels:
            context = _context(kernels[task.key], options, reuse, index)
            searcher = make_searcher(options.searcher, context)
            jobs[task.key] = Job(
                kernels[task.key],
                searcher,
                options.seed,
                {"evaluator": options.evaluator},
                WarmRestart(options.searcher, context),
            )
            jobs[task.key].resume(known[task.key])
    return jobs, spent_s


def _context(kernel: KernelTask, options: Options, reuse: Reuse | None, index: int) -> SearchContext:
    """Return the facts that a searcher knows before its first trial.

    Args:
        index: of the task in the program: every task has random numbers of its own.
    """
    context = SearchContext(kernel.space, np.random.default_rng([options.seed, index]), options.cost_model)
    if reuse is None:
        return context
    nearness = reuse.near(kernel.task, kernel.key)
    known = reuse.posterior(kernel.space, nearness)
    siblings = () if known else reuse.siblings(nearness)  # in the posterior already
    return replace(context, space=reuse.guided(kernel.space, nearness), template=known, siblings=siblings)


def _announce(jobs: Iterable[Job], measurer: MeasurementBackend) -> None:
    """Let the measurer build untuned programs of new tasks ahead, in the order in which tasks are served first."""
    fresh = [job for job in jobs if not job.state.trials]
    fresh.sort(key=lambda job: job.task.weight * job.task.flop, reverse=True)
    measurer.expect(job.candidate(BASELINE) for job in fresh)


def _measure_untuned(
    request: SearchRequest, served: Collection[str], deadline: float, interruption: Interruption
) -> None:
    """Record how every task runs untuned, where the log does not say: what tuning has to beat.

    Args:
        served: tasks that had a slot. Their untuned programs were timed for it.
        deadline: by ``time.perf_counter``; from then on other tasks, those of less work, are left without.
    """
    program, log, measurer = request.program, request.log, request.measurer
    untuned = ((task, record_key(task, UNTUNED, request.target)) for task in program.tasks)
    missing = [task for task, key in untuned if log.best(key, UNTUNED) is None]
    missing.sort(key=lambda task: task.key not in served)
    candidates = [Candidate(task, program.programs[task.key], BASELINE) for task in missing]
    measurer.expect(candidates)
    for task, candidate in zip(missing, candidates, strict=True):
        interruption.check()
        if task.key not in served and time.perf_counter() >= deadline:
            return
        measured = measurer.baseline_s(candidate)
        (origin,) = measurer.origins or [Origin(platform.node())]
        key = record_key(task, UNTUNED, request.target)
        record = TuningRecord(
            key, BASELINE, measured, "", time.time(), origin.host, request.options.seed, origin.provenance
        )
        log.append([record])


MAX_COLD_BYTES = 1 << 30
"""Most memory by which weights are kept cold between runs, bytes: beyond it nothing gets colder."""

WINOGRAD_GROWTH = 4
"""Times that Winograd's weights are as large as the model's at most: (4 + 2)² numbers for 3². With an arena of the
model's own 30 MB, F(4,3) was timed at 184 µs and took 316 µs in the model, whose weights then were 92 MB."""


def cold_bytes(program: Program) -> int:
    """Bytes that the weights may take in the artifact: so much data is touched between two uses of a kernel's own."""
    grown = 0
    for task in program.tasks:
        if program.spaces[task.key].saving > 1:
            largest = max((math.prod(task.shapes[index]) for index in task.constants), default=0)
            grown += (WINOGRAD_GROWTH - 1) * task.weight * largest * np.dtype(np.float32).itemsize
    return min(MAX_COLD_BYTES, sum(array.nbytes for array in program.weights) + grown)
