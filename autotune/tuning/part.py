"""Tune one part: one model with one set of shapes for one target, from its ONNX file to a verified artifact."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from autotune.artifact.replacement import scratch_beside
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import check_compiler
from autotune.builder.build_model import build_model
from autotune.builder.build_request import BuildRequest, LaneKernels
from autotune.builder.lane_budget import Size, for_threads, plan_sizes
from autotune.events import Observer, everyone, ignore
from autotune.graph.lanes import Lane, parse_lanes
from autotune.host.machine import host_target
from autotune.host.roofline import Roofline
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from autotune.measure.remote.connect import Fleet
from autotune.options import Options
from autotune.tuning.existing_log import made_log
from autotune.tuning.preload import preload
from autotune.tuning.result import PhaseClock, Result
from autotune.tuning.run_history import Recorder, Run, earlier_runs, known_reference, remember, task_histories
from autotune.tuning.search_program import SearchOutcome, SearchRequest, search_program
from autotune.validation.reference_engine import reference_latency
from schedules.target import Target
from tuning_logs.sql_store import TuningLog

MAX_COLD_BYTES = 1 << 30
"""Most memory by which weights are kept cold between runs, bytes: beyond it nothing gets colder."""

WINOGRAD_GROWTH = 4
"""Times that Winograd's weights are as large as the model's at most: (4 + 2)² numbers for 3². With an arena of the
model's own 30 MB, F(4,3) was timed at 184 µs and took 316 µs in the model, whose weights then were 92 MB."""


def resolve_target(options: Options) -> Target:
    """The machine to tune for: the one named, else this machine's CPU."""
    if options.target is not None:
        return options.target
    return host_target(options.threads, options.isa)


def output_path(model_path: Path, options: Options) -> Path:
    """Where the artifact goes."""
    return options.out if options.out is not None else Path(f"{model_path.stem}.tuned")


