"""``tune run --lanes cpu,cuda:0``: a model on a CPU and a GPU together, or on the one of them that is faster.

DUET (IPDPS 2021) step by step: the model is cut before fusion (importer/branches.py); every subgraph is tuned and
compiled for the CPU and for the device, each an artifact of its own; both are timed, alone and with the other at work
(coupled_costs.py); subgraphs are placed exactly (graph/exact.py); and what was placed is timed against the whole model
on either lane, of which the fastest is kept.

Without a device (``--no-device``) its kernels are chosen and compiled as for any CUDA target, and its costs are bounds:
the artifact says so, and that nothing of it was verified on the device.

The artifact is one like any other: the subgraphs of the CPU are one flat program with groups of calls on a lane
(graph/merge.py), and what the device runs lies in folders of its own, called by a thread of the same driver.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import Artifact, device_folder, identity, read_artifact, write_artifact
from autotune.artifact.manifest import annotate, attach, sha256
from autotune.artifact.plan import Choice, LanePlan, Placed, Plan
from autotune.artifact.replacement import install, scratch_beside
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_kernels
from autotune.build.coupled_costs import (
    Costs,
    device_bound_s,
    median_s,
    placements_of,
    problem_of,
    whole_runs,
)
from autotune.build.device_build import NOT_RUN
from autotune.build.lane_kernels import RACE_S, WORTH
from autotune.build.lane_timing import at_work, race
from autotune.build.ship import LATENCY
from autotune.events import Observer, PhaseBegan, ignore
from autotune.graph.flat import read_flat
from autotune.graph.lanes import Lane, coupled_lanes
from autotune.graph.merge import Part, device_flat, merge
from autotune.graph.placement import Placement, Problem, simulate
from autotune.graph.steps import Piece, Steps, arrange
from autotune.host.machine import host_target
from autotune.host.roofline import measure_roofline
from autotune.importer.guarded_import import cut_into_branches, import_model
from autotune.importer.onnx_model.branches import Branch
from autotune.importer.program import Program
from autotune.measure.local_measurer import LocalMeasurer
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning.part import output_path, tune_part
from autotune.tuning.result import Result, combined
from autotune.tuning.tune_cuda import tune_cuda
from autotune.validation.verify import Verdict, compare_session, complaint
from schedules.errors import ModelError, UsageError, VerificationError
from schedules.target import Target

logger = logging.getLogger(__name__)

SHARES = {"cpu": 0.25, "cpu parts": 0.25, "device": 0.25, "device parts": 0.25}
"""Of the budget. A model and its parts have most kernels in common: what was tuned for one is there for the other."""

LEAST_S = 1.0

TuneDevice = Callable[[Path, Options, Target, Observer], Result]


@dataclass(frozen=True)
class Built:
    """A subgraph, or the whole model, as tuned artifacts.

    Attributes:
        name: of the subgraph; ``model`` for the whole.
        file: its ONNX file.
        cpu, device: artifacts; None where a device cannot run it.
    """

    name: str
    file: Path
    cpu: Path
    device: Path | None


@dataclass(frozen=True)
class Found:
    """A placement with what it should take.

    Attributes:
        spans: (n,) begin and end of every subgraph, simulated.
    """

    problem: Problem
    placement: Placement
    spans: tuple[tuple[float, float], ...]


def tune_coupled(
    model_path: Path,
    options: Options,
    target: Target,
    observe: Observer = ignore,
    tune_device: TuneDevice = tune_cuda,
) -> Result:
    """Tune for this machine's CPU and ``target`` together.

    Args:
        target: of the device.
        tune_device: makes the artifact of a model for ``target``.

    Raises:
        UsageError: if a device is asked for and there is none, or the model cannot be cut.
        VerificationError: if outputs differ from the reference; what was at the artifact's place is left as it was.
        AutotuneError: as ``pipeline.tune``.
    """
    _check(options)
    began = time.perf_counter()
    host = host_target(options.threads, options.isa)
    lanes = coupled_lanes(options.lanes, host.threads)
    out = output_path(model_path, options)
    with scratch_beside(out) as folder:
        observe(PhaseBegan("cut"))
        model, branches = cut_into_branches(model_path, options.inputs)
        crew = _Crew(options, host, lanes, target, observe, tune_device)
        whole = crew.tune("model", model_path, folder, 1.0, whole=True)
        parts = [] if len(branches) == 1 else crew.tune_all(branches, folder)
        costs = [crew.costs(built) for built in (whole, *parts)]
        found = _placed(branches, costs[1:], lanes) if parts else []
        made = [_write(folder / f"placed-{number}", whole, parts, each, crew) for number, each in enumerate(found)]
        result = combined(out, crew.results)
        result.model, result.artifact, result.latency_ms = model_path.name, out, {}
        _ship(out, result, model, whole, costs[0], list(zip(made, found, strict=True)), crew)
    result.elapsed_s = time.perf_counter() - began
    return result


def _check(options: Options) -> None:
    if options.frozen or options.remote or options.shapes or options.fallback:
        raise UsageError(
            f"--lanes {options.lanes} measures this machine's CPU beside a device, for one set of shapes; leave out "
            "tune build, --frozen, --cluster, --rpc, --fallback and all but one --input per name"
        )


class _Crew:
    """Tunes models for both lanes, and times what came of it."""

    def __init__(
        self,
        options: Options,
        host: Target,
        lanes: tuple[Lane, Lane],
        target: Target,
        observe: Observer,
        tune_device: TuneDevice,
    ) -> None:
        self.options, self.host, self.lanes, self.target = options, host, lanes, target
        self.results: list[Result] = []
        self._observe, self._tune_device = observe, tune_device

    @property
    def cpu_target(self) -> Target:
        """Of the CPU's lane."""
        return replace(self.host, threads=self.lanes[0].threads)

    def tune(self, name: str, file: Path, folder: Path, share: float, whole: bool = False) -> Built:
        """Artifacts of one model for both lanes.

        Args:
            share: of what the whole model, or all parts together, have of the budget.
        """
        cpu, device = folder / f"cpu-{name}", folder / f"device-{name}"
        threads = self.host.threads if whole else self.cpu_target.threads
        own = replace(self._own("cpu" if whole else "cpu parts", share, cpu, whole), target=None, threads=threads)
        self.results.append(tune_part(file, own, self._observe, self._interrupted))
        other = replace(self._own("device" if whole else "device parts", share, device, whole), target=self.target)
        if self._interrupted:
            other = replace(other, trials=0)
        try:
            self.results.append(self._tune_device(file, other, self.target, self._observe))
        except ModelError as error:
            logger.warning("%s stays on the CPU: %s", "the whole model" if whole else f"subgraph {name}", error)
            return Built(name, file, cpu, None)
        return Built(name, file, cpu, device)

    @property
    def _interrupted(self) -> bool:
        """By Ctrl-C: what the log has is built, and nothing more is measured."""
        return any(result.interrupted for result in self.results)

    def tune_all(self, branches: Sequence[Branch], folder: Path) -> list[Built]:
        """Artifacts of every subgraph, with a share of the budget by its arithmetic."""
        files = []
        for branch in branches:
            files.append(folder / f"{branch.name}.onnx")
            onnx.save(branch.model, files[-1])
        work = [
            sum(task.flop * task.weight for task in import_model(file, {}, self.cpu_target)[1].tasks) for file in files
        ]
        total = sum(work) or 1
        return [
            self.tune(branch.name, file, folder, flop / total)
            for branch, file, flop in zip(branches, files, work, strict=True)
        ]

    def _own(self, what: str, share: float, out: Path, whole: bool) -> Options:
        options = self.options
        return replace(
            options,
            out=out,
            lanes="cpu",
            inputs=options.inputs if whole else {},
            budget_s=max(LEAST_S, SHARES[what] * share * options.seconds),
            peer=options.peer and whole and what == "cpu",
        )

    def costs(self, built: Built) -> Costs:
        """What ``built`` takes on either lane."""
        seed = self.options.seed
        cpu = whole_runs(InferenceSession(built.cpu), read_artifact(built.cpu).inputs, seed)
        alone = median_s(cpu)
        if built.device is None:
            return Costs(alone, None, alone, None, measured=self.options.device)
        if not self.options.device:
            _, program = import_model(built.file, self._inputs(built), self.target)
            bound_s = device_bound_s(program, measure_roofline(self.target))
            return Costs(alone, bound_s, alone, bound_s, measured=False)
        device = whole_runs(InferenceSession(built.device), read_artifact(built.device).inputs, seed)
        device_alone = median_s(device)
        with at_work(device):
            busy = median_s(cpu)
        with at_work(cpu):
            device_busy = median_s(device)
        return Costs(alone, device_alone, max(alone, busy), max(device_alone, device_busy), measured=True)

    def _inputs(self, built: Built) -> Mapping[str, tuple[int, ...]]:
        return self.options.inputs if built.name == "model" else {}


