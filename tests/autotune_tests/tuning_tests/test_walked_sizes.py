"""Recurrent layers called with other lengths than those of their sets: they begin and end where the call does."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.options import Options
from autotune.tuning import tune as tuning
from tests.autotune_tests.fakes import fake_device

INPUTS, HIDDEN = 12, 20


def model(path, kind):
    """Two layers that walk both ways over (length, batch, 12); all states, and the last ones of the second layer."""
    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3}[kind]
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes, weights, x = [], [numpy_helper.from_array(np.array([0, 0, -1]), "flat")], "x"
    for layer, width in (("one", INPUTS), ("two", 2 * HIDDEN)):
        shapes = {"w": (2, gates * HIDDEN, width), "r": (2, gates * HIDDEN, HIDDEN)}
        for name, shape in shapes.items():
            array = (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"{layer}.{name}"))
        operands = [x, f"{layer}.w", f"{layer}.r"]
        nodes += [
            helper.make_node(
                kind,
                operands,
                [f"{layer}.y", f"{layer}.h"],
                hidden_size=HIDDEN,
                direction="bidirectional",
                **attributes,
            ),
            helper.make_node("Transpose", [f"{layer}.y"], [f"{layer}.t"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"{layer}.t", "flat"], [f"{layer}.f"]),
        ]
        x = f"{layer}.f"
    outputs = [
        helper.make_tensor_value_info("two.f", TensorProto.FLOAT, ["length", "batch", 2 * HIDDEN]),
        helper.make_tensor_value_info("two.h", TensorProto.FLOAT, [2, "batch", HIDDEN]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", "batch", INPUTS])]
    graph = helper.make_graph(nodes, "walked", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module", params=["LSTM", "GRU"])
def served(request, tmp_path_factory):
    """The model's path and a session of its artifact for 5 and 16 steps."""
    folder = tmp_path_factory.mktemp("walked")
    path = model(folder / "walked.onnx", request.param)
    sets = ({"x": (5, 1, INPUTS)}, {"x": (16, 1, INPUTS)})
    options = Options(
        out=folder / "walked.tuned", log=folder / "t.db", threads=2, trials=2, batch=2, searcher="random", shapes=sets
    )
    with pytest.MonkeyPatch.context() as patch:
        fake_device(patch)
        result = tuning.tune(path, options)
    return path, autotune.InferenceSession(result.artifact)


@pytest.mark.parametrize("length", [16, 5, 1, 4, 6, 11, 15])
def test_other_lengths_run_on_kernels_for_longer_ones(served, length, caplog):
    path, session = served
    before, x = (np.full((n, 1, INPUTS), np.nan, np.float32) for n in (16, length))
    x[:] = np.random.default_rng(length).standard_normal(x.shape)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session.run(None, {"x": before})  # what it leaves behind is no number
    for ours, theirs in zip(session.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert "ONNX Runtime runs" not in caplog.text
