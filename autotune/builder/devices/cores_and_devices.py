"""Cores and devices as lanes: a model's subgraphs as artifacts for each lane, priced and put together.

Costs and the ways between memories are measured (lane_costs.py). Each device has a memory of its own, whose size limits
what is placed there. What is placed becomes one artifact like any other (placed_artifact.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.plan import DeviceMemory
from autotune.backends.backend_catalog import backend_of
from autotune.backends.device_interface import Room
from autotune.backends.device_memory import CapacityError, Held, Loaded, aligned, moved_while_faster
from autotune.builder.devices.lane_costs import LaneCosts, LanePart
from autotune.builder.devices.placed_artifact import PlacedParts
from autotune.builder.placing import Candidate, PlacedModel
from autotune.graph.device_problem import INPUTS, OUTPUTS, Costs, Ends, problem_of, spec_bytes, values_of
from autotune.graph.lanes import Lane
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Problem, place_all
from autotune.graph.simulation import simulate
from autotune.interface import TensorSpec
from autotune.measure.measurer import MeasurementBackend
from autotune.options import Options
from autotune.runtime.model_timing import Run, apart, interval, occupied_s, race, ratios, session_run, timelines
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import session_inputs
from schedules.target import Target

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares of its weights that a subgraph is taken to have room for where a device's memory is short. Heuristic."""

CPU_ALONE = "CPU alone"
"""Name of the candidate that runs the whole model on the widest lane of cores."""

LaneNumbers = tuple[int, ...]
"""(n,) lane of every subgraph, the model's inputs and outputs included."""


