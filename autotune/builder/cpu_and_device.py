"""A CPU and a device as lanes: a model's subgraphs as artifacts for each of the two, priced and put together.

A subgraph's cost on a device holds the copies of its inputs and outputs, since what passes between subgraphs lies in
the host's memory; so handing over from one lane to the other costs no more. Where no device is at hand its cost is a
bound: the roofline of the data sheet at ``EFFICIENCY``, a launch per kernel, and the copies at ``COPY_BYTES_PER_S``.

What is placed becomes one artifact like any other. The subgraphs of the CPU are one flat program with groups of calls
on a lane (graph/merge.py). What the device runs lies in folders of its own, called by a thread of the same driver.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import Artifact, device_folder, read_artifact, write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.manifest import sha256
from autotune.artifact.plan import Choice, Plan
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_kernels
from autotune.builder.branches import Branch
from autotune.builder.device_build import NOT_RUN
from autotune.builder.placing import Candidate, PlacedModel
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import Lane
from autotune.graph.merge import Part, device_flat, merge
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Problem, tensors_of
from autotune.graph.steps import Steps
from autotune.host.dtypes import numpy_type
from autotune.host.roofline import Roofline
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.interface import TensorSpec
from autotune.measure.local_measurer import LocalMeasurer
from autotune.options import Options
from autotune.runtime.model_timing import Run, at_work, median_s, race, session_run
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import session_inputs
from schedules.errors import ModelError
from schedules.target import Target

EFFICIENCY = 0.5
"""Share of a GPU's roofline that a tuned kernel of a small batch is taken to reach. A guess, used without a device."""

LAUNCH_S = 3e-6
"""Seconds to launch a kernel of a CUDA graph. A guess, used without a device."""

HAND_OVER_S = 20e-6
"""Seconds of a copy's latency, of launching a graph and of waiting for it. A guess, used without a device."""

COPY_BYTES_PER_S = 20e9
"""Through PCIe 4 × 16, whose bound is 32 GB/s. A guess, used without a device."""

DRIVER_S = 2e-6
"""Seconds of handing over between threads of the driver of lanes, rounded up (docs/duet.md)."""

PROFILE_S = 0.1
"""Seconds for which a subgraph is timed on a lane. Heuristic, not measured."""


@dataclass(frozen=True)
class TunedPart:
    """A subgraph, or the whole model, as tuned artifacts.

    Attributes:
        name: of the subgraph; ``model`` for the whole.
        file: its ONNX file.
        inputs: shapes of the file's inputs that were given, by name.
        cpu, device: artifacts; None where a device cannot run it.
    """

    name: str
    file: Path
    inputs: Mapping[str, tuple[int, ...]]
    cpu: Path
    device: Path | None


@dataclass(frozen=True)
class Costs:
    """Seconds of one subgraph.

    Attributes:
        cpu, device: with the other lane idle; ``device`` is None where it cannot run there.
        cpu_busy, device_busy: with the other lane at work; as with it idle where that was not measured.
    """

    cpu: float
    device: float | None
    cpu_busy: float
    device_busy: float | None