def _placed(branches: Sequence[Branch], costs: Sequence[Costs], lanes: tuple[Lane, Lane]) -> list[Found]:
    """The placements that use both lanes, the best first."""
    problem = problem_of(branches, costs, lanes)
    found = [Found(problem, placement, simulate(problem, placement)) for placement in placements_of(problem)]
    return [each for each in found if len(set(each.placement.lanes)) > 1]


def _write(out: Path, whole: Built, parts: Sequence[Built], found: Found, crew: _Crew) -> Path:
    """The artifact of a placement."""
    lanes, cpu = found.placement.lanes, crew.lanes[0]
    opened = [
        read_artifact((part.device if lane else None) or part.cpu) for part, lane in zip(parts, lanes, strict=True)
    ]
    interface = read_artifact(whole.cpu)
    plan = _union(crew.cpu_target, [part for part, lane in zip(opened, lanes, strict=True) if not lane])
    programs = {
        part.name: import_model(part.file, {}, crew.cpu_target)[1]
        for part, lane in zip(parts, lanes, strict=True)
        if not lane
    }
    flats = [
        _part(part.name, artifact, programs.get(part.name), plan) for part, artifact in zip(parts, opened, strict=True)
    ]
    merged = merge(flats, [s.name for s in interface.inputs], [s.name for s in interface.outputs])
    pieces = [Piece(parts[s].name, merged.calls[s], lanes[s]) for s in found.placement.order]
    steps = arrange({cpu.threads: merged.flat, 1: merged.flat}, pieces, crew.lanes)
    program = _program(programs.values(), interface, steps)
    placed = tuple(
        Placed(parts[s].name, crew.lanes[lanes[s]].name, merged.calls[s], *found.spans[s])
        for s in found.placement.order
    )
    plan = replace(plan, lanes=LanePlan(crew.options.lanes, (), placed))
    devices = {part.name: part.device for part, lane in zip(parts, lanes, strict=True) if lane and part.device}
    with LocalMeasurer(crew.cpu_target, seed=crew.options.seed) as workshop:
        objects = compile_kernels(program, replace(plan, lanes=None), workshop)
        used = {call.symbol for call in steps.calls}
        kernels = {symbol: path for symbol, path in objects.items() if symbol in used}
        provenance: dict[str, Any] = {"model": whole.file.name, "sha256": sha256(whole.file)}
        if not crew.options.device:
            provenance["unverified"] = NOT_RUN
        digest = identity(program, plan)
        write_artifact(out, program, plan, steps, digest, provenance, partial(_link, kernels, devices))
    return out


