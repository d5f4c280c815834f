"""A CPU and a device as lanes: a model's subgraphs as artifacts for each of the two, priced and put together.

A subgraph's cost on a device is that of running it on what lies in the device's memory. Copies are priced by the bytes
of each value and the measured way to the device and back; the model's inputs and outputs lie in the host's memory.
Where no device is at hand its cost is a bound: the roofline of the data sheet at ``EFFICIENCY`` and a launch per
kernel, with copies at ``COPY_BYTES_PER_S``.

What is placed becomes one artifact like any other. The subgraphs of the CPU are one flat program with groups of calls
on a lane (graph/merge.py). What the device runs lies in folders of its own, called by a thread of the same driver, and
the device's copy engines have threads too.
"""

from __future__ import annotations

import logging
import math
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import Artifact, device_folder, read_artifact, write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.manifest import sha256
from autotune.artifact.plan import Choice, Placed, Plan
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import compile_kernels, concats_of, link_kernels
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import OutOfMemoryError, Room
from autotune.backends.device_memory import CapacityError, DeviceCapacity, Held, Loaded, aligned, moved_while_faster
from autotune.builder.build_request import ImportedModel
from autotune.builder.device_build import NOT_RUN
from autotune.builder.device_profiles import hand_over_s, measured_links, resident_run, weight_link
from autotune.builder.placing import Candidate, PlacedModel
from autotune.graph.device_problem import INPUTS, OUTPUTS, Costs, Ends, problem_of, spec_bytes, values_of
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import HOST, Lane, Way, copy_lanes
from autotune.graph.merge import Merged, Part, copy_name, device_flat, merge, with_transfers
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Problem, place_all
from autotune.graph.simulation import simulate, simulate_copies
from autotune.graph.steps import Steps, arrange
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.host.roofline import Roofline
from autotune.importer.program import Program
from autotune.interface import TensorSpec
from autotune.measure.measurer import MeasurementBackend
from autotune.options import Options
from autotune.runtime.model_timing import (
    Run,
    apart,
    at_work,
    interval,
    median_s,
    occupied_s,
    race,
    ratios,
    session_run,
    timelines,
)
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import session_inputs
from schedules.target import Target
from schedules.vocabulary.errors import ModelError

logger = logging.getLogger(__name__)

EFFICIENCY = 0.5
"""Share of a GPU's roofline that a tuned kernel of a small batch is taken to reach. A guess, used without a device."""

LAUNCH_S = 3e-6
"""Seconds to launch a kernel of a CUDA graph. A guess, used without a device."""

HAND_OVER_S = 10e-6
"""Seconds of a copy's latency, and of launching a graph and waiting for it. A guess, used without a device."""

COPY_BYTES_PER_S = 20e9
"""Through PCIe 4 × 16, whose bound is 32 GB/s. A guess, used without a device."""

PROFILE_S = 0.1
"""Seconds for which a subgraph is timed on a lane. Heuristic, not measured."""

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares of its weights that a subgraph is taken to have room for where a device's memory is short. Heuristic."""

DEVICE_ALONE = "device alone"
"""Name of the candidate that runs the whole model on the device."""


@dataclass(frozen=True)
class TunedPart:
    """A subgraph, or the whole model, as tuned artifacts.

    Attributes:
        name: of the subgraph; ``model`` for the whole.
        imported: it, as the importer leaves it.
        cpu, device: artifacts; None where a device cannot run it.
    """

    name: str
    imported: ImportedModel
    cpu: Path
    device: Path | None