@dataclass(frozen=True)
class Machine:
    """Where a part is measured and what is open for it.

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


def open_machine(stack: ExitStack, options: Options) -> Machine:
    """Start what measures; it ends with ``stack``.

    Raises:
        UsageError: if the options do not fit the target.
        AutotuneError: if other machines were asked for and cannot be reached.
    """
    if options.remote:
        fleet = stack.enter_context(Fleet(options))
        lanes = parse_lanes(options.lanes, fleet.target.threads)
        return Machine(fleet.target, lanes, fleet.measurer, lambda _: fleet.measurer.roofline(), fleet.foreign)
    target = resolve_target(options)
    backend = backend_of(target)
    backend.check_options(options)
    machine = Machine(target, backend.lanes(options, target), None, backend.roofline)
    if not backend.measures(options):
        return machine
    return replace(
        machine, measurer=stack.enter_context(backend.measurer(machine.widest, options.evaluator, options.seed))
    )


@dataclass(frozen=True)
class OpenPart:
    """A part whose model is imported and whose log is open.

    Attributes:
        sizes: threads of a lane → what is tuned for such lanes, the widest first.
    """

    machine: Machine
    options: Options
    model: onnx.ModelProto
    program: Program
    sizes: Mapping[int, Size]
    log: TuningLog


def tune_part(model_path: Path, options: Options, observe: Observer = ignore, interrupted: bool = False) -> Result:
    """Tune for one set of shapes and one target, all of the model.

    Args:
        interrupted: an earlier part was stopped by Ctrl-C: what the log has is built and verified, nothing is measured.

    Raises:
        AutotuneError: as ``tune``.
    """
    began = time.perf_counter()
    recorder = Recorder()
    own = everyone(recorder, observe)
    clock = PhaseClock(own)
    out = output_path(model_path, options)
    check_compiler()
    with ExitStack() as stack:
        machine = open_machine(stack, options)  # before the import: workers need a second or two to load TVM
        loading = None if options.frozen else preload(options.cost_model)
        with clock.phase("import"):
            part = _open_part(stack, machine, model_path, options)
        earlier = () if options.frozen else _check_place(out, model_path, machine)
        if not (options.frozen or interrupted):
            _time_reference(part, earlier, own)
            if loading is not None:
                loading.join()
        kernels, outcomes = _search_lanes(stack, part, own, observe, interrupted)
        interrupted = interrupted or any(outcome.interrupted for outcome in outcomes)
        with clock.phase("build"):
            timed = not (interrupted or machine.foreign)
            request = BuildRequest(
                out, part.model, model_path, machine.target, kernels, machine.lanes, part.log, options, timed
            )
            built = build_model(request)
        clock.move(built.verify_s, "build", "verify")
        run = _story(recorder.run, part, outcomes[0]) if outcomes else recorder.run  # while the log is open
    phase_s = {
        name: seconds + sum(outcome.phase_s.get(name, 0.0) for outcome in outcomes)
        for name, seconds in clock.phase_s.items()
    }
    result = Result(
        model_path.name,
        out,
        machine.target.fingerprint,
        machine.target.threads,
        len(part.program.tasks),
        sum(outcome.measured_trials for outcome in outcomes),
        sum(outcome.failed_trials for outcome in outcomes),
        sum(outcome.reused_records for outcome in outcomes),
        time.perf_counter() - began,
        phase_s,
        built.latency_ms,
        built.verdict,
        built.reason or (outcomes[-1].reason if outcomes else "interrupted" if interrupted else ""),
        outcomes[-1].remaining if outcomes else None,
        interrupted,
        tuple(state for outcome in outcomes for state in outcome.after),
    )
    if not options.frozen:
        remember(out, run, result.to_data(), options, earlier)
    return result


def _open_part(stack: ExitStack, machine: Machine, model_path: Path, options: Options) -> OpenPart:
    """Import the model and open the log, which is closed with ``stack``."""
    model, program = import_model(model_path, options.inputs, machine.widest)
    backend_of(machine.target).check_program(model_path.name, program)
    sizes = plan_sizes(program, machine.target, machine.lanes, options)
    log = made_log(options.log)
    stack.callback(log.close)
    return OpenPart(machine, options, model, program, sizes, log)


def _check_place(out: Path, model_path: Path, machine: Machine) -> tuple[Run, ...]:
    """The history of what is at ``out`` and will be replaced.

    Raises:
        ArtifactError: if the artifact cannot be written there; now, not after the tuning.
    """
    with scratch_beside(out):
        pass
    return earlier_runs(out, model_path, machine.widest)


def _time_reference(part: OpenPart, earlier: tuple[Run, ...], observe: Observer) -> None:
    """Time the model on ONNX Runtime, where that was asked for, and report it."""
    if part.options.peer:
        threads = part.machine.widest.threads
        timed = known_reference(earlier) or reference_latency(
            part.model, part.program.inputs, threads, part.options.seed
        )
        if timed is not None:
            observe(timed)


def _search_lanes(
    stack: ExitStack, part: OpenPart, own: Observer, shown: Observer, interrupted: bool
) -> tuple[dict[int, LaneKernels], list[SearchOutcome]]:
    """Search the kernels of every size of lane, the widest first.

    Args:
        own: observes the search of the widest lane, which the history keeps.
        shown: observes the others.

    Returns:
        Threads of a lane → how kernels for it are built; and what every search brought.
    """
    kernels: dict[int, LaneKernels] = {}
    outcomes: list[SearchOutcome] = []
    machine, options = part.machine, part.options
    cold = cold_bytes(part.program)
    for threads, size in part.sizes.items():
        interrupted = interrupted or any(outcome.interrupted for outcome in outcomes)
        if kernels and interrupted:
            break
        target = replace(machine.target, threads=threads)
        measurer, program = machine.measurer, part.program
        if kernels:
            measurer = stack.enter_context(backend_of(target).measurer(target, options.evaluator, options.seed))
            program = for_threads(part.program, target)
        lane = LaneKernels(target, program, size.tasks, measurer)
        if measurer is not None and not (options.frozen or interrupted):
            measurer.cold_bytes = cold
            budget = replace(options, budget_s=options.seconds * size.share)
            searched = lane.tunable if kernels else program
            request = SearchRequest(searched, target, part.log, measurer, budget, machine.roofline)
            outcomes.append(search_program(request, shown if kernels else own))
        kernels[threads] = lane
    return kernels, outcomes


def cold_bytes(program: Program) -> int:
    """Bytes that the weights may take in the artifact: so much data is touched between two uses of a kernel's own."""
    grown = 0
    for task in program.tasks:
        if program.spaces[task.key].saving > 1:
            largest = max((math.prod(task.shapes[index]) for index in task.constants), default=0)
            grown += (WINOGRAD_GROWTH - 1) * task.weight * largest * np.dtype(np.float32).itemsize
    return min(MAX_COLD_BYTES, sum(array.nbytes for array in program.weights) + grown)


def _story(run: Run, part: OpenPart, outcome: SearchOutcome) -> Run:
    """The history of a run with what no event reports."""
    known = {state.key: (state.trials, state.best_s) for state in outcome.before}
    tasks = task_histories(outcome.jobs, known, part.log, part.machine.widest)
    return replace(run, roofline=outcome.roofline, tasks=tasks)
