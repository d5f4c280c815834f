"""``tune``: from an ONNX file to a verified artifact."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autotune.artifact.chain import read_chain
from autotune.artifact.directory import scratch_beside
from autotune.artifact.plan import UNTUNED, record_key
from autotune.build.lane_kernels import Kind, for_threads, plan_sizes
from autotune.backends.cpu.linking import check_compiler
from autotune.build.ship import Shipping
from autotune.build.ship_lanes import place_and_ship
from autotune.events import Observer, PhaseBegan, TuningBegan, TuningEnded, everyone, ignore
from autotune.graph.lanes import parse_lanes
from autotune.host.interruption import Interruption, remembering
from autotune.host.machine import host_target
from autotune.host.roofline import Peak, measure_peak
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import Candidate, Origin, Workshop, origins_of
from autotune.measure.remote.connect import Fleet
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.options import Options, default_log
from autotune.tuning.existing_log import check_frozen
from autotune.tuning.fallback_partitions import needs_islands, tune_around
from autotune.tuning.job import Job, wall_s
from autotune.tuning.loop import Session
from autotune.tuning.multi_shape import tune_sets
from autotune.tuning.preload import preload
from autotune.build.reuse import Reuse
from autotune.tuning.run_history import Recorder, Run, earlier_runs, remember, stories
from autotune.tuning.sibling_tasks import Renewal
from autotune.validation.reference_engine import peer_latency
from autotune.validation.verify import Verdict
from schedules.lower import BASELINE
from schedules.target import Target
from search.allocation import TaskState
from search.allocator_catalog import make_allocator
from search.remaining import Remaining, RemainingGain, together
from search.searcher import SearchContext
from search.searcher_catalog import make_searcher
from search.stopping import Limits
from tuning_logs.log import TuningLog
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import open_log

logger = logging.getLogger(__name__)

MOST_COLD_BYTES = 1 << 30
"""Beyond this nothing gets colder, and the memory would be wasted."""

GROWTH = 4
"""Times that Winograd's weights are as large at most, (4 + 2)² numbers for 3². A heuristic: as if all were; with an
arena of the model's own 30 MB, F(4,3) was timed at 184 µs that took 316 in the model, whose weights then were 92."""

SETTLING = 0.05
"""Share of the budget kept for timing the finalists."""

NEARLY_SPENT = 0.08
"""Share of the budget below which a resumed run does not start another slot."""


