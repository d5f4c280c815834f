"""Models next to a device with too little memory: right, within the limit, and as the plan says. It is simulated."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.artifact.directory import read_artifact
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.backends.device_interface import Room
from autotune.builder import device_profiles, placing
from autotune.builder.device_profiles import measured_memory
from autotune.builder.devices import lane_costs
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.builder.devices.lane_costs import LaneCosts
from autotune.builder.placing import placements_of
from autotune.cli.text import run_lines
from autotune.events import ignore
from autotune.graph.device_problem import Costs
from autotune.graph.lanes import HOST as HOST_MEMORY
from autotune.graph.lanes import coupled_lanes
from autotune.graph.placement import Link
from autotune.host.machine import host_target
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.part import Measurers, tune_part
from autotune.tuning.run_plan import PartJob
from autotune.tuning.tune import tune
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import random_inputs
from tests.autotune_tests.fakes import fake_device
from tests.models import catalog, transformer
from tests.models.builder import INT, Builder
from tests.simulated.software_device import SoftwareDevice, Speeds
from tests.simulated.stand_in import stand_in

HOST = host_target(2)
LAYERS, WIDTH, ROWS = 16, 64, 2000
LIMITS = (0.3, 0.6, 0.9, 1.2)
"""Shares of the memory that the entire model takes."""

CALL_S = 1e-4
"""Seconds of a kernel on the device, made up; the CPU takes ten times as long."""


def embedding(seed=0):
    """A table that is larger than all else, and dense layers."""
    b = Builder("embedding")
    x = b.op("Gather", b.weight(ROWS, WIDTH), b.input("ids", (1,), INT))
    for _ in range(LAYERS):
        x = b.relu(b.dense(x, (WIDTH, WIDTH)))
    return b.model(seed, scores=x)


FAMILIES = {
    "chain": partial(transformer.mlp, layers=LAYERS, width=WIDTH),
    "embedding": embedding,
    "branches": partial(catalog.build, "tiny_wide_deep"),
}


@dataclass(frozen=True)
class Family:
    """A model whose subgraphs are tuned for both lanes.

    Attributes:
        need: bytes that all of it takes of a device.
    """

    file: Path
    composition: CoupledLanes
    measurers: Measurers
    folder: Path
    need: int

    def source(self, *shares):
        """The model next to a device for each of ``shares``, which has memory for such a share of it; their limits."""
        limits = [int(share * self.need) for share in shares]
        devices = ",".join(f"sim:{number}={limit}B" for number, limit in enumerate(limits))
        lanes = coupled_lanes(f"cpu,{devices}", HOST.threads)
        whole, *parts = (replace(part, built=self.built(part, len(limits))) for part in self.composition._parts)
        folder = self.folder / f"limits-{'-'.join(map(str, shares))}"
        folder.mkdir(exist_ok=True)
        options, joins = self.composition._options, self.composition._joins
        targets = (HOST, *[options.target] * len(limits))
        compiler = partial(self.measurers.of, options=options)
        return limits, CoresAndDevices(whole, tuple(parts), joins, lanes, targets, options, folder, compiler)

    def built(self, part, devices):
        """The artifacts of a part: the CPU's, and one that all devices have in common."""
        cpu, device = (path for own, _, path in self.composition._made if own is part)
        return dict(enumerate([cpu, *[device] * devices]))


@pytest.fixture(scope="module", autouse=True)
def simulated():
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        fake_device(patch)
        patch.setattr(device_profiles, "LARGE", 1 << 16)
        patch.setattr(lane_costs, "PROFILE_S", 0.01)
        yield patch


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    file = folder / "m.onnx"
    onnx.save(FAMILIES[request.param](), file)
    weights = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in onnx.load(file).graph.initializer)
    options = Options(
        out=folder / "m.tuned", log=folder / "t.db", trials=0, budget_s=4, lanes="cpu,sim:0", threads=2, peer=False
    )
    options = replace(options, target=replace(HOST, threads=1))
    with Measurers() as measurers:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CoupledLanes, "_memory_bytes", lambda _: weights // 2)
            composition = CoupledLanes(PartJob(file, options, HOST), measurers)
        for job in composition.parts(folder):
            tune_part(replace(job, compared=False), ignore, False, measurers)
        cut = Family(file, composition, measurers, folder, 1 << 20)
        _, source = cut.source(1)
        room = Room.of(0, 0, [read_artifact(part.built[1]) for part in source.parts])
        yield replace(cut, need=room.inner_bytes + room.weight_bytes + source._between(source.parts))


def made_up(source, part):
    """Kernels take ``CALL_S`` on a device and ten times as long on the CPU."""
    calls = len(read_artifact(part.built[0]).steps.calls)
    return Costs(tuple(CALL_S * calls * (1 if lane.device else 10) for lane in source.lanes))


