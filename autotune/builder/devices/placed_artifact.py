"""Subgraphs on their lanes put together into one artifact.

The subgraphs on cores are one flat program with groups of calls on a lane (graph/merge.py); lanes of each size have a
library of their own. What a device runs lies in folders of its own, called by a thread of the same driver, and the
devices' copy engines have threads too.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import Artifact, device_folder, read_artifact, write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.manifest import sha256
from autotune.artifact.plan import Choice, DeviceMemory, HandOver, Placed, Plan
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_lanes
from autotune.builder.device_build import NOT_RUN
from autotune.builder.devices.lane_costs import LanePart
from autotune.builder.placing import PlacedModel
from autotune.graph.device_problem import Ends
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import HOST, Lane, Way, copy_lanes
from autotune.graph.merge import Joins, Merged, Part, copy_name, device_flat, merge, with_transfers
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Problem
from autotune.graph.simulation import simulate_copies
from autotune.graph.steps import Steps, arrange
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from autotune.options import Options
from schedules.target import Target

MemoryOf = Callable[[Mapping[str, int]], tuple[DeviceMemory, ...]]
"""Takes device → bytes that pass between its subgraphs; returns what a placement takes of every device."""


@dataclass(frozen=True)
class PlacedParts:
    """The subgraphs of a model on their lanes.

    Attributes:
        whole: the model.
        interface: its inputs and outputs.
        where: each subgraph and the number of its lane, in an order in which they can run.
        values: what passes between them, as ``values_of`` names it.
        joins: value → its parts, as ``Branches``.
        lanes: the cores', then the devices'.
        targets: (n_lanes,) what artifacts for each lane are built for.
        options: of the run.
        links: the ways between the lanes' memories.
        compiler: of the CPU's kernels for a target.
    """

    whole: LanePart
    interface: Ends
    where: tuple[tuple[LanePart, int], ...]
    values: Sequence[str]
    joins: Joins
    lanes: tuple[Lane, ...]
    targets: tuple[Target, ...]
    options: Options
    links: Mapping[Way, Link]
    compiler: Callable[[Target], MeasurementBackend]

    def write(self, path: Path, placed: PlacedModel, memory_of: MemoryOf) -> None:
        """Write the artifact of ``placed`` to ``path``."""
        opened = {part.name: read_artifact(part.built[lane]) for part, lane in self.where}
        kernels = self._kernels(opened)
        merged = self._merged(placed.problem, opened, kernels)
        calls = dict(zip(opened, merged.calls, strict=True))
        placed = replace(
            placed,
            subgraphs=tuple(Subgraph(s.name, calls.get(s.name, ())) for s in placed.subgraphs),
            copies=tuple(self._copies(placed)),
        )
        steps = self._steps(placed, merged)
        placed = replace(placed, devices=memory_of(dict(steps.device_bytes)))
        widest = max(kernels)
        choices = {threads: plan.choices for threads, plan in kernels.items() if threads != widest}
        lanes = replace(placed.plan(self.options.lanes, choices), hand_overs=self._hand_overs())
        every = _union(kernels[widest].target, [kernels[size] for size in sorted(kernels, reverse=True)], first=True)
        plan = replace(every, lanes=lanes)
        objects = {
            threads: compile_kernels(self._program(threads), own, self.compiler(own.target)) if own.choices else {}
            for threads, own in kernels.items()
        }
        program = replace(self._program(None), weights=steps.weights)
        folders = {part.name: opened[part.name].path for part, lane in self.where if self.lanes[lane].device}
        link = partial(_link, objects, steps, widest, folders)
        write_artifact(path, program, plan, steps, identity(program, plan), self._provenance(), link)

    def _provenance(self) -> dict[str, Any]:
        file = self.whole.imported.path
        unverified = {} if self.options.device else {"unverified": NOT_RUN}
        return {"model": file.name, "sha256": sha256(file), **unverified}

    def _on_cores(self, threads: int | None) -> list[tuple[LanePart, Target]]:
        """Return the subgraphs on lanes of ``threads`` cores, None for any number, with the targets of their lanes."""
        placed = ((part, self.lanes[lane], self.targets[lane]) for part, lane in self.where)
        return [(part, target) for part, lane, target in placed if not lane.device and threads in (None, lane.threads)]

    def _kernels(self, opened: Mapping[str, Artifact]) -> dict[int, Plan]:
        """Threads of a lane of cores → the kernels of such lanes."""
        sizes = {lane.threads: target for lane, target in zip(self.lanes, self.targets, strict=True) if not lane.device}
        return {
            threads: _union(target, [opened[part.name].plan for part, _ in self._on_cores(threads)])
            for threads, target in sizes.items()
        }

    def _merged(self, problem: Problem, opened: Mapping[str, Artifact], kernels: Mapping[int, Plan]) -> Merged:
        """All subgraphs as one graph."""
        parts = []
        for part, number in self.where:
            lane, artifact = self.lanes[number], opened[part.name]
            if lane.device:
                parts.append(_device_part(part.name, artifact, lane.memory))
            else:
                program = part.imported.for_target(self.targets[number])[1]
                parts.append(_cpu_part(part.name, artifact, program, kernels[lane.threads]))
        inputs, outputs = ([spec.name for spec in specs] for specs in (self.interface.inputs, self.interface.outputs))
        return merge(parts, inputs, outputs, self.joins, problem.direct)

    def _program(self, threads: int | None) -> Program:
        """Return the kernels of all programs on lanes of ``threads`` cores, under the entire model's interface."""
        programs = [part.imported.for_target(target)[1] for part, target in self._on_cores(threads)]
        return replace(
            programs[0] if programs else self.whole.imported.for_target(self.targets[0])[1],
            inputs=self.interface.inputs,
            outputs=self.interface.outputs,
            tasks=tuple({task.key: task for program in programs for task in program.tasks}.values()),
            programs={key: text for program in programs for key, text in program.programs.items()},
            spaces={key: space for program in programs for key, space in program.spaces.items()},
        )

    def _steps(self, placed: PlacedModel, merged: Merged) -> Steps:
        """Return the placed model with its copies, in the predicted order of each engine."""
        engines = copy_lanes(self.lanes, placed.problem.direct)
        numbers = {way: len(self.lanes) + number for number, way in enumerate(engines)}
        asked = [(self.values[copy.tensor], copy.link) for copy in placed.placement.copies]
        pieces = with_transfers(placed.pieces, merged, numbers, asked)
        every = (*self.lanes, *engines.values())
        return arrange(dict.fromkeys({lane.threads for lane in every}, merged.flat), pieces, every)

    def _hand_overs(self) -> tuple[HandOver, ...]:
        """The ways between the memories that are used."""
        used = {HOST, *(self.lanes[lane].memory for _, lane in self.where)}
        return tuple(
            HandOver(source or "host", target or "host", link.latency_s, 1.0 / link.bytes_per_s)
            for (source, target), link in self.links.items()
            if {source, target} <= used
        )

    def _copies(self, placed: PlacedModel) -> Iterator[Placed]:
        """Yield when each copy should be made."""
        engines = copy_lanes(self.lanes, placed.problem.direct)
        for copy in simulate_copies(placed.problem, placed.placement):
            name = copy_name(self.values[copy.tensor], copy.link)
            yield Placed(name, engines[copy.link].name, (), copy.start, copy.end)