def _union(target: Target, artifacts: Sequence[Artifact]) -> Plan:
    """One plan for the kernels of all ``artifacts``: of a task that several have, the fastest."""
    best: dict[str, Choice] = {}
    for choice in (choice for artifact in artifacts for choice in artifact.plan.choices):
        known = best.get(choice.task)
        if known is None or (choice.latency_s or float("inf")) < (known.latency_s or float("inf")):
            best[choice.task] = choice
    return Plan(target, tuple(best[key] for key in sorted(best)))


def _part(name: str, artifact: Artifact, program: Program | None, plan: Plan) -> Part:
    """A subgraph's calls: kernels where it was placed on the CPU (``program``), else calls of the device."""
    inputs, outputs = (tuple(spec.name for spec in specs) for specs in (artifact.inputs, artifact.outputs))
    if program is None:
        return Part(name, device_flat(name, artifact.inputs, artifact.outputs), inputs, outputs)
    flat = read_flat(apply_plan(program, plan), concats_of(program))
    if flat is None:
        raise ModelError(
            f"subgraph {name} has operators whose shapes depend on data, and cannot be placed; give --lanes cpu"
        )
    return Part(name, flat, inputs, outputs)


def _program(programs: Collection[Program], interface: Artifact, steps: Steps) -> Program:
    """What is kept of the CPU's programs: their kernels, under the whole model's interface."""
    first, *_ = programs
    return replace(
        first,
        weights=steps.weights,
        inputs=interface.inputs,
        outputs=interface.outputs,
        tasks=tuple({task.key: task for program in programs for task in program.tasks}.values()),
        programs={key: text for program in programs for key, text in program.programs.items()},
        spaces={key: space for program in programs for key, space in program.spaces.items()},
    )


