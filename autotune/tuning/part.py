"""Tune one part: models with one set of shapes each for one target, from ONNX files to verified artifacts.

A part is one model as a rule. Several models of one part share the machine, the log and one budget (``portfolio.py``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from autotune.artifact.known_runs import LogView
from autotune.artifact.replacement import scratch_beside
from autotune.backends.backend_catalog import backend_of
from autotune.builder.build_model import build_model
from autotune.builder.build_request import BuildRequest, ImportedModel, LaneKernels
from autotune.builder.lane_budget import Size, for_threads, plan_sizes
from autotune.events import Observer, everyone, ignore
from autotune.graph.lanes import Lane, parse_lanes
from autotune.host.compilers import check_compiler
from autotune.host.roofline import Roofline
from autotune.host.worker_pool import ONE_THREAD, ForkServerProcess
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from autotune.measure.remote.connect import Fleet
from autotune.options import FP32, Options, Precision
from autotune.tuning.existing_log import made_log
from autotune.tuning.result import PhaseClock, Result
from autotune.tuning.run_history import Recorder, Run, earlier_runs, known_reference, remember, task_histories
from autotune.tuning.run_plan import PartJob
from autotune.tuning.search_program import JoinedTasks, SearchOutcome, SearchRequest, cold_bytes, search_program
from autotune.validation.reference_engine import reference_latency
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from schedules.template_sets import has_bf16
from tuning_logs.sql_store import TuningLog

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """The measurer of a part, and what is open for it.

    Attributes:
        target: the whole machine.
        lanes: what runs subgraphs; one lane of all threads unless asked otherwise.
        measurer: of kernels for the widest lane; None where nothing is measured and the build compiles by itself.
        roofline: bounds of a target of this kind, where it is measured.
        foreign: why timings of whole models on this machine would say nothing about the target; empty if they do.
    """

    target: Target
    lanes: tuple[Lane, ...]
    measurer: MeasurementBackend | None
    roofline: Callable[[Target], Roofline]
    foreign: str = ""

    @property
    def widest(self) -> Target:
        """The target of kernels for the widest lane."""
        return replace(self.target, threads=max(lane.threads for lane in self.lanes))


class Measurers(ExitStack):
    """The processes of a run, started when they are first wanted: what measures kernels, and what opens artifacts.

    All of them come from one fork server, and parts for the same target share what measures. A worker that measures on
    a GPU takes some 5 s to start, and the server two.

    Attributes:
        server: workers are forked from it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.server = self.enter_context(ForkServerProcess(variables=ONE_THREAD))
        self._open: dict[tuple[Target, str, int], MeasurementBackend] = {}

    def of(self, target: Target, options: Options) -> MeasurementBackend:
        """The measurer for ``target``; it ends with the run."""
        key = target, options.evaluator, options.seed
        if key not in self._open:
            self._open[key] = self.enter_context(backend_of(target).measurer(*key, self.server))
        return self._open[key]


def open_machine(stack: ExitStack, measurers: Measurers, options: Options, target: Target | None) -> Machine:
    """Start what measures; other machines are left with ``stack``.

    Raises:
        UsageError: if the lanes do not fit the target.
        AutotuneError: if other machines were asked for and cannot be reached.
    """
    if options.remote:
        fleet = stack.enter_context(Fleet(options))
        lanes = parse_lanes(options.lanes, fleet.target.threads)
        return Machine(fleet.target, lanes, fleet.measurer, lambda _: fleet.measurer.roofline(), fleet.foreign)
    assert target is not None  # a plan names it unless other machines measure
    backend = backend_of(target)
    machine = Machine(target, backend.lanes(options, target), None, backend.roofline)
    if not backend.measures(options):
        return machine
    return replace(machine, measurer=measurers.of(machine.widest, options))


@dataclass(frozen=True)
class OpenModel:
    """A model of a part that is imported, with the machine of the part.

    Attributes:
        sizes: threads of a lane → what is tuned for such lanes, the widest first.
        earlier: the history of the artifact that will be replaced.
    """

    asked: PartJob
    machine: Machine
    model: onnx.ModelProto
    program: Program
    sizes: Mapping[int, Size]
    earlier: tuple[Run, ...] = ()


def joined(programs: Iterable[tuple[Program, int]]) -> JoinedTasks:
    """The tasks of ``programs``, each given with the weight of its latency."""
    tasks: dict[str, Task] = {}
    texts: dict[str, str] = {}
    spaces: dict[str, Space] = {}
    for program, weight in programs:
        for task in program.tasks:
            known = tasks[task.key].weight if task.key in tasks else 0
            tasks[task.key] = replace(task, weight=known + weight * task.weight)
        texts |= program.programs
        spaces |= program.spaces
    return JoinedTasks(tuple(sorted(tasks.values(), key=lambda task: -task.flop * task.weight)), texts, spaces)