def _union(target: Target, plans: Sequence[Plan], first: bool = False) -> Plan:
    """One plan for the kernels of all ``plans``: of a task that several have, the fastest, or the first plan's."""
    best: dict[str, Choice] = {}
    for choice in (choice for plan in plans for choice in plan.choices):
        known = best.get(choice.task)
        if known is None or (not first and (choice.latency_s or math.inf) < (known.latency_s or math.inf)):
            best[choice.task] = choice
    return Plan(target, tuple(best[key] for key in sorted(best)))


def _ends(artifact: Artifact) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of inputs and outputs."""
    return tuple(spec.name for spec in artifact.inputs), tuple(spec.name for spec in artifact.outputs)


def _device_part(name: str, artifact: Artifact, memory: str) -> Part:
    """A call that runs a subgraph in a device's memory."""
    flat = device_flat(name, artifact.inputs, artifact.outputs, memory)
    return Part(name, flat, *_ends(artifact), memory)


def _cpu_part(name: str, artifact: Artifact, program: Program, plan: Plan) -> Part:
    """A subgraph's kernel calls."""
    flat = read_flat(apply_plan(program, plan), concats_of(program))
    return Part(name, flat, *_ends(artifact), HOST)


def _link(
    objects: Mapping[int, Mapping[str, Path]], steps: Steps, whole: int, devices: Mapping[str, Path], library: Path
) -> None:
    link_lanes(objects, steps, whole, library)
    for name, artifact in devices.items():
        shutil.copytree(artifact, library.with_name(device_folder(name)))
