"""Costs of subgraphs on lanes of cores and on devices, and of copies between their memories.

A subgraph's cost on a device is that of running it on what lies in the device's memory. Copies are priced by the bytes
of each value and the measured way between two memories; the model's inputs and outputs lie in the host's memory.
Without a device at hand its cost is a bound: the roofline of the data sheet at ``EFFICIENCY`` and a launch per kernel,
with copies at ``COPY_BYTES_PER_S``.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path

from autotune.artifact.directory import read_artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import link_kernels
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import OutOfMemoryError, Room
from autotune.backends.device_memory import DeviceCapacity, aligned
from autotune.builder import device_profiles
from autotune.builder.build_request import ImportedModel
from autotune.graph.device_problem import Costs, Row, spec_bytes
from autotune.graph.lanes import HOST, Lane, Way, cpu_lane
from autotune.graph.placement import Link
from autotune.host.machine import thread_cpus
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.host.roofline import Roofline
from autotune.importer.program import Program
from autotune.options import Options
from autotune.runtime.model_timing import Run, at_work, median_s
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.validation.verify import random_inputs
from schedules.target import Target

logger = logging.getLogger(__name__)

EFFICIENCY = 0.5
"""Share of a GPU's roofline that a tuned kernel of a small batch is taken to reach. A guess, used without a device."""

LAUNCH_S = 3e-6
"""Seconds to launch a kernel of a CUDA graph. A guess, used without a device."""

HAND_OVER_S = 10e-6
"""Seconds of a copy's latency, and of launching a graph and waiting for it. A guess, used without a device."""

COPY_BYTES_PER_S = 20e9
"""Bytes per second of a copy; PCIe 4 × 16 is bounded by 32 GB/s. A guess, used without a device."""

PROFILE_S = 0.1
"""Seconds for which a subgraph is timed on a lane. Heuristic, not measured."""


@dataclass(frozen=True)
class LanePart:
    """A subgraph, or the whole model, as tuned artifacts.

    Attributes:
        name: of the subgraph; ``model`` for the whole.
        imported: it, as the importer leaves it.
        built: number of a lane → its artifact there; lanes that cannot run it are missing.
    """

    name: str
    imported: ImportedModel
    built: Mapping[int, Path]