@dataclass(frozen=True)
class TunedPart:
    """The result of a part.

    Attributes:
        results: of its models, in order. Time that was spent on all of them together is in each.
        tasks: distinct kernels of all models.
        outcomes: of every search, the widest lane first.
    """

    results: tuple[Result, ...]
    tasks: int
    outcomes: tuple[SearchOutcome, ...]


def tune_part(
    job: PartJob, observe: Observer = ignore, interrupted: bool = False, measurers: Measurers | None = None
) -> Result:
    """Tune for one set of shapes and one target, all of the model.

    Args:
        interrupted: an earlier part was stopped by Ctrl-C: what the log has is built and verified, nothing is measured.
        measurers: of a run of several parts; None for a run of this one alone.

    Raises:
        AutotuneError: as ``tune``.
    """
    return tune_together([job], job.options, observe, interrupted, measurers).results[0]


def tune_together(
    models: Sequence[PartJob],
    options: Options,
    observe: Observer = ignore,
    interrupted: bool = False,
    measurers: Measurers | None = None,
) -> TunedPart:
    """Tune several models under one budget, so that the weighted sum of their latencies falls fastest; build each.

    Args:
        models: with lanes of one size, where there are several.
        options: of the part as a whole.
        interrupted, measurers: as in ``tune_part``.

    Raises:
        AutotuneError: as ``tune``.
    """
    began = time.perf_counter()
    recorder = Recorder()
    own = everyone(recorder, observe)
    clock = PhaseClock(own)
    check_compiler()
    with ExitStack() as stack:
        if measurers is None:
            measurers = stack.enter_context(Measurers())
        # Before the import: workers need a second or two to load TVM.
        machine = open_machine(stack, measurers, options, models[0].target)
        with clock.phase("import"):
            parts = [_open_model(machine, asked) for asked in models]
            log = made_log(options.log)  # after the import: a bad model leaves none behind
            stack.callback(log.close)
        if options.searches and not interrupted:
            for part in parts:
                _time_reference(part, own)
        kernels, outcomes = _search_lanes(measurers, parts, options, log, own, observe, interrupted)
        interrupted = interrupted or any(outcome.interrupted for outcome in outcomes)
        for outcome in outcomes:
            for name, seconds in outcome.phase_s.items():
                clock.phase_s[name] += seconds
        results, runs = [], []
        for part, sizes in zip(parts, kernels, strict=True):
            mine = [outcome.of(part.program.tasks) for outcome in outcomes]
            view = _view(part, log)
            result = _build(part, sizes, mine, log, clock, interrupted, measurers)
            results.append(replace(result, elapsed_s=time.perf_counter() - began, views=(view,)))
            runs.append(_story(recorder.run, part, mine[0], log) if mine else recorder.run)  # while the log is open
    if not options.frozen:
        for part, result, run in zip(parts, results, runs, strict=True):
            remember(result.artifact, run, result.to_data(), part.asked.options, part.earlier)
    distinct = {task.key for part in parts for task in part.program.tasks}
    return TunedPart(tuple(results), len(distinct), tuple(outcomes))


def _build(
    part: OpenModel,
    kernels: Mapping[int, LaneKernels],
    outcomes: Sequence[SearchOutcome],
    log: TuningLog,
    clock: PhaseClock,
    interrupted: bool,
    measurers: Measurers,
) -> Result:
    """Build and verify the artifact of one model.

    Args:
        kernels: threads of a lane → how kernels for it are built.
        outcomes: what every search brought for this model.
        clock: with the seconds of all models' import and search; the build is added for this one alone.
        measurers: of the run.
    """
    machine, asked = part.machine, part.asked
    timed = not (interrupted or machine.foreign)
    out = asked.out
    own = PhaseClock(clock.observe, clock.phase_s)
    with own.phase("build"):
        request = BuildRequest(
            out,
            part.model,
            asked.model,
            machine.target,
            kernels,
            machine.lanes,
            log,
            asked.options,
            timed,
            asked.compared,
            measurers.server,
        )
        built = build_model(request)
    own.move(built.verify_s, "build", "verify")
    return Result(
        asked.model.name,
        out,
        machine.target.fingerprint,
        machine.target.threads,
        len(part.program.tasks),
        sum(outcome.measured_trials for outcome in outcomes),
        sum(outcome.failed_trials for outcome in outcomes),
        sum(outcome.reused_records for outcome in outcomes),
        0.0,
        own.phase_s,
        built.latency_ms,
        built.verdict,
        built.reason or (outcomes[-1].reason if outcomes else "interrupted" if interrupted else ""),
        outcomes[-1].remaining if outcomes else None,
        interrupted,
        tuple(state for outcome in outcomes for state in outcome.after),
    )