def priced(monkeypatch, weights=Link(1e-6, 1e9)):  # noqa: B008  (a frozen value)
    """Everything has a made-up price: kernels, copies, and ``weights`` that are fetched."""

    def ways(measured, number):
        memory = measured.lanes[number].memory
        return {(HOST_MEMORY, memory): Link(1e-6, 1e9), (memory, HOST_MEMORY): Link(1e-6, 1e9)}

    monkeypatch.setattr(CoresAndDevices, "costs", made_up)
    monkeypatch.setattr(LaneCosts, "bare_links", ways)
    monkeypatch.setattr(LaneCosts, "hand_over_s", lambda *_: 0.0)
    monkeypatch.setattr(device_profiles, "weight_link", lambda *_: weights)


def predicted_s(source):
    """Seconds of the fastest placement, or of the CPU alone."""
    settled = source.settled(placements_of(source.cuts()))
    on_cpu = source._settled(source.parts, (0,) * (2 + len(source.parts)))
    return min(placed.predicted_s for placed in (*settled, on_cpu))


def opened(path, monkeypatch):
    """A session, and the devices that it uses."""
    kept = []

    def device(_backend, lane, room):
        kept.append(SoftwareDevice(lane.device, room))
        return kept[-1]

    monkeypatch.setattr(CpuBackend, "device", device)
    return InferenceSession(path), kept


