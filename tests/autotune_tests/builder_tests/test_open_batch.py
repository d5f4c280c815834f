"""Artifacts for one row of an open batch: which of them answer any batch, and that they answer it rightly."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import INTERFACE, replace_field
from autotune.builder.open_batch import CHECKED_ROWS, References, any_batch, check_rows
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import compare_artifact, session_specs
from tests.autotune_tests.tiny import build_untuned

COUNTS = (0, 1, 2, 7, 64)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), output.split(), **attributes)


def weights(**shapes):
    rng = np.random.default_rng(0)
    return [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, n) for n, shape in shapes.items()
    ]


def whole(**arrays):
    return [numpy_helper.from_array(np.asarray(array, np.int64), name) for name, array in arrays.items()]


def dense(source="x", result="y"):
    return node("MatMul", f"{source} w", result)


NORM = {"scale": np.ones(6), "bias": np.zeros(6), "mean": np.zeros(6), "var": np.ones(6)}

INDEPENDENT = {
    "products": ({"x": ["batch", 6]}, {"y": ["batch", 5]}, [dense()], weights(w=(6, 5))),
    "an image of an odd size": (
        {"x": ["n", 3, 7, 5]},
        {"y": ["n", 4, 7, 5], "z": ["n", 4, 1, 1]},
        [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y"), node("GlobalAveragePool", "y", "z")],
        weights(w=(4, 3, 3, 3)),
    ),
    "two inputs of one batch": (
        {"a": ["batch", 6], "b": ["batch", 5]},
        {"y": ["batch", 5]},
        [dense("a", "p"), node("Add", "p b", "y")],
        weights(w=(6, 5)),
    ),
    "two inputs whose batches have names of their own": (
        {"a": ["unk__1", 6], "b": ["unk__2", 5]},
        {"y": ["unk__3", 5]},
        [dense("a", "p"), node("Add", "p b", "y")],
        weights(w=(6, 5)),
    ),
    "inputs without names": (
        {"a": ["?", 6], "b": [-1, 5]},
        {"y": ["?", 5]},
        [dense("a", "p"), node("Add", "p b", "y")],
        weights(w=(6, 5)),
    ),
    "an output of several rows for each": (
        {"x": ["batch", 6]},
        {"y": ["rows", 3]},
        [node("Reshape", "x s", "y")],
        whole(s=[-1, 3]),
    ),
    "an input that is an output": (
        {"x": ["batch", 6]},
        {"x": ["batch", 6], "y": ["batch", 5]},
        [dense()],
        weights(w=(6, 5)),
    ),
    "a batch on the second axis": (
        {"x": ["batch", 6], "state": [2, "batch", 6]},
        {"y": ["batch", 6], "next": [2, "batch", 6]},
        [node("ReduceSum", "state axes", "s", keepdims=0), node("Add", "x s", "y"), node("Add", "state y", "next")],
        whole(axes=[0]),
    ),
    "positions": (
        {"ids": ["batch", 4]},
        {"y": ["batch", 4, 5]},
        [node("Gather", "w ids", "y")],
        weights(w=(9, 5)),
    ),
    "booleans and integers": (
        {"ids": ["batch", 4]},
        {"y": ["batch", 4], "z": ["batch"]},
        [node("Greater", "ids limit", "y"), node("ReduceSum", "ids axes", "z", keepdims=0)],
        whole(limit=0, axes=[1]),
    ),
}
"""Graphs whose rows leave each other alone: inputs, outputs, nodes, weights."""

DEPENDENT = {
    "a mean over the batch": (
        {"x": ["batch", 6]},
        {"y": ["batch", 6]},
        [node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m", "y")],
        [],
    ),
    "a running sum": ({"x": ["batch", 6]}, {"y": ["batch", 6]}, [node("CumSum", "x axis", "y")], whole(axis=0)),
    "a softmax over the batch": ({"x": ["batch", 6]}, {"y": ["batch", 6]}, [node("Softmax", "x", "y", axis=0)], []),
    "products of all pairs": (
        {"x": ["batch", 6]},
        {"y": ["batch", "batch"]},
        [node("Transpose", "x", "t"), node("MatMul", "x t", "y")],
        [],
    ),
    "statistics of the batch": (
        {"x": ["batch", 6]},
        {"y": ["batch", 6]},
        [node("BatchNormalization", "x scale bias mean var", "y new_mean new_var", training_mode=1)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in NORM.items()],
    ),
    "an output without a batch": (
        {"x": ["batch", 6]},
        {"y": ["batch", 5], "z": [1, 6]},
        [dense(), node("ReduceMax", "x", "z", axes=[0])],
        weights(w=(6, 5)),
    ),
    "a scale of the batch": (
        {"x": ["batch", 6]},
        {"y": ["batch", 6]},
        [node("DynamicQuantizeLinear", "x", "q scale zero"), node("DequantizeLinear", "q scale zero", "y")],
        [],
    ),
    "rows in reverse": (
        {"x": ["batch", 6]},
        {"y": ["batch", 6]},
        [node("Slice", "x start end axis step", "y")],
        whole(start=[-1], end=[-(2**40)], axis=[0], step=[-1]),
    ),
}

OF_ONE_ROW = {
    "a batch in the graph": ({"x": ["batch", 6]}, {"y": [1, 2, 3]}, [node("Reshape", "x s", "y")], whole(s=[1, 2, 3])),
    "an input without a batch": (
        {"x": ["batch", 6], "gain": [6]},
        {"y": ["batch", 6]},
        [node("Mul", "x gain", "y")],
        [],
    ),
    "no open size": ({"x": [1, 6]}, {"y": [1, 5]}, [dense()], weights(w=(6, 5))),
}
"""Graphs that run one row alone, or whose inputs do not all have rows."""


@pytest.fixture
def built(tmp_path, measurer):
    """Build the artifact of a graph, without a batch that is open."""

    def build(inputs, outputs, nodes, initialisers):
        kinds = {name: INT64 if name == "ids" else FLOAT for name in inputs}
        results = {name: kinds.get(name, FLOAT) for name in outputs}
        if "ids" in inputs and "z" in outputs:
            results = {"y": TensorProto.BOOL, "z": INT64}
        graph = helper.make_graph(
            nodes,
            "rows",
            [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, results[name], shape) for name, shape in outputs.items()],
            initialisers,
        )
        path = tmp_path / "rows.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path, build_untuned(path, tmp_path / "rows.tuned", measurer)

    return build


def feed_of(interface, count):
    rng = np.random.default_rng(count)
    feed = {}
    for spec in interface.inputs:
        shape = [count if isinstance(size, str) else size for size in spec.shape]
        array = rng.standard_normal(shape) if spec.dtype == "float32" else rng.integers(0, 3, shape)
        feed[spec.name] = array.astype(spec.dtype)
    return feed


@pytest.mark.parametrize("case", INDEPENDENT)
def test_rows_that_leave_each_other_alone_are_answered_at_any_batch(built, case):
    model, path = built(*INDEPENDENT[case])
    interface = any_batch(read_artifact(path), model, 0)
    assert len(interface.split) == 1
    replace_field(path, INTERFACE, interface.to_data())
    session = InferenceSession(path)
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for count in COUNTS:
        feed = feed_of(interface, count)
        ours, theirs = session.run(None, feed), reference.run(None, feed)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.shape == other.shape
            assert mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert compare_artifact(path, References(model).of(feed_of(interface, 1))).passed
    assert not (path / "model.onnx").exists()


@pytest.mark.parametrize("case", DEPENDENT)
def test_rows_that_change_each_other_are_not(built, caplog, case):
    model, path = built(*DEPENDENT[case])
    assert any_batch(read_artifact(path), model, 0) is None
    assert "rows.onnx: calls of other batches are refused: rows of a batch change each other's results" in caplog.text


@pytest.mark.parametrize("case", OF_ONE_ROW)
def test_a_model_of_one_row_keeps_it(built, case):
    model, path = built(*OF_ONE_ROW[case])
    assert any_batch(read_artifact(path), model, 0) is None


def test_an_artifact_whose_rows_are_wrong_is_found_out(built):
    model, path = built(*INDEPENDENT["products"])
    artifact = read_artifact(path)
    artifact = replace(artifact, interface=any_batch(artifact, model, 0))
    assert check_rows(artifact, References(model), 0).passed
    wrong = replace(artifact, weights=tuple(np.flip(array, -1).copy() for array in artifact.weights))
    verdict = check_rows(wrong, References(model), 0)
    assert not verdict.passed
    assert CHECKED_ROWS > 1


def test_the_kernels_own_sizes_are_known_of_an_open_session(built):
    model, path = built(*INDEPENDENT["a batch on the second axis"])
    replace_field(path, INTERFACE, any_batch(read_artifact(path), model, 0).to_data())
    session = InferenceSession(path)
    assert [spec.shape for spec in session.get_inputs()] == [["batch", 6], [2, "batch", 6]]
    assert [spec.shape for spec in session_specs(session)] == [(1, 6), (2, 1, 6)]
