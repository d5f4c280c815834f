"""Every output is written by a kernel."""

import numpy as np
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import build
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

X, CONSTANT = np.arange(24, dtype=np.float32).reshape(1, 4, 6), np.arange(12, dtype=np.float32).reshape(3, 4)


def session(nodes, outputs, folder):
    constants = {"shape": np.array([4, 6]), "constant": CONSTANT, "other": np.array([12])}
    return build(model_of(nodes, [value("x", X.shape)], outputs, constants), folder)


def test_outputs_that_are_inputs_or_weights_are_copies(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Transpose", ["x"], ["moved"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["constant", "other"], ["weight"]),
    ]
    ours = session(nodes, ["y", "same", "flat", "moved", "weight"], tmp_path)
    feed = {"x": X - 5}
    results = ours.run(None, feed)
    expected = [np.maximum(feed["x"], 0), feed["x"], feed["x"][0], feed["x"].transpose(1, 0, 2), CONSTANT.ravel()]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert not np.shares_memory(result, feed["x"])
    assert len(ours.profile(feed)) >= 5


def test_an_input_is_the_only_output(tmp_path):
    ours = session([helper.make_node("Reshape", ["x", "shape"], ["flat"])], ["flat"], tmp_path)
    np.testing.assert_array_equal(ours.run(None, {"x": X})[0], X[0])
    assert len(ours.profile({"x": X})) == 1


def test_types_of_every_size_are_copied(tmp_path):
    kinds = {"i": (TensorProto.INT64, np.int64), "b": (TensorProto.BOOL, bool), "h": (TensorProto.FLOAT16, np.float16)}
    feed = {name: np.arange(-3, 5).astype(dtype) for name, (_, dtype) in kinds.items()}
    nodes = [helper.make_node("Identity", [name], [f"{name}/out"]) for name in kinds]
    outputs = [value(f"{name}/out", (8,), kind) for name, (kind, _) in kinds.items()]
    model = model_of(nodes, [value(name, (8,), kind) for name, (kind, _) in kinds.items()], [], {})
    model.graph.output.extend(outputs)
    ours = build(model, tmp_path)
    for result, array in zip(ours.run(None, feed), feed.values(), strict=True):
        np.testing.assert_array_equal(result, array)
    assert ours.profile(feed)
