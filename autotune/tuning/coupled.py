"""``tune run --lanes cpu,cuda:0``: a model on a CPU and a GPU together, or on the one of them that is faster.

The model is cut before fusion (build/branches.py). It and every subgraph are tuned and built for the CPU and for the
device, each an artifact of its own. They are placed, timed and put together as for groups of cores (build/placing.py).

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
from autotune.builder.cpu_and_device import COPY_BYTES_PER_S, HAND_OVER_S, CpuAndDevice, TunedPart
from autotune.builder.device_build import NOT_RUN
from autotune.builder.device_profiles import measured_memory
from autotune.builder.lane_budget import operations
from autotune.builder.placing import Fastest, fastest
from autotune.graph.lanes import coupled_lanes
from autotune.graph.placement import Link
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.importer.onnx_model.operator_splits import Share
from autotune.options import Options
from autotune.tuning.composition import Composed
from autotune.tuning.part import Measurers
from autotune.tuning.result import PlacementSummary, Result
from autotune.tuning.run_plan import PartJob, part_options
from schedules.target import Target

SHARE = 0.25
"""Share of the budget of the whole model on the CPU, of it on the device, and of all parts on either: a quarter each. A
model and its parts have most kernels in common, so what was tuned for one is there for the other. Heuristic."""


class CoupledLanes:
    """The composition of a model on this machine's CPU and a device: a part per lane of the whole and each subgraph.

    Parts are not compared with the reference where the device is here: the whole is (``composition.py``).

    Args:
        job: for the CPU; the target in its options is the device's.
        measurers: of the run.

    Raises:
        ModelError: if the model cannot be cut.
    """

    def __init__(self, job: PartJob, measurers: Measurers) -> None:
        options, host = job.options, job.target
        assert options.target is not None
        assert host is not None
        self._job, self._options, self._device, self._measurers = job, options, options.target, measurers
        self._lanes = coupled_lanes(options.lanes, host.threads)
        self._host, self._cpu = host, replace(host, threads=self._lanes[0].threads)
        self._model, cut = cut_into_branches(job.model, options.inputs, self._share(), self._memory_bytes())
        self._branches, self._joins = cut.parts if len(cut.parts) > 1 else (), cut.joins
        self._parts: list[TunedPart] = []

    def _share(self) -> Share:
        """Which operators are cut between the CPU and the device, by the bounds of both."""
        cpu, device = (backend_of(target).roofline(target) for target in (self._cpu, self._device))
        return worth_cutting(cpu, device, Link(HAND_OVER_S, COPY_BYTES_PER_S))

    def _memory_bytes(self) -> int:
        """Bytes of the device's memory that the model may use; 0 if that is not known."""
        lane = self._lanes[1]
        if not self._options.device:
            return lane.limit_bytes
        with closing(backend_of(self._device).device(lane, Room(KERNEL_ALIGNMENT, lane.limit_bytes))) as device:
            return device.used_bytes + device.free_bytes

    def parts(self, folder: Path) -> Iterator[PartJob]:
        """Implement ``Composition.parts``: the CPU's, then the device's, of the whole model and of every subgraph."""
        if backend_of(self._device).measures(self._options):
            self._measurers.of(self._device, self._options)  # it takes seconds to start, in which the CPU's part begins
        self._parts = [self._part("model", self._job.model, self._options.inputs, folder)]
        yield from self._jobs(self._parts[0], self._host, SHARE)
        for branch in self._branches:
            file = folder / f"{branch.name}.onnx"
            onnx.save(branch.model, file)
            self._parts.append(self._part(branch.name, file, {}, folder))
        work = [operations(part.imported.for_target(self._cpu)[1]) for part in self._parts[1:]]
        for part, flop in zip(self._parts[1:], work, strict=True):
            yield from self._jobs(part, self._cpu, SHARE * flop / (sum(work) or 1))

    def _part(self, name: str, file: Path, inputs: Mapping[str, tuple[int, ...]], folder: Path) -> TunedPart:
        imported = ImportedModel(file, replace(self._options, inputs=inputs))
        return TunedPart(name, imported, folder / f"cpu-{name}", folder / f"device-{name}")

    def _jobs(self, part: TunedPart, cpu: Target, share: float) -> Iterator[PartJob]:
        assert part.device is not None
        whole = part is self._parts[0]
        options, file = replace(self._options, lanes=Options.lanes), part.imported.path
        inputs = options.inputs if whole else {}
        on_cpu = replace(part_options(options, share, part.cpu, inputs), target=None, threads=cpu.threads)
        compared = not options.device
        on_cpu = replace(on_cpu, peer=options.peer and whole)
        yield PartJob(file, on_cpu, cpu, imported=part.imported, compared=compared)
        on_device = replace(part_options(options, share, part.device, inputs), peer=False)
        # A device's program is wanted again for bounds, or as the CPU's own; else its memory is given back.
        again = not options.device or replace(self._device, threads=cpu.threads) == cpu
        imported = part.imported if again else None
        yield PartJob(file, on_device, self._device, True, imported=imported, compared=compared)

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """Implement ``Composition.compose``: the fastest of what was placed and of either lane alone."""
        whole, *parts = (
            part if result is not None else replace(part, device=None)
            for part, result in zip(self._parts, results[1::2], strict=True)
        )
        measurer = self._measurers.of(self._cpu, self._options)
        source = CpuAndDevice(
            whole, tuple(parts), self._joins, self._lanes, self._cpu, self._device, self._options, folder, measurer
        )
        best = fastest(source)
        path, measured = best.candidate.made, self._options.device
        if read_artifact(path).plan.lanes is not None and measured:
            _note(path, best)
        plan = read_artifact(path).plan.lanes
        placement = None if plan is None else PlacementSummary.of(plan)
        fields: dict[str, object] = {"latency_ms": {}, "verified": None, "reason": NOT_RUN}
        if measured or path == whole.cpu:
            artifact = Built(path, read_artifact(path).plan)
            server = self._measurers.server
            passed = first_that_passes(self._job.out, self._model, self._options.seed, [artifact], server)
            assert passed is not None
            tuned_ms = 1e3 * best.seconds
            annotate(path, {LATENCY: {"untuned": None, "tuned": tuned_ms}})
            fields = {"latency_ms": {"tuned": tuned_ms}, "verified": passed.verdict}
        annotate(path, {"lanes": {"measured": measured, "ms": best.ms}})
        return Composed(path, {**fields, "placement": placement})


def _note(path: Path, best: Fastest[Path]) -> None:
    """Write into the plan of the artifact at ``path`` what was measured of it."""
    artifact = read_artifact(path)
    plan, used = artifact.plan, measured_memory(artifact)
    assert plan.lanes is not None
    devices = tuple(replace(memory, measured_bytes=used[memory.device][0]) for memory in plan.lanes.devices)
    lanes = replace(plan.lanes, one_lane_s=best.one_lane_s, measured_s=best.seconds, devices=devices)
    noted = replace(plan, lanes=lanes)
    attach(path, "plan.json", noted.to_json().encode())