@dataclass
class Result:
    """What a run did; the fields of ``tune run --json``."""

    model: str
    artifact: Path
    target: str
    threads: int
    tasks: int
    measured_trials: int = 0
    failed_trials: int = 0
    reused_records: int = 0
    elapsed_s: float = 0.0
    phase_s: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float | None] = field(default_factory=dict)
    verified: Verdict | None = None
    reason: str = ""
    remaining: Remaining | None = None
    interrupted: bool = False
    states: tuple[TaskState, ...] = ()
    parts: tuple[Result, ...] = ()
    islands: tuple[tuple[str, ...], ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As in ``tune run --json``; a run for several sets of shapes, or around islands, has an entry for each."""
        several = "segments" if self.islands else "specialisations"
        parts: dict[str, Any] = {several: [part.to_data() for part in self.parts]} if self.parts else {}
        if self.islands:
            parts["islands"] = [list(operators) for operators in self.islands]
        return {
            **parts,
            "model": self.model,
            "artifact": str(self.artifact),
            "target": self.target,
            "threads": self.threads,
            "tasks": self.tasks,
            "measured_trials": self.measured_trials,
            "failed_trials": self.failed_trials,
            "reused_records": self.reused_records,
            "elapsed_s": self.elapsed_s,
            "phase_s": self.phase_s,
            "latency_ms": {"untuned": None, "tuned": None, **self.latency_ms},
            "verified": None if self.verified is None else asdict(self.verified),
            "reason": self.reason,
            "remaining_gain": None if self.remaining is None else self.remaining.to_data(),
            "interrupted": self.interrupted,
        }


class _Clock:
    """Wall-clock seconds per phase."""

    def __init__(self, observe: Observer) -> None:
        self.phase_s = dict.fromkeys(("import", "search", "compile", "measure", "build", "verify"), 0.0)
        self._observe = observe

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the body to ``name``."""
        self._observe(PhaseBegan(name))
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phase_s[name] += time.perf_counter() - began


def resolve_target(options: Options) -> Target:
    """The machine to tune for."""
    if options.target is not None:
        return options.target
    return host_target(options.threads, options.isa)


def load_program(model_path: Path, options: Options, target: Target) -> tuple[onnx.ModelProto, Program]:
    """The checked model and its fused program."""
    return import_model(model_path, options.inputs, target)


def output_path(model_path: Path, options: Options) -> Path:
    """Where the artifact goes."""
    return options.out if options.out is not None else Path(f"{model_path.stem}.tuned")


def tune(model: str | Path, options: Options | None = None, observe: Observer = ignore) -> Result:
    """Tune ``model``, build and verify the artifact.

    Raises:
        AutotuneError: with one line for people: a bad model, option, log or artifact folder, a miss in a frozen run,
            or outputs that differ from the reference.
    """
    options = options or Options()
    model_path = Path(model)
    if options.frozen:
        check_frozen(options.log)
    if options.shapes:
        return _for_sets(model_path, options, observe)
    if options.fallback and needs_islands(model_path, options, resolve_target(options)):
        return _with_islands(model_path, options, observe)
    return tune_one(model_path, options, observe)


def tune_one(model_path: Path, options: Options, observe: Observer, interrupted: bool = False) -> Result:
    """Tune for one set of shapes, all of the model.

    Args:
        interrupted: by Ctrl-C in an earlier part: what the log has is built and verified, and nothing measured.
    """
    began = time.perf_counter()
    recorder = Recorder()
    shown, observe = observe, everyone(recorder, observe)
    clock = _Clock(observe)
    check_compiler()
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(options)) if options.remote else None
        whole = resolve_target(options) if fleet is None else fleet.target
        lanes = parse_lanes(options.lanes, whole.threads)
        target = replace(whole, threads=max(lane.threads for lane in lanes))
        # Started before the import: workers need a second or two to load TVM.
        measurer: Workshop
        if fleet is None:
            measurer = stack.enter_context(LocalMeasurer(target, evaluator=options.evaluator, seed=options.seed))
        else:
            measurer = fleet.measurer
        loading = None if options.frozen else preload(options.cost_model)
        with clock.phase("import"):
            onnx_model, program = load_program(model_path, options, target)
            sizes = plan_sizes(program, whole, lanes, options)
            log = open_log(options.log if options.log is not None else default_log())
            stack.callback(log.close)
        result = Result(
            model_path.name, output_path(model_path, options), whole.fingerprint, whole.threads, len(program.tasks)
        )
        result.interrupted = interrupted
        if interrupted:
            result.reason = "interrupted"
        if not options.frozen:
            measurer.cold_bytes = cold_bytes(program)
            with scratch_beside(result.artifact):  # before anything is tuned for a place that cannot be written
                pass
            earlier = earlier_runs(result.artifact, model_path, target)
        if not (options.frozen or interrupted):
            if options.peer and (
                peer := peer_latency(onnx_model, program.inputs, target.threads, options.seed, earlier)
            ):
                observe(peer)
            own = replace(options, budget_s=options.seconds * sizes[target.threads].share)
            if loading is not None:
                loading.join()
            _search(result, program, target, log, measurer, own, clock, observe, recorder.run)
        kinds = {target.threads: Kind(target, program, sizes[target.threads].tasks, measurer)}
        for threads, size in sizes.items():
            if threads in kinds or result.interrupted:
                continue
            other = replace(whole, threads=threads)
            workshop = stack.enter_context(LocalMeasurer(other, evaluator=options.evaluator, seed=options.seed))
            kinds[threads] = Kind(other, for_threads(program, other), size.tasks, workshop)
            if not options.frozen:
                workshop.cold_bytes = measurer.cold_bytes
                own = replace(options, budget_s=options.seconds * size.share)
                _search(result, kinds[threads].tunable, other, log, workshop, own, clock, shown, Run())
        hurry = result.interrupted or (fleet is not None and bool(fleet.foreign))
        with clock.phase("build"):
            job = Shipping(onnx_model, program, whole, log, measurer, model_path, options, hurry)
            shipped = place_and_ship(result.artifact, job, kinds, lanes)
    clock.phase_s["build"] -= shipped.verify_s
    clock.phase_s["verify"] += shipped.verify_s
    result.verified, result.latency_ms = shipped.verdict, shipped.latency_ms
    result.phase_s = clock.phase_s
    result.elapsed_s = time.perf_counter() - began
    if not options.frozen:
        remember(result.artifact, recorder.run, result.to_data(), options, earlier)
    return result