def check_outputs(family, session, feed):
    outputs = session.run(None, feed)
    for ours, theirs in zip(outputs, reference_outputs(onnx.load(family.file), feed)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("share", LIMITS)
def test_a_model_runs_within_any_limit_and_takes_what_the_plan_says(family, share, monkeypatch):
    monkeypatch.setattr(CoresAndDevices, "costs", made_up)
    (limit,), source = family.source(share)
    placed, *_ = source.settled(placements_of(source.cuts()))
    assert source.fits(placed)
    path = source.make(1, placed)
    (memory,) = read_artifact(path).plan.lanes.devices
    assert memory.bytes <= memory.limit_bytes == limit
    assert measured_memory(read_artifact(path)) == {"sim:0": (memory.bytes, memory.streamed_bytes)}
    assert source._is_tight == (share < 1.0)
    assert share < 1.0 or memory.streamed_bytes == 0
    session, (device,) = opened(path, monkeypatch)
    for seed in range(2):
        feed = random_inputs(read_artifact(path).inputs, seed)
        fetched = sum(operation.bytes for operation in device.operations if operation.way == (HOST_MEMORY, "sim:0"))
        check_outputs(family, session, feed)
        copied = (
            sum(operation.bytes for operation in device.operations if operation.way == (HOST_MEMORY, "sim:0")) - fetched
        )
        inputs = copied - memory.streamed_bytes  # what the subgraphs on the device read of the CPU's
        assert 0 <= inputs <= source._between(source.parts)
        assert device.used_bytes == memory.bytes
    session.close()


def test_more_memory_is_never_predicted_to_be_slower(family, monkeypatch):
    priced(monkeypatch)
    predicted = [predicted_s(family.source(share)[1]) for share in LIMITS]
    assert predicted == sorted(predicted, reverse=True)
    assert predicted[-1] < predicted[0]


@pytest.mark.parametrize("shares", [(0.3, 0.6), (0.6, 0.3), (0.9, 0.9), (1.2, 1.2), (1.2, 0.3), (0.3, 0.3, 0.6)])
def test_several_devices_are_never_predicted_to_be_slower_than_one_of_them(family, shares, monkeypatch):
    priced(monkeypatch)
    alone = [predicted_s(family.source(share)[1]) for share in shares]
    assert predicted_s(family.source(*shares)[1]) <= min(alone) * (1 + 1e-9)


def test_a_model_larger_than_each_of_two_devices_is_placed_over_both_before_weights_are_streamed(family, monkeypatch):
    priced(monkeypatch, weights=Link(1e-6, 1e8))
    limits, source = family.source(0.75, 0.75)
    assert source._is_tight
    (placed,) = source.settled(placements_of(source.cuts()))
    path = source.make(1, placed)
    artifact = read_artifact(path)
    devices = artifact.plan.lanes.devices
    assert [memory.device for memory in devices] == ["sim:0", "sim:1"]
    assert [memory.streamed_bytes for memory in devices] == [0, 0]
    assert all(0 < memory.bytes <= limit for memory, limit in zip(devices, limits, strict=True))
    assert predicted_s(source) < predicted_s(family.source(0.75)[1])
    used = {memory.device: (memory.bytes, 0) for memory in devices}
    assert measured_memory(artifact) == used
    session, kept = opened(path, monkeypatch)
    check_outputs(family, session, random_inputs(artifact.inputs, 0))
    assert {device.name: (device.used_bytes, device.streamed_bytes) for device in kept} == used
    session.close()


def test_weights_are_streamed_where_all_devices_together_are_too_small(family, monkeypatch):
    priced(monkeypatch)
    limits, source = family.source(0.3, 0.3)
    (placed,) = source.settled(placements_of(source.cuts()))
    path = source.make(1, placed)
    artifact = read_artifact(path)
    assert artifact.plan.lanes.devices
    for memory, limit in zip(artifact.plan.lanes.devices, limits, strict=False):
        assert memory.bytes <= memory.limit_bytes == limit
    measured = {memory.device: (memory.bytes, memory.streamed_bytes) for memory in artifact.plan.lanes.devices}
    assert measured_memory(artifact) == measured
    session, _ = opened(path, monkeypatch)
    check_outputs(family, session, random_inputs(artifact.inputs, 0))
    session.close()


def test_an_embedding_that_fits_into_no_buffer_stays_on_the_cpu(tmp_path, monkeypatch):
    """A run by the defaults: it is cut, placed and compared, and says what it expects and what it measured."""
    onnx.save(embedding(), tmp_path / "m.onnx")
    monkeypatch.setattr(CoresAndDevices, "costs", made_up)
    monkeypatch.setattr(placing, "_gain_over_one_lane", lambda *_: 1.0)
    monkeypatch.setattr(placing, "PROMISING", math.inf)
    monkeypatch.setattr(placing, "MOST_MEASURED", 0)
    monkeypatch.setattr(CpuBackend, "device", lambda _b, lane, room: SoftwareDevice(lane.device, room, SMALL))
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", trials=0, budget_s=4, peer=False)
    result = tune(tmp_path / "m.onnx", replace(options, lanes="cpu,sim:0", threads=2))
    assert result.verified.passed
    artifact = read_artifact(result.artifact)
    where = {subgraph.name: subgraph.lane for subgraph in artifact.plan.lanes.subgraphs}
    assert "sim:0" in where.values()
    gathers = [s for s in artifact.steps.calls if any(o.shape == (ROWS, WIDTH) for o in s.operands)]
    assert gathers  # a kernel of the CPU's program reads the table
    data = result.to_data()["placement"]
    (memory,) = data["devices"]
    assert data["predicted_ms"] > 0.0
    assert data["measured_ms"] > 0.0
    assert memory["limit_bytes"] == SMALL.memory_bytes
    assert memory["measured_bytes"] == memory["bytes"] <= SMALL.memory_bytes
    assert f"of {SMALL.memory_bytes / 1e6:.1f} MB, measured" in "\n".join(run_lines(result))


def test_a_run_places_a_model_on_two_devices_that_are_each_too_small(tmp_path, monkeypatch):
    """By the defaults of ``tune run``, which finds out how much memory each device has."""
    onnx.save(FAMILIES["chain"](), tmp_path / "m.onnx")
    priced(monkeypatch, weights=Link(1e-6, 1e8))
    monkeypatch.setattr(placing, "_gain_over_one_lane", lambda *_: 1.0)
    monkeypatch.setattr(placing, "PROMISING", math.inf)
    monkeypatch.setattr(placing, "MOST_MEASURED", 0)
    memory_bytes = {"sim:0": 220_000, "sim:1": 160_000}  # the weights take 262,144 bytes
    monkeypatch.setattr(
        CpuBackend,
        "device",
        lambda _b, lane, room: SoftwareDevice(lane.device, room, Speeds(memory_bytes=memory_bytes[lane.device])),
    )
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", trials=0, budget_s=4, peer=False)
    result = tune(tmp_path / "m.onnx", replace(options, lanes="cpu,sim:0,sim:1", threads=2))
    assert result.verified.passed
    devices = {memory.device: memory for memory in read_artifact(result.artifact).plan.lanes.devices}
    assert {name: memory.limit_bytes for name, memory in devices.items()} == memory_bytes
    assert [memory.streamed_bytes for memory in devices.values()] == [0, 0]
    assert all(memory.measured_bytes == memory.bytes <= memory.limit_bytes for memory in devices.values())


def test_a_subgraph_has_a_cost_on_each_device_that_has_memory_for_it(tmp_path, monkeypatch):
    """Also where devices differ in nothing else."""
    onnx.save(embedding(), tmp_path / "m.onnx")
    seen, costs = [], CoresAndDevices.costs

    def recorded(source, part):
        seen.append(costs(source, part))
        return seen[-1]

    speeds = {"sim:0": SMALL}
    monkeypatch.setattr(CoresAndDevices, "costs", recorded)
    monkeypatch.setattr(
        CpuBackend, "device", lambda _b, lane, room: SoftwareDevice(lane.device, room, speeds.get(lane.device))
    )
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", trials=0, budget_s=4, peer=False)
    result = tune(tmp_path / "m.onnx", replace(options, lanes="cpu,sim:0,sim:1", threads=2))
    assert result.verified.passed
    able = {tuple(seconds is not None for seconds in own_costs.alone) for own_costs in seen}
    assert able == {(True, False, True), (True, True, True)}  # the table, and all else


SMALL = Speeds(memory_bytes=300_000)
"""Bytes of a device for the layers of ``embedding``, whose table takes 512,000 bytes."""
