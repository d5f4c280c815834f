"""Segments run one after the other, those that TVM cannot express on ONNX Runtime, and a failure names its segment."""

import builtins

import numpy as np
import onnxruntime
import pytest

from autotune.artifact.composite import read_composite
from autotune.runtime.segmented_executor import SegmentedExecutor, open_onnxruntime
from schedules.vocabulary.errors import InstallError, ModelError, RunError, UsageError
from tests.autotune_tests.composites import data, three_segments


@pytest.fixture(scope="module")
def built(tmp_path_factory, measurer):
    return three_segments(tmp_path_factory.mktemp("segments"), measurer)


@pytest.fixture
def executor(built):
    return SegmentedExecutor(read_composite(built.artifact), None)


class Fails:
    """ONNX Runtime over a partition that fails."""

    def __init__(self, error):
        self._error = error

    def run(self, names, values):
        raise self._error


class Answers:
    """ONNX Runtime over a partition whose outputs are these."""

    def __init__(self, *arrays):
        self._arrays = arrays

    def run(self, names, values):
        return self._arrays


def test_values_pass_between_segments(built, executor):
    feed = data()
    theirs = onnxruntime.InferenceSession(str(built.model), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in executor.outputs]
    for ours, other in zip(executor.run([feed["data"]]), theirs.run(names, feed), strict=True):
        assert (ours.shape, ours.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-5)


def test_a_fallback_partition_is_one_entry_of_the_profile(executor):
    symbols = [symbol for symbol, _ in executor.profile([data()["data"]])]
    place = symbols.index("fallback-1")
    assert 0 < place < len(symbols) - 1
    assert executor.timeline([data()["data"]]) == []
    assert executor.lanes == ()


@pytest.mark.parametrize(
    ("error", "told"), [(RuntimeError("dear me\nout of luck"), "out of luck"), (MemoryError(), "MemoryError")]
)
def test_a_fallback_partition_that_fails_is_named(executor, error, told):
    executor._segments[1]._session = Fails(error)
    with pytest.raises(RunError, match=rf"fallback-1.onnx \(Sqrt, NonZero\) failed: {told}"):
        executor.run([data()["data"]])


def test_a_value_of_another_shape_never_reaches_a_kernel(executor):
    executor._segments[1]._session = Answers(np.zeros((1, 32, 8, 9), np.float32), np.zeros((2, 1), np.int64))
    with pytest.raises(UsageError, match=r"'root' has shape \(1, 32, 8, 9\), the artifact was built for [^;]*$"):
        executor.run([data()["data"]])


def test_cancelling_reaches_the_tuned_segments(executor, monkeypatch):
    asked = []
    for number, segment in enumerate(executor._segments):
        monkeypatch.setattr(segment, "halt", lambda number=number: asked.append(number))
    executor.cancel()
    assert asked == [0, 1, 2]


def test_without_onnxruntime_it_says_what_to_install(built, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InstallError, match="pip install"):
        open_onnxruntime(built.artifact / "fallback-1.onnx", 1)


def test_a_partition_that_the_optimiser_refuses_runs_without_it(tmp_path, monkeypatch):
    def refuses_optimised(data, options, providers):
        if options.graph_optimization_level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
            raise RuntimeError("type inference failed")
        return data

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuses_optimised)
    (tmp_path / "a.onnx").write_bytes(b"model")
    assert open_onnxruntime(tmp_path / "a.onnx", 1) == b"model"


def test_a_partition_that_onnxruntime_refuses_is_said_in_a_line(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"no model")
    with pytest.raises(
        ModelError, match=r"^ONNX Runtime refuses fallback partition a\.onnx: .*; export the model again$"
    ):
        open_onnxruntime(tmp_path / "a.onnx", 1)