def _link(kernels: dict[str, Path], devices: Mapping[str, Path], library: Path) -> None:
    link_kernels(kernels, library)
    for name, artifact in devices.items():
        shutil.copytree(artifact, library.with_name(device_folder(name)))


def _ship(
    out: Path,
    result: Result,
    model: onnx.ModelProto,
    whole: Built,
    alone: Costs,
    placed: Sequence[tuple[Path, Found]],
    crew: _Crew,
) -> None:
    """Put the fastest of all that was made at ``out``, verified as far as this machine can."""
    lanes = {"CPU alone": (whole.cpu, alone.cpu)}
    if whole.device is not None and alone.device is not None:
        lanes["device alone"] = whole.device, alone.device
    single = len(lanes)
    for number, (path, found) in enumerate(placed):
        lanes[f"placed, {number + 1}"] = path, max(end for _, end in found.spans)
    paths, seconds = [path for path, _ in lanes.values()], [predicted for _, predicted in lanes.values()]
    if crew.options.device:
        specs = read_artifact(whole.cpu).inputs
        seconds = race([whole_runs(InferenceSession(path), specs, crew.options.seed) for path in paths], RACE_S)
    told = {name: 1e3 * value for name, value in zip(lanes, seconds, strict=True)}
    logger.info("milliseconds: %s", ", ".join(f"{name} {value:.3g}" for name, value in told.items()))
    best = min(range(len(paths)), key=lambda index: seconds[index] * (WORTH if index >= single else 1.0))
    if best >= single:
        measured_s = seconds[best] if crew.options.device else None
        _note(paths[best], min(seconds[:single]) if crew.options.device else None, measured_s)
    if crew.options.device or not best:
        result.verified = _verified(paths[best], out, model, crew.options.seed)
    else:
        result.verified, result.reason = None, NOT_RUN
    if crew.options.device or not best:
        result.latency_ms = {"tuned": 1e3 * seconds[best]}
        annotate(paths[best], {LATENCY: {"untuned": None, "tuned": 1e3 * seconds[best]}})
    annotate(paths[best], {"lanes": {"measured": crew.options.device, "ms": told}})
    install(paths[best], out)


def _note(path: Path, one_lane_s: float | None, measured_s: float | None) -> None:
    """Write into the plan of the artifact at ``path`` what was measured of it."""
    plan = read_artifact(path).plan
    assert plan.lanes is not None
    noted = replace(plan, lanes=replace(plan.lanes, one_lane_s=one_lane_s, measured_s=measured_s))
    attach(path, "plan.json", noted.to_json().encode())


def _verified(made: Path, out: Path, model: onnx.ModelProto, seed: int) -> Verdict:
    verdict = compare_session(InferenceSession(made), model, seed)
    if not verdict.passed:
        raise VerificationError(complaint(out, verdict, seed))
    return verdict
