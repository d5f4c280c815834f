"""Objectives: what a session makes of the artifact."""

import numpy as np
import onnxruntime
import pytest

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import AUTO, STREAMS
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning import tune as tuning
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tiny import save_tiny


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Objective and other options → the artifact of a small model; measured by a measurer that makes its numbers up."""
    fake_device(monkeypatch)
    model = save_tiny(tmp_path / "tiny.onnx")

    def tune(objective, **changes):
        defaults = {"out": tmp_path / "tiny.tuned", "log": tmp_path / "t.db", "searcher": "random", "trials": 4}
        return tuning.tune(model, Options(**{**defaults, "objective": objective, **changes})).artifact

    return tune


def agrees(session, folder):
    feed = {"data": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)}
    reference = onnxruntime.InferenceSession(str(folder / "tiny.onnx"), providers=["CPUExecutionProvider"])
    return np.allclose(session.run(None, feed)[0], reference.run(None, feed)[0], 1e-3, 1e-5)


def test_throughput_records_its_streams_and_latency_takes_them_back(tuned, tmp_path):
    artifact = tuned("throughput", streams=2, threads=2)
    assert read_artifact(artifact).target.threads == 1
    assert read_artifact(artifact).provenance[STREAMS] == 2
    session = InferenceSession(artifact)
    assert (session.streams, session.threads) == (2, 1)
    assert agrees(session, tmp_path)
    tuned("throughput", threads=1)
    assert read_artifact(artifact).provenance[STREAMS] == AUTO
    tuned("latency", threads=1)
    assert InferenceSession(artifact).streams == 1


def test_balanced_has_kernels_for_both_in_one_artifact_and_goes_on_where_it_ended(tuned, tmp_path):
    artifact = tuned("balanced", streams=2, threads=2)
    composite = read_composite(artifact)
    assert [part.threads for part in composite.parts] == [2, 1]
    session = InferenceSession(artifact)
    assert (session.streams, session.threads) == (2, 2)
    assert agrees(session, tmp_path)
    before = (artifact / "manifest.json").read_bytes()
    tuned("balanced", streams=2, threads=2, frozen=True)
    assert (artifact / "manifest.json").read_bytes() == before
