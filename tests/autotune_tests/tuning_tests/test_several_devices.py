"""A model on several devices, and on groups of cores next to a device. The devices are simulated ones."""

import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest

from autotune.artifact.directory import lane_library, read_artifact
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.builder import device_profiles
from autotune.builder.devices import lane_costs
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.cli.text import lane_lines, run_lines
from autotune.graph.device_problem import Costs
from autotune.host.machine import host_target
from autotune.options import Options
from autotune.report.inspect_kernels import report_kernels
from autotune.report.inspect_lanes import report_lanes
from autotune.runtime.session import InferenceSession
from autotune.tuning import run_plan
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.part import Measurers
from autotune.tuning.run_plan import plan_run
from autotune.tuning.tune import tune
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import ArtifactError, ModelError, UsageError
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tuning_tests.test_capacity import opened
from tests.autotune_tests.tuning_tests.test_coupled import keep_placed
from tests.models.catalog import cached
from tests.simulated.software_device import PCIE, SoftwareDevice, Speeds
from tests.simulated.stand_in import stand_in

MODEL = "tiny_wide_deep"
THREADS = {"cpu,sim:0,sim:1": 2, "cpu:0,cpu:1,sim:0": 2, "sim:0,sim:1": 2, "cpu:2+1,sim:0": 3, "auto,sim:1": 2}
"""``--lanes`` → threads."""


def in_turn(source, part):
    """Costs by which the subgraphs go to the lanes that compute in turn."""
    if part is source.whole:
        return Costs(tuple(99.0 if lane in part.built else None for lane in range(len(source.lanes))))
    able = sorted(part.built)
    chosen = able[source.parts.index(part) % len(able)]
    return Costs(tuple(1.0 if lane == chosen else 9.0 if lane in able else None for lane in range(len(source.lanes))))


@pytest.fixture(scope="module", autouse=True)
def simulated():
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        fake_device(patch)
        patch.setattr(device_profiles, "LARGE", 1 << 16)
        patch.setattr(lane_costs, "PROFILE_S", 0.01)
        yield


def run(folder, lanes, patch, model=MODEL):
    """Tune; a machine of fewer cores than there are threads runs several of them on one."""
    keep_placed(patch)
    patch.setattr(run_plan, "host_target", lambda threads, _isa=None: replace(host_target(1), threads=threads))
    options = Options(out=folder / "m.tuned", log=folder / "t.db", trials=0, budget_s=4, lanes=lanes, peer=False)
    return tune(cached(model), replace(options, threads=THREADS[lanes]))


OF_ONE_KIND = ("cpu:0,cpu:1,sim:0", "auto,sim:1")
"""Lanes that others stand for: several groups of cores (``cpu:2+1``), and cores next to a device (``cpu,sim:0``)."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(lanes, marks=pytest.mark.slow) if lanes in OF_ONE_KIND else lanes for lanes in THREADS],
)
def placed(request, tmp_path_factory):
    """What was typed, and the result of a model whose subgraphs are on all lanes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoresAndDevices, "costs", in_turn)
        return request.param, run(tmp_path_factory.mktemp("several"), request.param, patch)