def _open_model(machine: Machine, asked: PartJob) -> OpenModel:
    """Import a model, and check where its artifact goes."""
    precision = Precision.parse(asked.options.precision)
    imported = asked.imported or ImportedModel(asked.model, asked.options)
    model, program = imported.for_target(machine.widest)
    if precision != FP32 and not has_bf16(machine.target):
        logger.warning("this CPU has no instructions for bf16: such products are computed in fp32, and are slower")
    backend_of(machine.target).check_program(asked.model.name, program)
    sizes = plan_sizes(program, machine.target, machine.lanes)
    earlier = () if asked.options.frozen else _check_place(asked.out, asked.model, machine, precision)
    return OpenModel(asked, machine, model, program, sizes, earlier)


def _view(part: OpenModel, log: TuningLog) -> LogView:
    """The records of the model's kernels, as they are now."""
    tasks = tuple(task.key for task in part.program.tasks)
    targets = tuple(replace(part.machine.target, threads=threads).fingerprint for threads in part.sizes)
    return LogView(tasks, targets, log.state(tasks, targets))


def _check_place(out: Path, model_path: Path, machine: Machine, precision: Precision) -> tuple[Run, ...]:
    """The history of what is at ``out`` and will be replaced.

    Raises:
        ArtifactError: if the artifact cannot be written there; now, not after the tuning.
    """
    with scratch_beside(out):
        pass
    return earlier_runs(out, model_path, machine.widest, precision)


def _time_reference(part: OpenModel, observe: Observer) -> None:
    """Time the model on ONNX Runtime, where that was asked for, and report it."""
    if part.asked.options.peer:
        threads = part.machine.widest.threads
        frame = part.program.frame
        inputs = frame.inputs if frame is not None else part.program.inputs
        timed = known_reference(part.earlier) or reference_latency(part.model, inputs, threads, part.asked.options.seed)
        if timed is not None:
            observe(timed)


def _search_lanes(
    measurers: Measurers,
    parts: Sequence[OpenModel],
    options: Options,
    log: TuningLog,
    own: Observer,
    shown: Observer,
    interrupted: bool,
) -> tuple[list[dict[int, LaneKernels]], list[SearchOutcome]]:
    """Search the kernels of every size of lane, the widest first, of all models together.

    Args:
        own: observes the search of the widest lane, which the history keeps.
        shown: observes the others.

    Returns:
        For every model, threads of a lane → how kernels for it are built; and what every search brought.
    """
    kernels: list[dict[int, LaneKernels]] = [{} for _ in parts]
    outcomes: list[SearchOutcome] = []
    machine = parts[0].machine
    cold = max(cold_bytes(part.program) for part in parts)
    for threads, size in parts[0].sizes.items():
        widest = not kernels[0]
        interrupted = interrupted or any(outcome.interrupted for outcome in outcomes)
        if interrupted and not widest:
            break
        target, measurer = replace(machine.target, threads=threads), machine.measurer
        if not widest:
            measurer = measurers.of(target, options)
        lanes = [
            LaneKernels(
                target,
                part.program if widest else for_threads(part.program, target),
                part.sizes[threads].tasks,
                measurer,
            )
            for part in parts
        ]
        if measurer is not None and options.searches and not interrupted:
            measurer.cold_bytes = cold
            budget = replace(options, budget_s=options.seconds * size.share)
            searched = joined(
                (lane.program if widest else lane.tunable, part.asked.weight)
                for lane, part in zip(lanes, parts, strict=True)
            )
            request = SearchRequest(searched, target, log, measurer, budget, machine.roofline)
            outcomes.append(search_program(request, own if widest else shown))
        for by_threads, lane in zip(kernels, lanes, strict=True):
            by_threads[threads] = lane
    return kernels, outcomes


def _story(run: Run, part: OpenModel, outcome: SearchOutcome, log: TuningLog) -> Run:
    """The history of a run with what no event reports, of this model's tasks only.

    Args:
        outcome: of the search for the widest lanes, of this model's tasks.
    """
    known = {state.key: (state.trials, state.best_s) for state in outcome.before}
    tasks = task_histories(part.program.tasks, outcome.jobs, known, log, part.machine.widest)
    slots = tuple(slot for slot in run.slots if slot.task in known)
    return replace(run, roofline=outcome.roofline, tasks=tasks, slots=slots)
