"""Artifacts on a simulated device: weights that stay, weights that are streamed, and kernels at a made-up pace."""

from functools import partial

import numpy as np
import onnx
import pytest

from autotune.artifact.directory import read_artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.cpu_backend import CpuBackend
from autotune.backends.device_interface import OutOfMemoryError, Room
from autotune.builder import device_profiles
from autotune.graph.device_problem import spec_bytes
from autotune.graph.lanes import Lane
from autotune.graph.placement import Link
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning.tune import tune
from research.gpu.streamed import compared
from tests.autotune_tests.fakes import fake_device
from tests.models import transformer
from tests.simulated.clock import ManualClock
from tests.simulated.software_device import SoftwareDevice, Speeds

LAYERS, KERNEL_S = 8, 0.25
NO_TIME = Link()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlp")
    onnx.save(partial(transformer.mlp, layers=LAYERS, width=64)(0), folder / "mlp.onnx")
    options = Options(out=folder / "mlp.tuned", log=folder / "t.db", trials=0, budget_s=2, threads=1, peer=False)
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        tune(folder / "mlp.onnx", options)
    return read_artifact(folder / "mlp.tuned")


def placed(artifact, share, **speeds):
    """A device with memory for ``share`` of the weights, its input, its output, and what runs the artifact there."""
    (spec,), (result,) = artifact.inputs, artifact.outputs
    first = -(-spec_bytes(spec) // 64) * 64
    room = Room.of(first + spec_bytes(result), 0, [artifact])
    limit = room.arena_bytes + room.inner_bytes + int(share * room.weight_bytes)
    room = Room(room.arena_bytes, limit, room.inner_bytes, room.weight_bytes)
    device = SoftwareDevice("sim:0", room, Speeds(NO_TIME, NO_TIME, **speeds), ManualClock())
    run = device.load(artifact, [0], [first])

    def answer(x):
        device.upload(x, 0)
        run()
        y = np.zeros(result.shape, result.dtype)
        device.download(first, y)
        return y

    return device, answer


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5])
def test_the_answers_do_not_depend_on_where_weights_lie(artifact, share):
    device, answer = placed(artifact, share)
    session = InferenceSession(artifact.path)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(artifact.inputs[0].shape).astype(np.float32)
        (expected,) = session.run(None, {artifact.inputs[0].name: x})
        assert np.array_equal(answer(x), expected)
    streams = sum(operation.way is not None for operation in device.operations) - 2 * 3
    assert (streams > 0) == (share < 1.0)
    device.close()


def test_what_cannot_be_streamed_is_refused(artifact):
    with pytest.raises(OutOfMemoryError, match="no two buffers fit"):
        placed(artifact, 0.1)


def test_every_kernel_takes_the_seconds_that_are_made_up(artifact):
    device, answer = placed(artifact, 1.0, kernel_s=lambda step: KERNEL_S)
    answer(np.zeros(artifact.inputs[0].shape, np.float32))
    (run,) = [operation for operation in device.operations if operation.way is None]
    assert run.ended - run.began == pytest.approx(KERNEL_S * len(artifact.steps.calls))
    device.close()


def test_the_step_for_a_gpu_that_streams_a_model_compares_it_with_its_prediction(artifact, monkeypatch):
    """Its kernels are the CPU's, so that only what is counted is asserted."""
    monkeypatch.setattr(device_profiles, "LARGE", 1 << 16)
    monkeypatch.setattr(CpuBackend, "device", lambda _backend, lane, room: SoftwareDevice(lane.device, room))
    figures = compared(backend_of(artifact.target), Lane("sim:0", 2, 1, "sim:0"), artifact)
    assert 0 < figures["streamed bytes"] < sum(weight.nbytes for weight in artifact.weights)
    assert figures["predicted ms"] >= figures["resident ms"] > 0.0
    assert figures["off"] == pytest.approx(figures["predicted ms"] / figures["streamed ms"] - 1.0)
