"""A model placed on CPU and GPU, built without a GPU: kernels are for their lane's device, and together are right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.artifact.directory import read_artifact
from autotune.backends.cuda.cuda_backend import CudaBackend
from autotune.builder.device_build import NOT_RUN
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.builder.devices.lane_costs import LanePart
from autotune.graph.device_problem import Costs
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import Options
from autotune.report.inspect_lanes import report_lanes
from autotune.runtime import session as runtime
from autotune.tuning.result import Result
from autotune.tuning.tune import tune
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare_session
from research.gpu.cubins import machine_code
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.backends_tests.cuda_tests.test_emulated_models import run
from tests.models.catalog import cached
from tests.simulated.software_device import SoftwareDevice

MODEL = "tiny_wide_deep"
ARCH = "sm_90"


LANES = {"cpu,cuda:0": {"cpu:0-1", "cuda:0"}, "cpu:2x1,cuda:0,cuda:1": {"cpu:0", "cuda:0", "cuda:1"}}
"""``--lanes`` → the lanes that run something."""


@pytest.fixture(scope="module", params=[pytest.param("cpu,cuda:0", marks=pytest.mark.slow), "cpu:2x1,cuda:0,cuda:1"])
def lanes(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, lanes: str) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def tuned(files: Path, lanes: str) -> tuple[Path, Result]:
    options = Options(
        out=files / "a.tuned",
        log=files / "t.db",
        trials=0,
        budget_s=4,
        lanes=lanes,
        threads=2,
        target=Target.cuda(ARCH),
        device=False,
    )

    def prefer_devices(source: CoresAndDevices, part: LanePart) -> Costs:
        """Everything goes to the GPUs in turn but the recurrence; files of subgraphs are kept."""
        shutil.copy(part.imported.path, files / f"{part.name}.onnx")
        if part is source.whole:
            return Costs((99.0,) * len(source.lanes))
        assert set(part.built) == set(range(len(source.lanes)))
        devices = [number for number, lane in enumerate(source.lanes) if lane.device]
        chosen = devices[source.parts.index(part) % len(devices)]
        there = 9.0 if has_lstm(part.imported.path) else 1.0
        cores = {n: 3.0 + n for n, lane in enumerate(source.lanes) if not lane.device}
        return Costs(tuple(cores.get(n, there if n == chosen else 9.0) for n in range(len(source.lanes))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoresAndDevices, "costs", prefer_devices)
        result = tune(cached(MODEL), options)
    return files / "a.tuned", result


def has_lstm(path: Path) -> bool:
    return "LSTM" in {node.op_type for node in load_model(path, {}).graph.node}


def wrong_kernels(path: Path, arch: str) -> list[str]:
    """What is wrong with each kernel of an artifact that is not built for the device of its lane; empty if none is."""
    artifact = read_artifact(path)
    complaints = [f"{kernel.name} of the CPU's library is GPU code" for kernel in machine_code(artifact.library)]
    for name, folder in artifact.device_parts.items():
        part = read_artifact(folder)
        code = list(machine_code(part.library))
        for symbol in {step.symbol for step in part.steps.calls}:
            own = [kernel for kernel in code if kernel.name.startswith(f"{symbol}_kernel")]
            if {kernel.arch for kernel in own} != {arch}:
                complaints.append(f"{symbol} of subgraph {name} has no code for {arch}")
    return complaints


def test_every_kernel_is_built_for_its_lane(tuned, lanes):
    path, _ = tuned
    used = {placed.name: placed.lane for placed in read_artifact(path).plan.lanes.subgraphs}
    assert set(used.values()) >= LANES[lanes]
    assert wrong_kernels(path, ARCH) == []


def test_kernels_of_the_wrong_device_are_told(tuned, tmp_path):
    path = Path(shutil.copytree(tuned[0], tmp_path / "b.tuned"))
    assert "has no code for sm_80" in wrong_kernels(path, "sm_80")[0]
    artifact = read_artifact(path)
    part = next(iter(artifact.device_parts.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autotune.artifact.manifest.check_file", lambda *_: None)
        shutil.copy(part / "model.so", path / "model.so")
        assert any("of the CPU's library is GPU code" in line for line in wrong_kernels(path, ARCH))


def test_a_recurrence_has_kernels_for_both_and_stays_where_it_is_faster(tuned):
    path, _ = tuned
    lanes = {placed.name: placed.lane for placed in read_artifact(path).plan.lanes.subgraphs}
    files = [file for file in path.parent.glob("*.onnx") if file.stem != "model"]
    (recurrent,) = (file.stem for file in files if has_lstm(file))
    assert "cuda" not in lanes[recurrent]


def test_the_gpu_alone_runs_a_model_with_a_recurrence(tmp_path):
    options = Options(out=tmp_path / "a.tuned", log=tmp_path / "t.db", trials=0, target=Target.cuda(ARCH), device=False)
    tune(cached("tiny_siamese"), options)
    artifact = read_artifact(options.out)
    assert {kernel.arch for kernel in machine_code(artifact.library)} == {ARCH}
    assert "cuda_recurrent" in {choice.config.space.split("/")[0] for choice in artifact.plan.choices}


def test_what_was_never_run_is_said(tuned):
    path, result = tuned
    assert result.verified is None
    assert result.reason == NOT_RUN
    assert read_artifact(path).provenance["unverified"] == NOT_RUN
    report = report_lanes(path)
    assert report.measured_s is None
    assert report.predicted_s > 0


def test_without_the_device_it_cannot_be_run(tuned):
    with pytest.raises(ArtifactError, match="this machine has none"):
        runtime.InferenceSession(tuned[0])


class Emulated(SoftwareDevice):
    """A device whose kernels run on the CPU from their CUDA source.

    Attributes:
        files: where the subgraphs' models lie.
    """

    files = Path()

    def program(self, part: Any) -> Any:
        file = self.files / f"{part.path.name.removeprefix('device-')}.onnx"
        return EmulatedProgram(import_program(simplify(load_model(file, {})), Target.cuda(ARCH)))


class EmulatedProgram:
    def __init__(self, program: Any) -> None:
        self._program = program

    def run(self, inputs: Any, outputs: Any) -> None:
        names = [spec.name for spec in self._program.inputs]
        outputs_there = run(self._program, dict(zip(names, (np.array(array) for array in inputs), strict=True)))
        for place, array in zip(outputs, outputs_there, strict=True):
            place[...] = array.reshape(place.shape)

    def close(self) -> None:
        """Holds nothing."""


@pytest.mark.slow
def test_together_they_compute_the_model(tuned, files, monkeypatch):
    """The CPU's kernels run, the GPU's run from their source on the CPU, and the driver hands over between them."""
    monkeypatch.setattr(Emulated, "files", files)
    monkeypatch.setattr(CudaBackend, "device", lambda _backend, lane, room: Emulated(lane.device, room))
    verdict = compare_session(runtime.InferenceSession(tuned[0]), Reference(load_model(cached(MODEL), {})))
    assert verdict.passed, verdict