@dataclass(frozen=True)
class CpuAndDevice:
    """A model on a CPU and a device, as ``placing.fastest`` wants it.

    Attributes:
        whole: the model.
        parts: its subgraphs, in an order in which they can run; empty where it was not cut.
        joins: value → its parts, as ``Branches``.
        lanes: the CPU's and the device's.
        cpu, device: what the artifacts of parts were built for.
        options: of the run; without ``options.device`` nothing is run on the device.
        folder: for artifacts.
        measurer: of the run; compiles the CPU's kernels.
    """

    whole: TunedPart
    parts: tuple[TunedPart, ...]
    joins: Mapping[str, Sequence[str]]
    lanes: tuple[Lane, Lane]
    cpu: Target
    device: Target
    options: Options
    folder: Path
    measurer: MeasurementBackend

    def cuts(self) -> Iterator[tuple[tuple[Subgraph, ...], Problem]]:
        """Implement ``Source.cuts``; calls are numbered when the subgraphs are put together.

        Where not all weights fit into the device's memory, what a subgraph costs there depends on which others are
        there. So it is taken to have room for some shares of its weights, one after the other.
        """
        for share in SHARES if self._is_tight else SHARES[:1] if self.parts else ():
            at_share = {name: self._capacity.at_share(held, share) for name, held in self._held(self.parts).items()}
            yield self._cut(self.parts, at_share if self._is_tight else None)

    def _cut(
        self, parts: Sequence[TunedPart], device_s: Mapping[str, float | None] | None = None
    ) -> tuple[tuple[Subgraph, ...], Problem]:
        """The subgraphs and what they cost.

        Args:
            device_s: what they take on the device where weights are streamed; as with all of them there where missing.
        """
        costs = [
            self._known_costs(part).streaming(device_s[part.name])
            if device_s is not None and part.name in device_s
            else self._known_costs(part)
            for part in parts
        ]
        problem, _ = problem_of(self._ends(parts), self._interface, costs, self.lanes, self._links)
        return tuple(Subgraph(name, ()) for name in (INPUTS, *(part.name for part in parts), OUTPUTS)), problem

    def _known_costs(self, part: TunedPart) -> Costs:
        """``costs``, measured once."""
        if part.name not in self._costs:
            self._costs[part.name] = self.costs(part)
        return self._costs[part.name]

    @cached_property
    def _costs(self) -> dict[str, Costs]:
        return {}

    def _held(self, parts: Sequence[TunedPart]) -> dict[str, Held]:
        """Those of ``parts`` that the device can run."""
        known = ((part, self._known_costs(part).device) for part in parts)
        return {
            part.name: Held(read_artifact(part.device), seconds)
            for part, seconds in known
            if part.device is not None and seconds is not None
        }

    @cached_property
    def _capacity(self) -> DeviceCapacity:
        """The device's memory."""
        lane, backend = self.lanes[1], backend_of(self.device)
        if not self.options.device:
            return DeviceCapacity(lane.memory, lane.limit_bytes, Link(HAND_OVER_S, COPY_BYTES_PER_S))
        with closing(backend.device(lane, Room(KERNEL_ALIGNMENT, lane.limit_bytes))) as device:
            size = device.used_bytes + device.free_bytes
        return DeviceCapacity(lane.memory, size, weight_link(backend, lane))

    @cached_property
    def _is_tight(self) -> bool:
        """Whether the device's memory is too small for all subgraphs together."""
        if not self.parts or not self._capacity.bytes:
            return False
        room = Room.of(0, 0, [held.part for held in self._held(self.parts).values()])
        return room.inner_bytes + room.weight_bytes + self._between(self.parts) > self._capacity.bytes

    def _between(self, parts: Sequence[TunedPart]) -> int:
        """Most bytes of what passes between ``parts`` on the device, and in and out of them."""
        specs = {spec.name: spec for ends in self._ends(parts) for spec in (*ends.inputs, *ends.outputs)}
        return sum(aligned(spec_bytes(spec)) for spec in specs.values())

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        """Implement ``Source.settled``: where memory is short, the fastest, after moves of single subgraphs."""
        if not self._is_tight or not placements:
            return placements
        count = len(self.parts)
        known: dict[tuple[int, ...], PlacedModel | None] = {}

        def seconds(lanes: tuple[int, ...]) -> float:
            if lanes not in known:
                known[lanes] = self._settled(self.parts, lanes)
            placed = known[lanes]
            return math.inf if placed is None else placed.predicted_s

        start = min((placed.placement.lanes for placed in placements), key=seconds)
        held = self._held(self.parts)
        able = {n: (0, 1) for n, part in enumerate(self.parts, 1) if part.name in held}
        best = known.get(moved_while_faster(start if len(start) == count + 2 else (0,) * (count + 2), able, seconds))
        return [] if best is None else [best]

    def fits(self, placed: PlacedModel) -> bool:
        """Implement ``Source.fits``."""
        return not self._is_tight or self._settled(self.parts, placed.placement.lanes) is not None

    def _settled(
        self, parts: Sequence[TunedPart], lanes: Sequence[int], arena_bytes: int | None = None
    ) -> PlacedModel | None:
        """``parts`` on ``lanes``, at what they cost in the device's memory together; None if they do not fit.

        Args:
            lanes: of the subgraphs as ``_cut`` has them, inputs and outputs included.
            arena_bytes: of what passes between those on the device; None for the most that it may be.
        """
        there = [part for part, lane in zip(parts, lanes[1:-1], strict=True) if lane]
        try:
            loaded = self._loaded(there, arena_bytes)
        except CapacityError:
            return None
        subgraphs, problem = self._cut(parts, loaded.seconds)
        placement = place_all(problem, lanes)
        return PlacedModel(subgraphs, problem, placement, simulate(problem, placement), devices=(loaded.memory,))

    def _loaded(self, parts: Sequence[TunedPart], arena_bytes: int | None) -> Loaded:
        """``parts`` in the device's memory.

        Raises:
            CapacityError: if they do not fit.
        """
        held = self._held(parts)
        if len(held) < len(parts):
            raise CapacityError("a subgraph cannot run on the device")
        return self._capacity.loaded(held, self._between(parts) if arena_bytes is None else arena_bytes)

    def _ends(self, parts: Sequence[TunedPart]) -> list[Ends]:
        """What parts read and write; what is joined in place is as many values as it has parts."""
        ends = [_ends_of(part.name, part.cpu) for part in parts]
        made = {spec.name: spec for each in ends for spec in each.outputs}

        def pieces(spec: TensorSpec) -> list[TensorSpec]:
            return [made[name] for name in self.joins[spec.name]] if spec.name in self.joins else [spec]

        return [replace(each, inputs=tuple(p for spec in each.inputs for p in pieces(spec))) for each in ends]

    @property
    def _interface(self) -> Ends:
        return _ends_of(self.whole.name, self.whole.cpu)

    @cached_property
    def _links(self) -> Mapping[Way, Link]:
        """The ways to the device and back."""
        lane = self.lanes[1]
        if not self.options.device:
            return dict.fromkeys([(HOST, lane.memory), (lane.memory, HOST)], Link(HAND_OVER_S, COPY_BYTES_PER_S))
        return {
            way: Link(link.latency_s + self._hand_over_s, link.bytes_per_s) for way, link in self._bare_links.items()
        }

    @cached_property
    def _bare_links(self) -> Mapping[Way, Link]:
        """The ways as a thread finds them that calls the device itself."""
        return measured_links(backend_of(self.device), self.lanes[1])

    @cached_property
    def _hand_over_s(self) -> float:
        """Seconds that the driver adds to what the device does."""
        library = NativeLibrary(read_artifact(self.whole.cpu).library)
        with closing(backend_of(self.device).device(self.lanes[1], Room(KERNEL_ALIGNMENT))) as device:
            return hand_over_s(device, self.lanes, library, self._bare_links)

    def one_lane(self) -> list[Candidate[Path]]:
        """Implement ``Source.one_lane``."""
        alone = None if self.whole.device is None else self._device_alone()
        return [Candidate("CPU alone", self.whole.cpu), *([] if alone is None else [Candidate(DEVICE_ALONE, alone)])]

    def _device_alone(self) -> Path | None:
        """The artifact of the whole model on the device: its own, where that keeps to the lane's memory.

        None if it does not fit.
        """
        assert self.whole.device is not None
        if not self.lanes[1].limit_bytes and not backend_of(self.device).has_lanes:
            return self.whole.device
        placed = self._settled([self.whole], (0, 1, 0))
        return None if placed is None else self.make(0, placed)

    def seconds(self, candidates: Sequence[Candidate[Path]]) -> list[float]:
        """Implement ``Source.seconds``: measured where the device is here, else as predicted."""
        if self.options.device and self._is_tight:
            return [statistics.median(self._apart(candidate)) for candidate in candidates]
        if self.options.device:
            return race([self._run(candidate.made) for candidate in candidates])
        alone = {False: (0, 0, 0), True: (0, 1, 0)}
        predicted = (
            candidate.placed or self._settled([self.whole], alone[candidate.name == DEVICE_ALONE])
            for candidate in candidates
        )
        return [math.inf if model is None else model.predicted_s for model in predicted]

    def ratios(self, one: Candidate[Path], other: Candidate[Path]) -> Sequence[float]:
        """Implement ``Source.ratios``: measured where the device is here, else as predicted."""
        if self.options.device and self._is_tight:
            return interval([a / b for a, b in zip(self._apart(one), self._apart(other), strict=True)])
        if self.options.device:
            return ratios(self._run(one.made), self._run(other.made))
        before, after = self.seconds([one, other])
        return [before / after] * 3

    def taken(self, candidate: Candidate[Path], _number: int) -> Mapping[str, float]:
        """Implement ``Source.taken``: measured where the device is here, else unknown."""
        if not self.options.device:
            return {}
        session = InferenceSession(candidate.made)
        feed = session_inputs(session, self.options.seed)
        return occupied_s(timelines(lambda: session.timeline(feed)), session.lanes)

    def costs(self, part: TunedPart) -> Costs:
        """What ``part`` takes on either lane, its copies not counted."""
        cpu = self._kernels(part.cpu)
        alone = median_s(cpu, PROFILE_S)
        if part.device is None:
            return Costs(alone, None, alone, None)
        backend = backend_of(self.device)
        if not self.options.device:
            bound_s = device_bound_s(part.imported.for_target(self.device)[1], backend.roofline(self.device))
            return Costs(alone, bound_s, alone, bound_s)
        own = read_artifact(part.device)
        try:
            with resident_run(backend, self.lanes[1], own) as device:
                device_alone = median_s(device, PROFILE_S)
                with at_work(device):
                    busy = median_s(cpu, PROFILE_S)
                with at_work(cpu):
                    device_busy = max(device_alone, median_s(device, PROFILE_S))
        except OutOfMemoryError as error:
            logger.info("subgraph %s stays on the CPU: %s", part.name, error)
            return Costs(alone, None, alone, None)
        between = sum(aligned(spec_bytes(spec)) for spec in (*own.inputs, *own.outputs))
        resident = self._capacity.resident(own, between, device_alone)
        device_busy += resident - device_alone
        return Costs(alone, resident + self._hand_over_s, max(alone, busy), device_busy + self._hand_over_s)

    def _run(self, path: Path) -> Run:
        session = InferenceSession(path)
        return session_run(session, session_inputs(session, self.options.seed))

    def _apart(self, candidate: Candidate[Path]) -> list[float]:
        """Seconds of runs while no other candidate is open: two may not fit into the device's memory."""
        return apart(self._run(candidate.made))

    def _kernels(self, path: Path) -> Run:
        """A run that returns what the kernels took: not what calling them from Python did, nor waiting for its lock."""
        session = InferenceSession(path)
        feed = session_inputs(session, self.options.seed)
        return lambda: max((span.ended_s for span in session.timeline(feed)), default=0.0)

    def make(self, number: int, placed: PlacedModel) -> Path:
        """Implement ``Source.make``: an artifact."""
        by_name = {part.name: part for part in (self.whole, *self.parts)}
        where = [
            (by_name[subgraph.name], lane)
            for subgraph, lane in zip(placed.subgraphs, placed.placement.lanes, strict=True)
            if subgraph.name in by_name
        ]
        devices = {part.name: part.device for part, lane in where if lane and part.device is not None}
        opened = {part.name: read_artifact(devices.get(part.name, part.cpu)) for part, _ in where}
        programs = {part.name: part.imported.for_target(self.cpu)[1] for part, lane in where if not lane}
        kernels = _union(self.cpu, [opened[name].plan for name in programs])
        memory = self.lanes[1].memory
        flats = [_part(name, artifact, programs.get(name), kernels, memory) for name, artifact in opened.items()]
        inputs, outputs = ([spec.name for spec in specs] for specs in (self._interface.inputs, self._interface.outputs))
        merged = merge(flats, inputs, outputs, self.joins)
        calls = dict(zip(opened, merged.calls, strict=True))
        values = values_of(self._ends([part for part, _ in where]), self._interface)
        placed = replace(
            placed,
            subgraphs=tuple(Subgraph(s.name, calls.get(s.name, ())) for s in placed.subgraphs),
            copies=tuple(self._copies(placed, values)),
        )
        steps = self._steps(placed, merged, values)
        there = [part for part, lane in where if lane]
        arena = dict(steps.device_bytes).get(self.lanes[1].memory, 0)
        placed = replace(placed, devices=(self._loaded(there, arena).memory,) if there else ())
        program = _program(list(programs.values()), self.whole, self.cpu, self._interface, steps)
        plan = replace(kernels, lanes=placed.plan(self.options.lanes, {}))
        file = self.whole.imported.path
        provenance: dict[str, Any] = {"model": file.name, "sha256": sha256(file)}
        if not self.options.device:
            provenance["unverified"] = NOT_RUN
        path = self.folder / f"placed-{number}"
        objects = compile_kernels(program, kernels, self.measurer)
        link = partial(_link, {step.symbol: objects[step.symbol] for step in steps.calls if step.symbol in objects})
        write_artifact(path, program, plan, steps, identity(program, plan), provenance, partial(link, devices))
        return path

    def _steps(self, placed: PlacedModel, merged: Merged, values: Sequence[str]) -> Steps:
        """What was placed with its copies, which each engine makes in the order that was predicted."""
        engines = copy_lanes(self.lanes)
        numbers = {way: len(self.lanes) + number for number, way in enumerate(engines)}
        asked = [(values[copy.tensor], copy.link) for copy in placed.placement.copies]
        pieces = with_transfers(placed.pieces, merged, numbers, asked)
        flats = {self.lanes[0].threads: merged.flat, 1: merged.flat}
        return arrange(flats, pieces, (*self.lanes, *engines.values()))

    def _copies(self, placed: PlacedModel, values: Sequence[str]) -> Iterator[Placed]:
        """When each copy should be made."""
        engines = copy_lanes(self.lanes)
        for copy in simulate_copies(placed.problem, placed.placement):
            yield Placed(copy_name(values[copy.tensor], copy.link), engines[copy.link].name, (), copy.start, copy.end)