@dataclass(frozen=True)
class CpuAndDevice:
    """A model on a CPU and a device, as ``placing.fastest`` wants it.

    Attributes:
        whole: the model.
        parts: its subgraphs, in an order in which they can run; empty where it was not cut.
        branches: what the parts were made of.
        lanes: the CPU's and the device's.
        cpu, device: what the artifacts of parts were built for.
        options: of the run; without ``options.device`` nothing is run on the device.
        folder: for artifacts.
    """

    whole: TunedPart
    parts: tuple[TunedPart, ...]
    branches: tuple[Branch, ...]
    lanes: tuple[Lane, Lane]
    cpu: Target
    device: Target
    options: Options
    folder: Path

    def cuts(self) -> Iterator[tuple[tuple[Subgraph, ...], Problem]]:
        """As ``Source.cuts``; calls are numbered when the subgraphs are put together."""
        if self.parts:
            problem = problem_of(self.branches, [self.costs(part) for part in self.parts], self.lanes)
            yield tuple(Subgraph(part.name, ()) for part in self.parts), problem

    def one_lane(self) -> list[Candidate[Path]]:
        """As ``Source.one_lane``."""
        device = [] if self.whole.device is None else [Candidate("device alone", self.whole.device)]
        return [Candidate("CPU alone", self.whole.cpu), *device]

    def seconds(self, candidates: Sequence[Candidate[Path]]) -> list[float]:
        """As ``Source.seconds``: measured where the device is here, else as predicted."""
        if self.options.device:
            return race([self._run(candidate.made) for candidate in candidates])
        alone = self.costs(self.whole)
        predicted = {self.whole.cpu: alone.cpu, self.whole.device: alone.device or 0.0}
        return [each.placed.predicted_s if each.placed else predicted[each.made] for each in candidates]

    def costs(self, part: TunedPart) -> Costs:
        """What ``part`` takes on either lane."""
        cpu = self._run(part.cpu)
        alone = median_s(cpu, PROFILE_S)
        if part.device is None:
            return Costs(alone, None, alone, None)
        if not self.options.device:
            _, program = import_model(part.file, part.inputs, self.device)
            bound_s = device_bound_s(program, backend_of(self.device).roofline(self.device))
            return Costs(alone, bound_s, alone, bound_s)
        device = self._run(part.device)
        device_alone = median_s(device, PROFILE_S)
        with at_work(device):
            busy = median_s(cpu, PROFILE_S)
        with at_work(cpu):
            device_busy = median_s(device, PROFILE_S)
        return Costs(alone, device_alone, max(alone, busy), max(device_alone, device_busy))

    def _run(self, path: Path) -> Run:
        session = InferenceSession(path)
        return session_run(session, session_inputs(session, self.options.seed))

    def make(self, number: int, placed: PlacedModel) -> Path:
        """As ``Source.make``: an artifact."""
        where = list(zip(self.parts, placed.placement.lanes, strict=True))
        devices = {part.name: part.device for part, lane in where if lane and part.device is not None}
        opened = {part.name: read_artifact(devices.get(part.name, part.cpu)) for part in self.parts}
        programs = {part.name: import_model(part.file, part.inputs, self.cpu)[1] for part, lane in where if not lane}
        kernels = _union(self.cpu, [opened[name].plan for name in programs])
        flats = [_part(name, artifact, programs.get(name), kernels) for name, artifact in opened.items()]
        interface = read_artifact(self.whole.cpu)
        merged = merge(flats, [s.name for s in interface.inputs], [s.name for s in interface.outputs])
        named = zip(placed.subgraphs, merged.calls, strict=True)
        placed = replace(placed, subgraphs=tuple(Subgraph(part.name, calls) for part, calls in named))
        steps = placed.steps({self.lanes[0].threads: merged.flat, 1: merged.flat})
        program = _program(list(programs.values()), interface, steps)
        plan = replace(kernels, lanes=placed.plan(self.options.lanes, {}))
        provenance = {"model": self.whole.file.name, "sha256": sha256(self.whole.file)}
        if not self.options.device:
            provenance["unverified"] = NOT_RUN
        path = self.folder / f"placed-{number}"
        with LocalMeasurer(self.cpu, seed=self.options.seed) as measurer:
            objects = compile_kernels(program, kernels, measurer)
            link = partial(_link, {step.symbol: objects[step.symbol] for step in steps.calls if step.symbol in objects})
            write_artifact(path, program, plan, steps, identity(program, plan), provenance, partial(link, devices))
        return path


def device_bound_s(program: Program, roofline: Roofline) -> float:
    """Seconds that ``program`` should take on a device that is not at hand, its copies included.

    Args:
        program: imported for the device.
        roofline: of the device, by its data sheet.
    """
    kernels = sum(
        task.weight
        * (LAUNCH_S + roofline.bound_s(int(task.flop / program.spaces[task.key].saving), task.bytes) / EFFICIENCY)
        for task in program.tasks
    )
    moved = sum(_bytes(spec) for spec in (*program.inputs, *program.outputs))
    return kernels + HAND_OVER_S + moved / COPY_BYTES_PER_S


def _bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * numpy_type(spec.dtype).itemsize


def problem_of(branches: Sequence[Branch], costs: Sequence[Costs], lanes: tuple[Lane, Lane]) -> Problem:
    """Placing ``branches`` on the CPU and the device."""
    maker = {name: number for number, branch in enumerate(branches) for name in branch.outputs}
    needs = tuple(
        tuple(sorted({maker[name] for name in branch.inputs if name in maker} - {number}))
        for number, branch in enumerate(branches)
    )
    cpu, device = lanes
    return Problem(
        lanes,
        tensors_of(needs, [0] * len(branches)),
        tuple((cost.cpu, cost.device) for cost in costs),
        {
            device.kind: tuple((cost.cpu_busy, cost.device) for cost in costs),
            cpu.kind: tuple((cost.cpu, cost.device_busy) for cost in costs),
        },
        Link(DRIVER_S),
    )


def _union(target: Target, plans: Sequence[Plan]) -> Plan:
    """One plan for the kernels of all ``plans``: of a task that several have, the fastest."""
    best: dict[str, Choice] = {}
    for choice in (choice for plan in plans for choice in plan.choices):
        known = best.get(choice.task)
        if known is None or (choice.latency_s or math.inf) < (known.latency_s or math.inf):
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


def _program(programs: Sequence[Program], interface: Artifact, steps: Steps) -> Program:
    """What is kept of the CPU's programs: their kernels, under the whole model's interface."""
    return replace(
        programs[0],
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