@dataclass(frozen=True)
class CoresAndDevices:
    """A model on cores and devices, as ``placing.fastest`` wants it.

    Attributes:
        whole: the model.
        parts: its subgraphs, in an order in which they can run; empty where it was not cut.
        joins: value → its parts, as ``Branches``.
        lanes: the cores', then the devices'.
        targets: (n_lanes,) what artifacts for each lane are built for.
        options: of the run; without ``options.device`` nothing is run on devices.
        folder: for artifacts.
        compiler: of the CPU's kernels for a target.
    """

    whole: LanePart
    parts: tuple[LanePart, ...]
    joins: Mapping[str, Sequence[str]]
    lanes: tuple[Lane, ...]
    targets: tuple[Target, ...]
    options: Options
    folder: Path
    compiler: Callable[[Target], MeasurementBackend]

    def cuts(self) -> Iterator[tuple[tuple[Subgraph, ...], Problem]]:
        """Implement ``Source.cuts``; calls are numbered when the subgraphs are put together.

        Where a device has too little memory for all weights, what a subgraph costs there depends on which others are
        there. So it is taken to have room for some shares of its weights, one after the other; next to the CPU on each
        device alone, and on all of them.
        """
        if not self.parts or not self._can_run(range(len(self.lanes)), {}):
            return
        if not self._is_tight:
            yield self._cut(self.parts)
            return
        for allowed in self._choices_of_lanes:
            for share in SHARES:
                at_share = {
                    (name, device): self.measured.capacity(device).at_share(held, share)
                    for device in self._devices
                    for name, held in self._held(device, self.parts).items()
                }
                if self._can_run(allowed, at_share):
                    yield self._cut(self.parts, at_share, allowed)

    def _can_run(self, allowed: Sequence[int], at_share: Mapping[tuple[str, int], float | None]) -> bool:
        """Return whether every subgraph can run on one of the lanes ``allowed``."""
        return all(
            any(at_share.get((part.name, lane), self.costs_of(part).alone[lane]) is not None for lane in allowed)
            for part in self.parts
        )

    def _cut(
        self,
        parts: Sequence[LanePart],
        streaming: Mapping[tuple[str, int], float | None] | None = None,
        allowed: Sequence[int] | None = None,
    ) -> tuple[tuple[Subgraph, ...], Problem]:
        """The subgraphs and what they cost.

        Args:
            streaming: (subgraph, device) → seconds there where weights are streamed; as measured where missing.
            allowed: lanes that may run them; None for all.
        """
        costs = []
        for part in parts:
            cost = self.costs_of(part)
            for device in self._devices:
                if streaming is not None and (part.name, device) in streaming:
                    cost = cost.at(device, streaming[part.name, device])
            costs.append(cost if allowed is None else cost.on(allowed))
        problem, _ = problem_of(self._ends(parts), self._interface, costs, self.lanes, self.measured.links)
        return tuple(Subgraph(name, ()) for name in (INPUTS, *(part.name for part in parts), OUTPUTS)), problem

    @cached_property
    def measured(self) -> LaneCosts:
        """Costs of subgraphs on lanes, and of copies."""
        return LaneCosts(self.lanes, self.targets, self.options)

    def costs(self, part: LanePart) -> Costs:
        """Measure what ``part`` takes on every lane."""
        return self.measured.of(part)

    def costs_of(self, part: LanePart) -> Costs:
        """``costs``, measured once."""
        if part.name not in self._costs:
            self._costs[part.name] = self.costs(part)
        return self._costs[part.name]

    @cached_property
    def _costs(self) -> dict[str, Costs]:
        return {}

    @property
    def _devices(self) -> tuple[int, ...]:
        """Numbers of the lanes that are devices."""
        return tuple(number for number, lane in enumerate(self.lanes) if lane.device)

    @property
    def _choices_of_lanes(self) -> list[LaneNumbers]:
        """The cores with each device, and where there are several devices, with all of them."""
        cores, devices = tuple(n for n, lane in enumerate(self.lanes) if not lane.device), self._devices
        return [*((*cores, device) for device in devices), *([(*cores, *devices)] if len(devices) > 1 else [])]

    def _held(self, device: int, parts: Sequence[LanePart]) -> dict[str, Held]:
        """Return the subgraphs of ``parts`` that the device can run, by name."""
        known = ((part, self.costs_of(part).alone[device]) for part in parts)
        return {
            part.name: Held(self._artifact(part.built[device]), seconds)
            for part, seconds in known
            if seconds is not None and device in part.built
        }

    @cached_property
    def _is_tight(self) -> bool:
        """Whether one device's memory is too small for all subgraphs together."""
        return any(self.parts and not self._keeps_all(device, self.parts) for device in self._devices)

    def _keeps_all(self, device: int, parts: Sequence[LanePart]) -> bool:
        """Return whether all weights of ``parts`` fit into a device's memory; true if its size is not known."""
        size = self.measured.capacity(device).bytes
        room = Room.of(0, 0, [held.part for held in self._held(device, parts).values()])
        return not size or room.inner_bytes + room.weight_bytes + self._between(parts) <= size

    def _between(self, parts: Sequence[LanePart]) -> int:
        """Most bytes of what passes between ``parts`` on a device, and in and out of them."""
        specs = {spec.name: spec for ends in self._ends(parts) for spec in (*ends.inputs, *ends.outputs)}
        return sum(aligned(spec_bytes(spec)) for spec in specs.values())

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        """Implement ``Source.settled``: where memory is short, the fastest, after moves of single subgraphs.

        It is sought with each device alone before all are allowed, so several are never predicted to be slower.
        """
        if not self._is_tight:
            return placements
        known: dict[LaneNumbers, PlacedModel | None] = {}

        def seconds(lanes: LaneNumbers) -> float:
            if lanes not in known:
                known[lanes] = self._settled(self.parts, lanes)
            placed = known[lanes]
            return math.inf if placed is None else placed.predicted_s

        starts = [placed.placement.lanes for placed in placements]
        for allowed in self._choices_of_lanes:
            able = {
                number: tuple(lane for lane in allowed if self.costs_of(part).alone[lane] is not None)
                for number, part in enumerate(self.parts, 1)
            }
            if all(able.values()):
                own = [lanes for lanes in starts if set(lanes) <= set(allowed)]
                start = min([*own, self._filled(able)], key=seconds)
                starts.append(moved_while_faster(start, able, seconds))
        best = known[min(starts, key=seconds)] if starts else None
        return [] if best is None else [best]

    def _filled(self, able: Mapping[int, LaneNumbers]) -> LaneNumbers:
        """Each subgraph on the first device that still has room for all of its weights, else on cores.

        Args:
            able: number of a subgraph → lanes that may run it, one at least.
        """
        lanes, there = list[int](), dict[int, list[LanePart]]()
        for number, part in enumerate(self.parts, 1):
            order = sorted(able[number], key=lambda lane: not self.lanes[lane].device)
            roomy = (
                lane
                for lane in order
                if not self.lanes[lane].device or self._keeps_all(lane, [*there.get(lane, ()), part])
            )
            lanes.append(next(roomy, order[-1]))
            there.setdefault(lanes[-1], []).append(part)
        return (0, *lanes, 0)

    def fits(self, placed: PlacedModel) -> bool:
        """Implement ``Source.fits``."""
        return not self._is_tight or self._settled(self.parts, placed.placement.lanes) is not None

    def _settled(self, parts: Sequence[LanePart], lanes: LaneNumbers) -> PlacedModel | None:
        """``parts`` on ``lanes``, at what they cost in the devices' memory together; None if they do not fit."""
        try:
            loaded = self._loaded(list(zip(parts, lanes[1:-1], strict=True)))
        except CapacityError:
            return None
        streaming = {(name, device): taken for device, one in loaded.items() for name, taken in one.seconds.items()}
        subgraphs, problem = self._cut(parts, streaming)
        placement = place_all(problem, lanes)
        memory = tuple(one.memory for one in loaded.values())
        return PlacedModel(subgraphs, problem, placement, simulate(problem, placement), devices=memory)

    def _loaded(
        self, where: Sequence[tuple[LanePart, int]], arenas: Mapping[str, int] | None = None
    ) -> dict[int, Loaded]:
        """Return what lies in the memory of each device that runs a subgraph.

        Args:
            where: subgraphs and their lanes.
            arenas: memory → bytes of what passes between its subgraphs; None for the most that it may be.

        Raises:
            CapacityError: if they do not fit.
        """
        loaded: dict[int, Loaded] = {}
        for device in self._devices:
            there = [part for part, lane in where if lane == device]
            held = self._held(device, there)
            if len(held) < len(there):
                raise CapacityError(f"a subgraph cannot run on {self.lanes[device].name}")
            if there:
                arena = self._between(there) if arenas is None else arenas.get(self.lanes[device].memory, 0)
                loaded[device] = self.measured.capacity(device).loaded(held, arena)
        return loaded

    def _ends(self, parts: Sequence[LanePart]) -> list[Ends]:
        """Return the inputs and outputs of ``parts``; a joined value counts as its parts."""
        ends = [self._ends_of(part) for part in parts]
        specs = {spec.name: spec for own in ends for spec in own.outputs}

        def pieces(spec: TensorSpec) -> list[TensorSpec]:
            return [specs[name] for name in self.joins[spec.name]] if spec.name in self.joins else [spec]

        return [replace(own, inputs=tuple(p for spec in own.inputs for p in pieces(spec))) for own in ends]

    def _ends_of(self, part: LanePart) -> Ends:
        """Return the inputs and outputs of a tuned part."""
        artifact = self._artifact(next(iter(part.built.values())))
        return Ends(part.name, artifact.inputs, artifact.outputs)

    @cached_property
    def _artifact(self) -> Callable[[Path], Artifact]:
        """The artifact at a path, whose weights are hashed when it is read first."""
        return cache(read_artifact)

    @property
    def _interface(self) -> Ends:
        return self._ends_of(self.whole)

    @property
    def _alone(self) -> dict[str, int]:
        """Candidate → the lane that runs the whole model: the widest of the cores', and each device."""
        able = [number for number in range(len(self.lanes)) if number in self.whole.built]
        cores = [number for number in able if not self.lanes[number].device]
        widest = {CPU_ALONE: max(cores, key=lambda number: self.lanes[number].threads)} if cores else {}
        return widest | {f"{self.lanes[number].name} alone": number for number in able if self.lanes[number].device}

    def one_lane(self) -> list[Candidate[Path]]:
        """Implement ``Source.one_lane``: on one of several devices that differ in nothing."""
        candidates: list[Candidate[Path]] = []
        kinds = set[int]()
        for name, lane in self._alone.items():
            if self.measured.like(lane) in kinds:
                continue
            path = self._device_alone(lane) if self.lanes[lane].device else self.whole.built[lane]
            if path is not None:
                kinds.add(self.measured.like(lane))
                candidates.append(Candidate(name, path))
        return candidates

    def _device_alone(self, device: int) -> Path | None:
        """The artifact of the whole model on a device: its own, where that uses this device and keeps to its limit.

        None if it does not fit.
        """
        lane, backend = self.lanes[device], backend_of(self.targets[device])
        usual = not backend.has_lanes and backend.lanes(self.options, self.targets[device])[0].device == lane.device
        if usual and not lane.limit_bytes:
            return self.whole.built[device]
        placed = self._settled([self.whole], (0, device, 0))
        return None if placed is None else self._written(f"alone-{device}", placed)

    def seconds(self, candidates: Sequence[Candidate[Path]]) -> list[float]:
        """Implement ``Source.seconds``: measured where the devices are here, else as predicted."""
        if self.options.device and self._is_tight:
            return [statistics.median(self._apart(candidate)) for candidate in candidates]
        if self.options.device:
            return race([self._run(candidate.executable) for candidate in candidates])
        alone = self._alone
        predicted = (
            candidate.placed or self._settled([self.whole], (0, alone[candidate.name], 0)) for candidate in candidates
        )
        return [math.inf if model is None else model.predicted_s for model in predicted]

    def ratios(self, one: Candidate[Path], other: Candidate[Path]) -> Sequence[float]:
        """Implement ``Source.ratios``: measured where the devices are here, else as predicted."""
        if self.options.device and self._is_tight:
            return interval([a / b for a, b in zip(self._apart(one), self._apart(other), strict=True)])
        if self.options.device:
            return ratios(self._run(one.executable), self._run(other.executable))
        before, after = self.seconds([one, other])
        return [before / after] * 3

    def taken(self, candidate: Candidate[Path], _number: int) -> Mapping[str, float]:
        """Implement ``Source.taken``: measured where the devices are here, else unknown."""
        if not self.options.device:
            return {}
        session = InferenceSession(candidate.executable)
        feed = session_inputs(session, self.options.seed)
        return occupied_s(timelines(lambda: session.timeline(feed)), session.lanes)

    def _run(self, path: Path) -> Run:
        session = InferenceSession(path)
        return session_run(session, session_inputs(session, self.options.seed))

    def _apart(self, candidate: Candidate[Path]) -> list[float]:
        """Seconds of runs while no other candidate is open: two may not fit into a device's memory."""
        return apart(self._run(candidate.executable))

    def make(self, number: int, placed: PlacedModel) -> Path:
        """Implement ``Source.make``: an artifact."""
        return self._written(f"placed-{number}", placed)

    def _written(self, name: str, placed: PlacedModel) -> Path:
        """The artifact of ``placed``, in the folder ``name``."""
        by_name = {part.name: part for part in (self.whole, *self.parts)}
        pairs = zip(placed.subgraphs, placed.placement.lanes, strict=True)
        where = tuple((by_name[subgraph.name], lane) for subgraph, lane in pairs if subgraph.name in by_name)
        values, path = values_of(self._ends([part for part, _ in where]), self._interface), self.folder / name

        def memory_of(arenas: Mapping[str, int]) -> tuple[DeviceMemory, ...]:
            return tuple(loaded.memory for loaded in self._loaded(where, arenas).values())

        parts = PlacedParts(
            self.whole,
            self._interface,
            where,
            values,
            self.joins,
            self.lanes,
            self.targets,
            self.options,
            self.measured.links,
            self.compiler,
        )
        parts.write(path, placed, memory_of)
        return path