def cold_bytes(program: Program) -> int:
    """Bytes that the weights may take in the artifact: what each kernel's own were last touched before."""
    grown = 0
    for task in program.tasks:
        if program.spaces[task.key].saving > 1:
            largest = max((math.prod(task.shapes[index]) for index in task.constants), default=0)
            grown += (GROWTH - 1) * task.weight * largest * np.dtype(np.float32).itemsize
    return min(MOST_COLD_BYTES, sum(array.nbytes for array in program.weights) + grown)


def _for_sets(model: Path, options: Options, observe: Observer) -> Result:
    out = output_path(model, options)
    parts = tune_sets(model, out, options, lambda path, own, interrupted: tune_one(path, own, observe, interrupted))
    return combined(out, [replace(part, artifact=out / f"part-{number}") for number, part in enumerate(parts)])


def _with_islands(model: Path, options: Options, observe: Observer) -> Result:
    out, target = output_path(model, options), resolve_target(options)
    began = time.perf_counter()
    parts, islanded = tune_around(
        model, out, options, target, lambda path, own, interrupted: tune_one(path, own, observe, interrupted)
    )
    places = [link.path for link in read_chain(out).tuned]
    return replace(
        combined(out, [replace(part, artifact=place) for part, place in zip(parts, places, strict=True)]),
        model=model.name,
        elapsed_s=time.perf_counter() - began,
        latency_ms={"tuned": islanded.latency_ms},
        verified=islanded.verdict,
        islands=islanded.operators,
    )


def combined(out: Path, parts: list[Result]) -> Result:
    """One result of several parts: counts, times and what is left to gain added, the worst error, every reason.

    The latency is the first part's.
    """
    verdicts = [part.verified for part in parts if part.verified is not None]
    worst = max(verdicts, key=lambda verdict: (not verdict.passed, verdict.max_rel_err), default=None)
    first = parts[0]
    return replace(
        first,
        artifact=out,
        tasks=sum(part.tasks for part in parts),
        measured_trials=sum(part.measured_trials for part in parts),
        failed_trials=sum(part.failed_trials for part in parts),
        reused_records=sum(part.reused_records for part in parts),
        elapsed_s=sum(part.elapsed_s for part in parts),
        phase_s={name: sum(part.phase_s[name] for part in parts) for name in first.phase_s},
        verified=worst,
        reason="; ".join(dict.fromkeys(part.reason for part in parts if part.reason)),
        remaining=together([part.remaining for part in parts]),
        interrupted=any(part.interrupted for part in parts),
        states=tuple(state for part in parts for state in part.states),
        parts=tuple(parts),
    )


def build(model: str | Path, options: Options | None = None, observe: Observer = ignore) -> Result:
    """Build and verify the artifact of ``model`` from the log alone; nothing is measured.

    Raises:
        MissingRecordError: if the log lacks a task, naming each and why.
        AutotuneError: as ``tune``.
    """
    return tune(model, replace(options or Options(), frozen=True), observe)