def _ends_of(name: str, path: Path) -> Ends:
    """Inputs and outputs of the artifact at ``path``."""
    artifact = read_artifact(path)
    return Ends(name, artifact.inputs, artifact.outputs)


def device_bound_s(program: Program, roofline: Roofline) -> float:
    """Seconds that ``program`` should take on a device that is not at hand, on what lies in its memory.

    Args:
        program: imported for the device.
        roofline: of the device, by its data sheet.
    """
    kernels = sum(
        task.weight
        * (LAUNCH_S + roofline.bound_s(int(task.flop / program.spaces[task.key].saving), task.bytes) / EFFICIENCY)
        for task in program.tasks
    )
    return kernels + HAND_OVER_S


def _union(target: Target, plans: Sequence[Plan]) -> Plan:
    """One plan for the kernels of all ``plans``: of a task that several have, the fastest."""
    best: dict[str, Choice] = {}
    for choice in (choice for plan in plans for choice in plan.choices):
        known = best.get(choice.task)
        if known is None or (choice.latency_s or math.inf) < (known.latency_s or math.inf):
            best[choice.task] = choice
    return Plan(target, tuple(best[key] for key in sorted(best)))


def _part(name: str, artifact: Artifact, program: Program | None, plan: Plan, memory: str) -> Part:
    """A subgraph's calls: kernels where it was placed on the CPU (``program``), else one that runs it in ``memory``."""
    inputs, outputs = (tuple(spec.name for spec in specs) for specs in (artifact.inputs, artifact.outputs))
    if program is None:
        return Part(name, device_flat(name, artifact.inputs, artifact.outputs, memory), inputs, outputs, memory)
    flat = read_flat(apply_plan(program, plan), concats_of(program))
    if flat is None:
        raise ModelError(
            f"subgraph {name} has operators whose shapes depend on data, and cannot be placed; give --lanes cpu"
        )
    return Part(name, flat, inputs, outputs)


def _program(programs: Sequence[Program], whole: TunedPart, cpu: Target, interface: Ends, steps: Steps) -> Program:
    """What is kept of the CPU's programs: their kernels, under the whole model's interface."""
    return replace(
        programs[0] if programs else whole.imported.for_target(cpu)[1],
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
