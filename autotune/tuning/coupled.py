"""``tune run --lanes cpu,cuda:0``: a model on cores and devices together, or on the one lane that is faster.

The model is cut before fusion (builder/branches.py). It and every subgraph are tuned and built for each kind of lane
that may run it, each an artifact of its own. They are placed, timed and put together as for groups of cores
(builder/placing.py).

Without a device (``--no-device``) its kernels are chosen and compiled as for any CUDA target, and its costs are bounds.
The artifact then says so, and that nothing of it was verified on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import onnx

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import annotate, attach
from autotune.backends.backend_catalog import backend_of
from autotune.backends.device_interface import Room
from autotune.builder.accuracy import Built, first_that_passes
from autotune.builder.branches import cut_into_branches, worth_cutting
from autotune.builder.build_request import LATENCY, ImportedModel
from autotune.builder.device_build import NOT_RUN
from autotune.builder.device_profiles import measured_memory
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.builder.devices.lane_costs import COPY_BYTES_PER_S, HAND_OVER_S, LanePart
from autotune.builder.lane_budget import operations
from autotune.builder.placing import Fastest, fastest
from autotune.graph.lanes import AUTO, CPU, cores_of, coupled_lanes
from autotune.graph.placement import Link
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.importer.onnx_model.operator_splits import Share
from autotune.options import Options
from autotune.tuning.composition import Composed
from autotune.tuning.part import Measurers
from autotune.tuning.result import PlacementSummary, Result
from autotune.tuning.run_plan import PartJob, part_options
from schedules.target import Target
from schedules.vocabulary.errors import ModelError

MODEL = "model"
"""Name of the part that is the whole model."""


class CoupledLanes:
    """The composition of a model on cores of this machine and devices: a part per kind of lane and subgraph.

    The entire model on one kind of lane gets an equal share of the budget, as do all subgraphs together on one. A model
    and its parts have most kernels in common, so what was tuned for one is there for the other. Heuristic.

    Parts are not compared with the reference where the devices are here: the whole is (``composition.py``).

    Args:
        job: for the CPU; the targets of the devices are ``job.devices``, or all that of its options.
        measurers: of the run.

    Raises:
        ModelError: if the model cannot be cut.
    """

    def __init__(self, job: PartJob, measurers: Measurers) -> None:
        options, host = job.options, job.target
        assert options.target is not None
        assert host is not None
        self._job, self._options, self._measurers = job, options, measurers
        self._lanes = coupled_lanes(options.lanes, host.threads)
        count = sum(bool(lane.device) for lane in self._lanes)
        cores = (replace(host, threads=lane.threads) for lane in self._lanes if not lane.device)
        self._targets = (*cores, *(job.devices or (options.target,) * count))
        # Where no cores are named, the first lane only holds inputs and outputs.
        self._computing = range(0 if cores_of(options.lanes) else 1, len(self._lanes))
        self._model, cut = cut_into_branches(job.model, options.inputs, self._share(), self._memory_bytes())
        self._branches, self._joins = cut.parts if len(cut.parts) > 1 else (), cut.joins
        self._parts: list[LanePart] = []
        self._made: list[tuple[LanePart, Target, Path]] = []

    @property
    def _widest(self) -> int | None:
        """The lane with most cores, of those that compute."""
        cores = [number for number in self._computing if not self._lanes[number].device]
        return max(cores, key=lambda number: self._lanes[number].threads, default=None)

    @property
    def _device_targets(self) -> list[Target]:
        return [target for lane, target in zip(self._lanes, self._targets, strict=True) if lane.device]

    def _share(self) -> Share:
        """Return which operators are cut between two lanes, by the bounds of both."""
        link, widest = Link(HAND_OVER_S, COPY_BYTES_PER_S), self._widest
        cores = None if widest is None else backend_of(self._targets[widest]).roofline(self._targets[widest])
        devices = [backend_of(target).roofline(target) for target in self._device_targets]
        return worth_cutting(cores, devices, link)

    def _memory_bytes(self) -> int:
        """Bytes of the smallest device's memory that the model may use; 0 if none is known."""
        known = []
        for lane, target in zip(self._lanes, self._targets, strict=True):
            if lane.device and self._options.device:
                with closing(backend_of(target).device(lane, Room(KERNEL_ALIGNMENT, lane.limit_bytes))) as device:
                    known.append(device.used_bytes + device.free_bytes)
            elif lane.limit_bytes:
                known.append(lane.limit_bytes)
        return min(known, default=0)

    def parts(self, folder: Path) -> Iterator[PartJob]:
        """Implement ``Composition.parts``: the whole model on every kind of lane, then every subgraph."""
        for target in dict.fromkeys(self._device_targets):
            if backend_of(target).measures(self._options):
                self._measurers.of(target, self._options)  # it takes seconds to start, in which another part begins
        whole, kinds = self._wholes(), list(dict.fromkeys(self._targets[number] for number in self._computing))
        share = 1.0 / (len(whole) + len(kinds))
        self._parts = [LanePart(MODEL, ImportedModel(self._job.model, self._options), {})]
        for target, wide in whole.items():
            yield self._job_of(self._parts[0], target, wide, share, folder)
        for branch in self._branches:
            file = folder / f"{branch.name}.onnx"
            onnx.save(branch.model, file)
            imported = ImportedModel(file, replace(self._options, inputs={}))
            self._parts.append(LanePart(branch.name, imported, {}))
        work = [operations(part.imported.for_target(kinds[0])[1]) for part in self._parts[1:]]
        for part, flop in zip(self._parts[1:], work, strict=True):
            for target in kinds:
                yield self._job_of(part, target, target, share * flop / (sum(work) or 1), folder)

    def _wholes(self) -> dict[Target, Target]:
        """Target of a lane that may run the whole model → what it is built for: all threads if no groups are named."""
        widest = self._widest
        devices = {self._targets[n]: self._targets[n] for n in self._computing if self._lanes[n].device}
        if widest is None:
            return devices
        own = self._targets[widest]
        assert self._job.target is not None
        named_as_one = cores_of(self._options.lanes) in (CPU, AUTO)
        return {own: self._job.target if named_as_one else own, **devices}

    def _job_of(self, part: LanePart, target: Target, built_for: Target, share: float, folder: Path) -> PartJob:
        """The job that builds ``part`` for the lanes of ``target``."""
        whole = part is self._parts[0]
        cores = any(self._targets[n] == target and not self._lanes[n].device for n in self._computing)
        path = folder / f"{'cpu' if cores else 'device'}-{self._targets.index(target)}-{part.name}"
        self._made.append((part, target, path))
        options = part_options(replace(self._options, lanes=Options.lanes), share, path, self._inputs(whole))
        if cores:
            options = replace(options, target=None, threads=built_for.threads, peer=options.peer and whole)
        else:
            options = replace(options, target=target, peer=False)
        imported = part.imported if cores or self._is_wanted_elsewhere(target) else None
        compared = not self._options.device
        return PartJob(part.imported.path, options, built_for, not cores, imported=imported, compared=compared)

    def _inputs(self, whole: bool) -> Mapping[str, tuple[int, ...]]:
        return self._options.inputs if whole else {}

    def _is_wanted_elsewhere(self, device: Target) -> bool:
        """Return whether bounds need a device's program, or it is that of cores; else its memory is given back."""
        if not self._options.device or device == self._targets[self._computing[0]]:
            return True
        cores = (target for lane, target in zip(self._lanes, self._targets, strict=True) if not lane.device)
        return any(replace(device, threads=own.threads) == own for own in cores)

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """Implement ``Composition.compose``: the fastest of what was placed and of either lane alone."""
        built = [one for one, result in zip(self._made, results, strict=True) if result is not None]
        whole, *parts = (self._built(part, built) for part in self._parts)
        source = CoresAndDevices(
            whole,
            tuple(parts),
            self._joins,
            self._lanes,
            self._targets,
            self._options,
            folder,
            lambda target: self._measurers.of(target, self._options),
        )
        best = fastest(source)
        path, measured = best.candidate.executable, self._options.device
        if read_artifact(path).plan.lanes is not None and measured:
            _note(path, best)
        plan = read_artifact(path).plan.lanes
        placement = None if plan is None else PlacementSummary.of(plan)
        fields: dict[str, object] = {"latency_ms": {}, "verified": None, "reason": NOT_RUN}
        if measured or self._runs_on_cores(whole, path):
            artifact = Built(path, read_artifact(path).plan)
            server = self._measurers.server
            passed = first_that_passes(self._job.out, self._model, self._options.seed, [artifact], server)
            assert passed is not None
            tuned_ms = 1e3 * best.seconds
            annotate(path, {LATENCY: {"untuned": None, "tuned": tuned_ms}})
            fields = {"latency_ms": {"tuned": tuned_ms}, "verified": passed.verdict}
        annotate(path, {"lanes": {"measured": measured, "ms": best.ms}})
        return Composed(path, {**fields, "placement": placement})

    def _built(self, part: LanePart, built: Sequence[tuple[LanePart, Target, Path]]) -> LanePart:
        """``part`` with what was built of it.

        Raises:
            ModelError: if no lane can run it.
        """
        paths = {target: path for own, target, path in built if own is part}
        able = {number: paths[self._targets[number]] for number in self._computing if self._targets[number] in paths}
        if not able:
            raise ModelError(
                f"--lanes {self._options.lanes}: no device can run subgraph {part.name}; give cpu,{self._options.lanes}"
            )
        return replace(part, built=able)

    def _runs_on_cores(self, whole: LanePart, path: Path) -> bool:
        return any(own == path and not self._lanes[number].device for number, own in whole.built.items())


def _note(path: Path, best: Fastest[Path]) -> None:
    """Write into the plan of the artifact at ``path`` what was measured of it."""
    artifact = read_artifact(path)
    plan, used = artifact.plan, measured_memory(artifact)
    assert plan.lanes is not None
    devices = tuple(replace(memory, measured_bytes=used[memory.device][0]) for memory in plan.lanes.devices)
    lanes = replace(plan.lanes, one_lane_s=best.one_lane_s, measured_s=best.seconds, devices=devices)
    noted = replace(plan, lanes=lanes)
    attach(path, "plan.json", noted.to_json().encode())