@dataclass(frozen=True)
class LaneCosts:
    """Measures what subgraphs and copies take. Lanes that differ in nothing are measured once.

    Attributes:
        lanes: the cores', then the devices'.
        targets: (n_lanes,) what artifacts for each lane are built for.
        options: of the run; without ``options.device`` nothing is run on devices.
    """

    lanes: tuple[Lane, ...]
    targets: tuple[Target, ...]
    options: Options

    def of(self, part: LanePart) -> Costs:
        """Return what ``part`` takes on every lane, its copies not counted."""
        if self.options.device:
            for lane in part.built:
                if self.lanes[lane].device:
                    self.capacity(lane)  # before the part's own weights take memory there
        with ExitStack() as stack:
            opened = {lane: self._opened(stack, part, lane) for lane in range(len(self.lanes))}
            runs = {lane: run for lane, run in opened.items() if run is not None}
            timed = {lane: next(other for other in runs if self.like(other) == self.like(lane)) for lane in runs}
            first = list(dict.fromkeys(timed.values()))
            alone = {lane: median_s(runs[lane], PROFILE_S) for lane in first}
            kinds = sorted({self.lanes[lane].kind for lane in runs})
            beside = {kind: {lane: self._busy_s(runs, lane, kind, alone[lane]) for lane in first} for kind in kinds}
        extra = {lane: self._extra_s(part, lane, alone[lane]) for lane in first if self.lanes[lane].device}
        bounds = {} if self.options.device else self._bounds(part)

        def row(seconds: Mapping[int, float]) -> Row:
            known = {lane: seconds[other] + extra.get(other, 0.0) for lane, other in timed.items()} | bounds
            return tuple(known.get(lane) for lane in range(len(self.lanes)))

        return Costs(row(alone), {kind: row(busy) for kind, busy in beside.items()})

    def like(self, lane: int) -> int:
        """Return the first lane that a subgraph takes as long on."""
        kinds = [(own.kind, target, own.limit_bytes) for own, target in zip(self.lanes, self.targets, strict=True)]
        return kinds.index(kinds[lane])

    def _opened(self, stack: ExitStack, part: LanePart, number: int) -> Run | None:
        """A run of ``part`` on a lane, which ends with ``stack``; None where it cannot run, or there is no device."""
        lane, path = self.lanes[number], part.built.get(number)
        if path is None or (lane.device and not self.options.device):
            return None
        artifact = read_artifact(path)
        if lane.device:
            try:
                backend = backend_of(self.targets[number])
                return stack.enter_context(device_profiles.resident_run(backend, lane, artifact))
            except OutOfMemoryError as error:
                logger.info("subgraph %s does not run on %s: %s", part.name, lane.name, error)
                return None
        # What its kernels take: not what calling them from Python does, nor waiting for its lock.
        count = artifact.target.threads
        executor = OneShapeExecutor(artifact, None, thread_cpus(lane.first + count)[lane.first :])
        feed = random_inputs(artifact.inputs, self.options.seed)
        arrays = [feed[spec.name] for spec in artifact.inputs]
        return lambda: max((span.ended_s for span in executor.timeline(arrays)), default=0.0)

    def _busy_s(self, runs: Mapping[int, Run], lane: int, kind: str, alone_s: float) -> float:
        """Seconds on ``lane`` while the others of ``kind`` that can run next to it run the same."""
        taken, others = set(self.lanes[lane].cores), list[int]()
        for number in runs:
            other = self.lanes[number]
            if other.kind == kind and not taken & set(other.cores):
                others.append(number)
                taken |= set(other.cores)
        if not others:
            return alone_s
        with ExitStack() as stack:
            for number in others:
                stack.enter_context(at_work(runs[number]))
            return max(alone_s, median_s(runs[lane], PROFILE_S))

    def _extra_s(self, part: LanePart, lane: int, alone_s: float) -> float:
        """Seconds that handing over takes on a device, less those of weights that were streamed when it was timed."""
        own = read_artifact(part.built[lane])
        between = sum(aligned(spec_bytes(spec)) for spec in (*own.inputs, *own.outputs))
        return self.capacity(lane).resident(own, between, alone_s) - alone_s + self.hand_over_s(lane)

    def _bounds(self, part: LanePart) -> dict[int, float]:
        """Seconds on devices that are not at hand."""
        bounds: dict[int, float] = {}
        for number, target in enumerate(self.targets):
            if self.lanes[number].device and number in part.built:
                program = part.imported.for_target(target)[1]
                bounds[number] = device_bound_s(program, backend_of(target).roofline(target))
        return bounds

    @cached_property
    def capacity(self) -> Callable[[int], DeviceCapacity]:
        """The memory of a device, by its lane; measured once."""
        return cache(self._measured_capacity)

    def _measured_capacity(self, number: int) -> DeviceCapacity:
        lane, backend = self.lanes[number], backend_of(self.targets[number])
        if not self.options.device:
            return DeviceCapacity(lane.memory, lane.limit_bytes, Link(HAND_OVER_S, COPY_BYTES_PER_S))
        with closing(backend.device(lane, Room(KERNEL_ALIGNMENT, lane.limit_bytes))) as device:
            size = device.used_bytes + device.free_bytes
        return DeviceCapacity(lane.memory, size, device_profiles.weight_link(backend, lane))

    @cached_property
    def links(self) -> Mapping[Way, Link]:
        """The ways between the memories of the lanes."""
        devices = [number for number, lane in enumerate(self.lanes) if lane.device]
        if not self.options.device:
            memories = [self.lanes[number].memory for number in devices]
            ways = [way for memory in memories for way in ((HOST, memory), (memory, HOST))]
            return dict.fromkeys(ways, Link(HAND_OVER_S, COPY_BYTES_PER_S))
        links: dict[Way, Link] = {}
        for number in devices:
            links |= self._handed_over(self.bare_links(number), number)
        for one, other in combinations(devices, 2):
            links |= self._direct(one, other, links)
        return links

    def _direct(self, one: int, other: int, through_host: Mapping[Way, Link]) -> dict[Way, Link]:
        """The ways between two devices that are faster than those through the host's memory."""
        if backend_of(self.targets[one]) is not backend_of(self.targets[other]):
            return {}
        bare = device_profiles.measured_direct(backend_of(self.targets[one]), self.lanes[one], self.lanes[other])
        size = device_profiles.LARGE
        return {
            (source, target): link
            for (source, target), link in self._handed_over(bare, one).items()
            if link.seconds(size) < sum(through_host[leg].seconds(size) for leg in ((source, HOST), (HOST, target)))
        }

    def _handed_over(self, bare: Mapping[Way, Link], lane: int) -> dict[Way, Link]:
        """``bare`` with what the driver adds to every copy."""
        extra = self.hand_over_s(lane)
        return {way: Link(link.latency_s + extra, link.bytes_per_s) for way, link in bare.items()}

    @cached_property
    def bare_links(self) -> Callable[[int], Mapping[Way, Link]]:
        """The ways to a device and back, by its lane, as a thread finds them that calls it; measured once."""
        return cache(lambda n: device_profiles.measured_links(backend_of(self.targets[n]), self.lanes[n]))

    @cached_property
    def hand_over_s(self) -> Callable[[int], float]:
        """The seconds that the driver of lanes adds to what a device does, by its lane; measured once."""
        return cache(self._measured_hand_over_s)

    def _measured_hand_over_s(self, number: int) -> float:
        lane, backend = self.lanes[number], backend_of(self.targets[number])
        with tempfile.TemporaryDirectory(prefix="tune-driver-") as folder:
            link_kernels({}, Path(folder) / "driver.so")
            library = NativeLibrary(Path(folder) / "driver.so")
            with closing(backend.device(lane, Room(KERNEL_ALIGNMENT))) as device:
                return device_profiles.hand_over_s(device, (cpu_lane(0, 1), lane), library, self.bare_links(number))


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
