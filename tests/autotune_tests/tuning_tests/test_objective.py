"""Objectives: which threads kernels are tuned for, and what a session makes of the artifact."""

import numpy as np
import onnxruntime
import pytest

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import AUTO, STREAMS
from autotune.builder import one_lane
from autotune.host.machine import host_target
from autotune.measure import local_measurer
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning import objective
from autotune.tuning import tune as tuning
from autotune.tuning.objective import stream_options, thread_counts
from schedules.errors import UsageError
from tests.autotune_tests.fakes import FakeMeasurer, if_it_lowers
from tests.autotune_tests.tiny import save_tiny


@pytest.fixture
def four_threads(monkeypatch):
    """A machine of four cores."""
    target = host_target(1)

    def described(threads=None):
        return type(target)(kind="llvm", isa=target.isa, threads=threads or 4)

    monkeypatch.setattr(objective, "host_target", described)


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({"objective": "latency"}, None),
        ({"objective": "throughput"}, 1),
        ({"objective": "throughput", "streams": 2}, 2),
        ({"objective": "throughput", "streams": 3}, 1),
        ({"objective": "throughput", "streams": 8}, 1),
        ({"objective": "throughput", "streams": 1, "threads": 2}, 2),
    ],
)
def test_a_stream_gets_its_share_of_the_threads(four_threads, given, threads):
    assert stream_options(Options(**given)).threads == threads


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"objective": "latency", "threads": 3}, (3,)),
        ({"objective": "balanced"}, (4, 1)),
        ({"objective": "balanced", "streams": 2}, (4, 2)),
        ({"objective": "balanced", "streams": 1}, (4,)),
    ],
)
def test_balanced_is_tuned_for_all_threads_and_for_those_of_a_stream(four_threads, given, counts):
    assert thread_counts(Options(**given)) == counts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "thruput"}, "objective 'thruput' is unknown; did you mean 'throughput'"),
        ({"streams": 2}, "streams is 2 and objective is latency; give"),
        ({"objective": "balanced", "streams": 0}, "streams is 0"),
        ({"objective": "throughput", "lanes": "cpu:2x1"}, "leave out --lanes and --target"),
        ({"objective": "balanced", "fallback": "onnxruntime"}, "leave out --fallback"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        Options(**given)


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Objective and other options → the artifact of a small model; measured by a measurer that makes its numbers up."""
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: FakeMeasurer(if_it_lowers))
    monkeypatch.setattr(one_lane, "median_s", lambda *_: 1e-3)
    model = save_tiny(tmp_path / "tiny.onnx")

    def tune(objective, **changes):
        given = {"out": tmp_path / "tiny.tuned", "log": tmp_path / "t.db", "searcher": "random", "trials": 4}
        return tuning.tune(model, Options(**{**given, "objective": objective, **changes})).artifact

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