def check_outputs(path, session):
    for seed in range(2):
        feed = random_inputs(read_artifact(path).inputs, seed)
        for ours, theirs in zip(
            session.run(None, feed), reference_outputs(onnx.load(cached(MODEL)), feed)[1], strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def computing(artifact):
    """Names of the lanes that run subgraphs."""
    lanes = artifact.steps.lanes
    return {lanes[group.lane].name for group in artifact.steps.groups if not lanes[group.lane].copies}


def test_subgraphs_run_on_every_lane_and_are_right(placed):
    lanes, result = placed
    artifact = read_artifact(result.artifact)
    assert result.verified.passed
    wanted = {"cpu": "cpu:0-1", "cpu:2+1": None, "auto": None}
    named = {wanted.get(lane, lane) for lane in lanes.split(",")} - {None}
    assert computing(artifact) >= named
    assert len(computing(artifact)) >= len(lanes.split(","))
    session = InferenceSession(result.artifact)
    check_outputs(result.artifact, session)
    spans = session.timeline(random_inputs(artifact.inputs, 0))
    assert {session.lanes[span.group.lane].name for span in spans} >= computing(artifact)
    session.close()


def test_each_lane_has_kernels_of_its_own_size_and_each_device_its_parts(placed):
    lanes, result = placed
    artifact = read_artifact(result.artifact)
    sizes = {lane.threads for lane in artifact.steps.lanes if not lane.device}
    assert artifact.target.threads == max(sizes)
    assert {size for size in sizes if (result.artifact / lane_library(size)).exists()} == sizes - {max(sizes)}
    devices = [lane for lane in artifact.steps.lanes if lane.device and not lane.copies]
    on_devices = {group.name for group in artifact.steps.groups if artifact.steps.lanes[group.lane] in devices}
    assert set(artifact.device_parts) == on_devices
    assert len(report_kernels(result.artifact)) == len(artifact.plan.choices)  # of lanes of every size
    assert ("cpu" in lanes or "auto" in lanes) == bool(artifact.plan.choices)


def test_the_plan_states_what_every_device_and_hand_over_takes(placed):
    lanes, result = placed
    plan = read_artifact(result.artifact).plan.lanes
    devices = [lane for lane in lanes.split(",") if lane.startswith("sim")]
    assert plan.lanes == lanes
    assert [memory.device for memory in plan.devices] == devices
    assert all(memory.measured_bytes == memory.bytes > 0 for memory in plan.devices)
    ways = {(way.source, way.target) for way in plan.hand_overs}
    assert ways == {way for device in devices for way in (("host", device), (device, "host"))}
    assert all(way.latency_s > 0.0 for way in plan.hand_overs)
    text = "\n".join(run_lines(result))
    assert all(f"host to {device}: " in text and f"{device} to host: " in text for device in devices)
    assert [device["device"] for device in result.to_data()["placement"]["devices"]] == devices
    report = report_lanes(result.artifact)
    assert {row.lane for row in report.rows if not row.is_copy} == computing(read_artifact(result.artifact))
    assert all(None not in row.measured for row in report.rows)
    assert "measured" in lane_lines(report)[-1]


def test_each_value_is_copied_into_each_memory_at_most_once(placed, monkeypatch):
    artifact = read_artifact(placed[1].artifact)
    session, kept = opened(placed[1].artifact, monkeypatch)
    session.run(None, random_inputs(artifact.inputs, 0))
    copies = [operation for opened_device in kept for operation in opened_device.operations if operation.way]
    moved = [group.name for group in artifact.steps.groups if artifact.steps.lanes[group.lane].copies]
    assert len(copies) == len(moved) == len(set(moved))
    session.close()


def test_a_device_that_is_missing_is_told_and_the_others_are_closed(placed, monkeypatch):
    lanes, result = placed
    missing = lanes.split(",")[-1]
    opened, closed = [], []

    def device(_backend, lane, room):
        if lane.device == missing:
            raise ArtifactError(f"this machine has no {missing}")
        opened_device = SoftwareDevice(lane.device, room)
        opened.append(lane.device)
        opened_device.close = lambda: closed.append(lane.device)
        return opened_device

    monkeypatch.setattr(CpuBackend, "device", device)
    with pytest.raises(ArtifactError, match=f"this machine has no {missing}"):
        InferenceSession(result.artifact)
    assert closed == opened
    assert "its device is not here" in lane_lines(report_lanes(result.artifact))[-1]


def test_a_device_that_is_damaged_is_found_whichever_it_is(placed, tmp_path):
    path = shutil.copytree(placed[1].artifact, tmp_path / "b.tuned")
    for part in read_artifact(path).device_parts.values():
        weights = part / "weights.bin"
        before = weights.read_bytes()
        weights.write_bytes(b"x" + before[1:])
        with pytest.raises(ArtifactError, match=r"weights\.bin was changed"):
            InferenceSession(path)
        weights.write_bytes(before)


def test_devices_that_reach_each_other_exchange_values_past_the_host(tmp_path, monkeypatch):
    kept = []

    def device(_backend, lane, room):
        kept.append(SoftwareDevice(lane.device, room, Speeds(peer=replace(PCIE, latency_s=1e-6))))
        return kept[-1]

    monkeypatch.setattr(CpuBackend, "device", device)
    monkeypatch.setattr(CoresAndDevices, "costs", in_turn)
    result = run(tmp_path, "sim:0,sim:1", monkeypatch)
    artifact = read_artifact(result.artifact)
    assert {("sim:0", "sim:1"), ("sim:1", "sim:0")} <= {
        (way.source, way.target) for way in artifact.plan.lanes.hand_overs
    }
    kept.clear()
    session = InferenceSession(result.artifact)
    check_outputs(result.artifact, session)
    ways = {operation.way for opened_device in kept for operation in opened_device.operations if operation.way}
    assert ways & {("sim:0", "sim:1"), ("sim:1", "sim:0")}
    assert {artifact.steps.lanes[group.lane].name for group in artifact.steps.groups} & {
        "sim:0 to sim:1",
        "sim:1 to sim:0",
    }
    session.close()


def test_costs_of_every_lane_are_measured(tmp_path, monkeypatch):
    """And next to lanes of every kind; lanes that differ in nothing take as long."""
    seen = []
    costs = CoresAndDevices.costs

    def recorded(source, part):
        seen.append((source, part, costs(source, part)))
        return seen[-1][2]

    monkeypatch.setattr(CoresAndDevices, "costs", recorded)
    run(tmp_path, "cpu,sim:0,sim:1", monkeypatch)
    assert seen
    for _, _, own_costs in seen:
        assert set(own_costs.beside) == {"cpu", "sim"}
        assert min(own_costs.alone) > 0.0
        assert own_costs.alone[1] == own_costs.alone[2]
        for row in own_costs.beside.values():
            assert all(busy >= alone for busy, alone in zip(row, own_costs.alone, strict=True))
        assert own_costs.beside["cpu"][0] == own_costs.alone[0]  # the cores are one lane


def test_a_subgraph_that_no_device_can_run_is_named_where_no_cores_are(tmp_path):
    options = Options(out=tmp_path / "m.tuned", log=tmp_path / "t.db", trials=0, lanes="sim:0,sim:1", threads=2)
    (job,) = plan_run([cached(MODEL)], options).jobs
    with Measurers() as measurers:
        composition = CoupledLanes(job, measurers)
        count = sum(1 for _ in composition.parts(tmp_path))
        with pytest.raises(ModelError, match=r"no device can run subgraph .*; give cpu,sim:0,sim:1"):
            composition.compose(tmp_path, [None] * count)


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ("cpu:3x1,sim:0", "--lanes cpu:3x1,sim:0: needs 3 threads and there are 2"),
        ("cpu:0,cpu:2,sim:0", "names core 2 and there are 2"),
        ("cpu,sim:0,sim:0", "names sim:0 twice"),
        ("sim:1", "only cuda:0 can be named alone; give cpu,sim:1"),
    ],
)
def test_lanes_that_this_machine_lacks_are_refused_before_anything_starts(lanes, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        plan_run([cached(MODEL)], Options(out=tmp_path / "m.tuned", lanes=lanes, threads=2))
