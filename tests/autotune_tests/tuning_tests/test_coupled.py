"""A model on a CPU and a device together. The device is a simulated one."""

import json
import math
import shutil
import threading
from dataclasses import replace

import numpy as np
import onnx
import pytest

from autotune.artifact.directory import read_artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.backends.device_interface import OutOfMemoryError
from autotune.builder import accuracy, placing
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.cli.text import lane_lines
from autotune.events import ignore
from autotune.graph.device_problem import Costs
from autotune.graph.merge import JOIN
from autotune.host.machine import host_target
from autotune.options import Options
from autotune.report.inspect_lanes import report_lanes
from autotune.runtime.session import InferenceSession
from autotune.tuning.composition import tune_composition
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.part import Measurers, tune_part
from autotune.tuning.run_plan import PartJob
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import ArtifactError, RunError, UsageError, VerificationError
from tests.autotune_tests.fakes import fake_device
from tests.models import transformer
from tests.models.catalog import cached
from tests.simulated.software_device import SoftwareDevice, Speeds
from tests.simulated.stand_in import stand_in

MODEL = "tiny_wide_deep"
HOST = host_target(2)
DEVICE = replace(HOST, threads=1)
LANES = "cpu,sim:0"


def apart(source, part):
    """Costs by which every other subgraph goes to the device."""
    number = sum(map(ord, part.name)) % 2
    cpu, device = ((9.0, 9.0), (1.0, 3.0), (3.0, 1.0))[0 if part.name == "model" else 1 + number]
    return Costs((cpu, device))


def keep_placed(patch, most_measured=0):
    """Whatever was placed is kept, however slow the stand-in is."""
    patch.setattr(placing, "_gain_over_one_lane", lambda *_: 1.0)
    patch.setattr(placing, "PROMISING", math.inf)
    patch.setattr(placing, "MOST_MEASURED", most_measured)


@pytest.fixture(scope="module", autouse=True)
def simulated():
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("coupled")


@pytest.fixture(scope="module")
def measurers():
    with Measurers() as all_measurers:
        yield all_measurers


@pytest.fixture(scope="module")
def tune(folder, measurers):
    """Tunes; artifacts of parts are built in the first test that wants them, later ones get copies."""
    kept = {}

    def remembered(job, observe, interrupted):
        place = job.options.out
        if job.compared:  # again, because the whole is wrong
            return tune_part(job, observe, interrupted, measurers)
        if place.name in kept:
            shutil.copytree(folder / place.name, place)
        else:
            kept[place.name] = tune_part(job, observe, interrupted, measurers)
            shutil.copytree(place, folder / place.name)
        return replace(kept[place.name], artifact=place)

    def tuned(out):
        options = Options(out=out, log=folder / "t.db", trials=0, budget_s=4, lanes=LANES, threads=2, target=DEVICE)
        return tune_composition(CoupledLanes(PartJob(cached(MODEL), options, HOST), measurers), out, remembered, ignore)

    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        yield tuned