def _search(
    result: Result,
    program: Program,
    target: Target,
    log: TuningLog,
    measurer: Workshop,
    options: Options,
    clock: _Clock,
    observe: Observer,
    story: Run,
) -> None:
    """Run the loop; fills ``result`` and ``story`` in place. Ctrl-C ends the loop and is remembered, not raised."""
    began = time.perf_counter()
    peak = peak_of(measurer, target)
    jobs, spent_s, reused = open_jobs(program, target, log, options, peak)
    interruption = Interruption()
    limits = Limits(budget_s=options.seconds * (1.0 - SETTLING), trials=options.trials)
    if options.seconds - spent_s < NEARLY_SPENT * options.seconds:
        spent_s = options.seconds
    fresh = [job for job in jobs.values() if not job.state.trials]
    fresh.sort(key=lambda job: job.task.weight * job.task.flop, reverse=True)  # as ``expected-cut`` serves them
    measurer.expect(job.candidate(BASELINE) for job in fresh)
    session = Session(
        jobs,
        make_allocator(options.allocator, np.random.default_rng(options.seed)),
        measurer,
        log,
        limits,
        options.batch,
        time.perf_counter,
        observe,
        spent_s,
        RemainingGain(np.random.default_rng([options.seed, 1])),
        options.until,
        interruption,
    )
    states = tuple(job.state for job in jobs.values())
    observe(TuningBegan(tuple(job.task for job in jobs.values()), states, max(0.0, options.seconds - spent_s)))
    try:
        with remembering(interruption):
            result.reason = session.run()
            session.settle(began + max(0.0, options.seconds - spent_s))
            _keep_untuned(program, target, log, measurer, options.seed, interruption)
            interruption.check()  # swallowed in what was measured last
    except KeyboardInterrupt:
        result.reason, result.interrupted = "interrupted", True
    if session.certificate is not None:
        result.remaining = session.certificate.estimate([job.state for job in jobs.values()])
    observe(TuningEnded(result.reason))
    story.peak = asdict(peak)
    story.tasks = stories(jobs, {state.key: (state.trials, state.best_s) for state in states}, log, target)
    now = tuple(job.state for job in jobs.values())
    result.states += now
    result.reused_records += reused
    result.measured_trials += sum(state.trials for state in now) - sum(state.trials for state in states)
    failed = sum(state.latencies_s.count(None) for state in now)
    result.failed_trials += failed - sum(state.latencies_s.count(None) for state in states)
    clock.phase_s["compile"] += measurer.compile_s
    clock.phase_s["measure"] += measurer.measure_s
    clock.phase_s["search"] += time.perf_counter() - began - measurer.compile_s - measurer.measure_s


def _keep_untuned(
    program: Program, target: Target, log: TuningLog, measurer: Workshop, seed: int, interruption: Interruption
) -> None:
    """Record how every task runs untuned, where the log does not say: what tuning has to beat."""
    for task in program.tasks:
        interruption.check()
        key = record_key(task, UNTUNED, target)
        if log.best(key) is None:
            measured = measurer.baseline_s(Candidate(task, program.programs[task.key], BASELINE))
            (origin,) = origins_of(measurer) or [Origin(platform.node())]
            when, provenance = time.time(), origin.provenance
            log.append([TuningRecord(key, BASELINE, measured, "", when, origin.host, seed, provenance)])


def peak_of(measurer: Workshop, target: Target) -> Peak:
    """The best of where ``measurer`` measures."""
    return measurer.peak() if isinstance(measurer, FleetMeasurer) else measure_peak(target)


def open_jobs(
    program: Program, target: Target, log: TuningLog, options: Options, peak: Peak
) -> tuple[dict[str, Job], float, int]:
    """A job per tunable task with what the log knows of it; the seconds spent on them so far, and the records used."""
    log.add_target(target)
    tunable = [task for task in program.tasks if program.spaces[task.key].knobs]
    for task in tunable:
        log.add_workload(task.key, program.programs[task.key])
    keys = {task.key: record_key(task, program.spaces[task.key], target) for task in tunable}
    known = {task.key: list(log.records(keys[task.key])) for task in tunable}
    spent_s = sum(wall_s(record) for records in known.values() for record in records)
    # Neighbours are for what is still to be tried: a run that only confirms an earlier one does not look for them.
    reuse = Reuse(log, target) if spent_s < (1.0 - NEARLY_SPENT) * options.seconds else None
    jobs: dict[str, Job] = {}
    for index, task in enumerate(program.tasks):
        if task.key not in keys:
            continue
        key, space = keys[task.key], program.spaces[task.key]
        rng = np.random.default_rng([options.seed, index])
        context = SearchContext(space, rng, options.cost_model)
        if reuse is not None:
            nearness = reuse.near(task, key)
            context = replace(context, space=reuse.guided(space, nearness), prior=reuse.prior(nearness))
        searcher = make_searcher(options.searcher, context)
        bound_s = peak.bound_s(int(task.flop / space.saving), task.bytes)
        provenance = {"evaluator": options.evaluator}
        renewal = Renewal(options.searcher, context, task, jobs, program.spaces)
        jobs[task.key] = Job(
            task, program.programs[task.key], key, searcher, bound_s, options.seed, provenance, renewal
        )
        jobs[task.key].resume(known[task.key])
    return jobs, spent_s, sum(map(len, known.values()))