@pytest.fixture(scope="module")
def placed(folder, tune):
    """The artifact of a model whose subgraphs are on both lanes, and the result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoresAndDevices, "costs", apart)
        keep_placed(patch)
        result = tune(folder / "a.tuned")
    return folder / "a.tuned", result


def expected(path, seed):
    artifact = read_artifact(path)
    feed = random_inputs(artifact.inputs, seed)
    return feed, reference_outputs(onnx.load(cached(MODEL)), feed)[1]


def test_it_runs_on_both_lanes_and_is_right(placed):
    path, result = placed
    assert result.verified.passed
    assert result.artifact == path
    session = InferenceSession(path)
    spans = session.timeline(expected(path, 0)[0])
    assert {session.lanes[span.group.lane].name for span in spans} >= {"cpu:0-1", "sim:0"}
    assert all(span.ended_s >= span.began_s for span in spans)
    for seed in range(3):
        feed, outputs = expected(path, seed)
        for ours, theirs in zip(session.run(None, feed), outputs, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_placement_is_corrected_by_what_runs_on_the_device_took(folder, tune, monkeypatch):
    seen = []
    taken = CoresAndDevices.taken

    def recorded(self, candidate, number):
        seen.append((candidate, taken(self, candidate, number)))
        return seen[-1][1]

    monkeypatch.setattr(CoresAndDevices, "taken", recorded)
    monkeypatch.setattr(CoresAndDevices, "costs", apart)
    keep_placed(monkeypatch, 2)
    assert tune(folder / "corrected.tuned").verified.passed
    assert len({candidate.placed.placement.lanes for candidate, _ in seen}) > 1
    for candidate, seconds in seen:
        subgraphs = {subgraph.name for subgraph in candidate.placed.subgraphs}
        assert set(seconds) <= subgraphs | {"sim:0 in", "sim:0 out"}
        assert set(seconds) & subgraphs
        assert min(seconds.values()) > 0.0
        assert ("sim:0 in" in seconds) == (1 in candidate.placed.placement.lanes)


def test_each_subgraph_on_the_device_is_an_artifact_of_its_own(placed):
    path, _ = placed
    artifact = read_artifact(path)
    lanes = artifact.steps.lanes
    used = [(group.name, lanes[group.lane]) for group in artifact.steps.groups]
    on_device = {name for name, lane in used if lane.device and not lane.copies}
    assert on_device == set(artifact.device_parts)
    assert on_device
    for folder in artifact.device_parts.values():
        assert read_artifact(folder).target.threads == 1
    assert {sub.lane for sub in artifact.plan.lanes.subgraphs} >= {"cpu:0-1", "sim:0"}
    told = artifact.provenance["lanes"]
    assert told["measured"]
    assert {"CPU alone", "sim:0 alone", "placed, 1"} <= set(told["ms"])
    assert artifact.plan.lanes.measured_s > 0
    assert artifact.plan.lanes.one_lane_s > 0


def test_callers_of_several_threads_get_their_own_answers(placed):
    path, _ = placed
    session = InferenceSession(path)
    cases, right = [expected(path, seed) for seed in range(8)], []

    def call(feed, outputs):
        for _ in range(5):
            pairs = zip(session.run(None, feed), outputs, strict=True)
            right.append(all(np.allclose(ours, theirs, 1e-3, 1e-5) for ours, theirs in pairs))

    threads = [threading.Thread(target=call, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert right == [True] * 40


def test_lanes_are_reported(placed):
    report = report_lanes(placed[0])
    assert {row.lane for row in report.rows} >= {"cpu:0-1", "sim:0"}
    assert report.measured_s > 0
    assert "measured" in lane_lines(report)[-1]


def test_what_the_device_runs_is_checked_too(placed, tmp_path):
    path = tmp_path / "b.tuned"
    shutil.copytree(placed[0], path)
    part = next(iter(read_artifact(path).device_parts.values()))
    (part / "weights.bin").write_bytes(b"x" + (part / "weights.bin").read_bytes()[1:])
    with pytest.raises(ArtifactError, match=r"weights\.bin was changed"):
        InferenceSession(path)
    other = shutil.copytree(placed[0], tmp_path / "c.tuned")  # not over the first: its library is loaded
    manifest = other / part.name / "manifest.json"
    data = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**data, "provenance": {}}))
    with pytest.raises(ArtifactError, match="was changed"):
        read_artifact(other)


def test_a_device_that_is_not_here_is_told(placed, tmp_path, monkeypatch):
    def missing(backend, lane, room):
        raise ArtifactError("this machine has none")

    monkeypatch.setattr(CpuBackend, "device", missing)
    report = report_lanes(placed[0])
    assert report.measured_s is None
    assert all(row.measured == (None, None) for row in report.rows)
    assert all(row.predicted[1] is not None for row in report.rows)
    assert "its device is not here" in lane_lines(report)[-1]


def test_a_wrong_result_is_not_installed(tune, tmp_path, monkeypatch):
    monkeypatch.setattr(CoresAndDevices, "costs", apart)
    keep_placed(monkeypatch)
    real = accuracy.compare_isolated
    monkeypatch.setattr(accuracy, "compare_isolated", lambda *a: replace(real(*a), passed=False))
    out = tmp_path / "c.tuned"
    with pytest.raises(VerificationError, match=r"c\.tuned"):
        tune(out)
    assert not out.exists()


def test_one_lane_is_kept_where_a_placement_is_not_worth_it(tune, tmp_path, monkeypatch):
    """The artifact is then an ordinary one. What is faster is said, not timed: the device may be, on a busy machine."""

    def seconds(source, candidates):
        return [0.99 if candidate.placed else 1.0 if candidate.name == "CPU alone" else 2.0 for candidate in candidates]

    monkeypatch.setattr(CoresAndDevices, "seconds", seconds)
    monkeypatch.setattr(CoresAndDevices, "ratios", lambda *_: (0.99, 1.0, 1.01))
    monkeypatch.setattr(placing, "MOST_MEASURED", 1)
    result = tune(tmp_path / "d.tuned")
    assert result.verified.passed
    assert result.latency_ms["tuned"] > 0.0
    assert read_artifact(tmp_path / "d.tuned").steps.lanes == ()


def opened(path, monkeypatch, **speeds):
    """A session, and the device that its artifact runs on."""
    kept = []

    def device(backend, lane, room):
        kept.append(SoftwareDevice(lane.device, room, Speeds(**speeds)))
        return kept[-1]

    monkeypatch.setattr(CpuBackend, "device", device)
    return InferenceSession(path), kept[0]


def test_a_lost_device_names_the_subgraph_and_the_lane(placed, monkeypatch):
    session, device = opened(placed[0], monkeypatch)
    feed, outputs = expected(placed[0], 0)
    session.run(None, feed)
    device.lose()
    with pytest.raises(RunError, match=r"subgraph '.*' failed on lane sim:0.*: sim:0 is lost"):
        session.run(None, feed)
    again, _ = opened(placed[0], monkeypatch)
    for ours, theirs in zip(again.run(None, feed), outputs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_each_value_is_copied_at_most_once(placed, monkeypatch):
    path, _ = placed
    session, device = opened(path, monkeypatch)
    session.run(None, expected(path, 0)[0])
    copies = [operation for operation in device.operations if operation.way]
    steps = read_artifact(path).steps
    moved = [group for group in steps.groups if steps.lanes[group.lane].copies]
    assert len(copies) == len(moved) == len({group.name for group in moved})


def test_a_device_without_room_for_a_subgraph_names_it(placed, monkeypatch):
    arena = dict(read_artifact(placed[0]).steps.device_bytes)["sim:0"]
    with pytest.raises(OutOfMemoryError, match=r"subgraph '.*' cannot be loaded: sim:0 has"):
        opened(placed[0], monkeypatch, memory_bytes=arena + 64)


def test_a_placement_of_before_copies_were_calls_is_refused(placed):
    artifact = read_artifact(placed[0])
    old = replace(artifact, steps=replace(artifact.steps, device_bytes=()))
    with pytest.raises(ArtifactError, match="placed by a version without copies; tune the model again"):
        backend_of(artifact.target).executor(old, 2)


@pytest.mark.parametrize("more", [{"frozen": True}, {"fallback": None, "shapes": ({}, {})}])
def test_what_does_not_go_with_a_device_is_refused(more, tmp_path):
    with pytest.raises(UsageError, match=f"--lanes {LANES} does not go with --.*; leave one out"):
        Options(out=tmp_path / "e.tuned", lanes=LANES, target=DEVICE, **more)


def test_an_operator_that_is_cut_runs_on_both_lanes_and_is_joined_in_place(tmp_path, measurers, monkeypatch):
    fake_device(monkeypatch)

    def by_part(source, part):
        return Costs((9.0, 9.0)) if part.name == "model" else Costs((1.0, 1.0))

    monkeypatch.setattr(CoresAndDevices, "costs", by_part)
    keep_placed(monkeypatch)
    monkeypatch.setattr(CoupledLanes, "_share", lambda _composition: lambda _node, _scope: 0.5)
    onnx.save(transformer.mlp(0, layers=2, width=64), tmp_path / "m.onnx")
    out = tmp_path / "m.tuned"
    options = Options(out=out, log=tmp_path / "t.db", trials=0, budget_s=4, lanes=LANES, threads=2, target=DEVICE)
    composition = CoupledLanes(PartJob(tmp_path / "m.onnx", options, HOST), measurers)
    assert composition._joins
    result = tune_composition(composition, out, tune_part, ignore)
    assert result.verified.passed
    steps = read_artifact(out).steps
    used = {steps.lanes[group.lane].name for group in steps.groups}
    assert used >= {"cpu:0-1", "sim:0", "sim:0 in", "sim:0 out"}
    assert not [step.symbol for step in steps.calls if "concat" in step.symbol or step.symbol == JOIN]
