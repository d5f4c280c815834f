"""Constants are folded by ONNX's reference implementation."""

import numpy as np
from onnx import helper, numpy_helper

from autotune.importer.rewriting.folding import fold
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_shapes_fold_to_constants():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
    ]
    model = model_of(nodes, [value("x", (3, 5))], ["m"], {"zero": np.array([0]), "two": np.array([2])})
    assert fold(model)
    assert not model.graph.node
    assert {tensor.name for tensor in model.graph.initializer} >= {"m"}


def test_what_depends_on_inputs_is_random_or_too_large_stays():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("RandomNormal", [], ["b"], shape=[2]),
        helper.make_node("Expand", ["one", "shape"], ["c"]),
        helper.make_node("Neg", ["one"], ["d"]),
    ]
    weights = {"one": np.ones(1, np.float32), "shape": np.array([64])}
    model = model_of(nodes, [value("x", (3, 5))], ["a", "b", "c", "d"], weights)
    assert fold(model, largest=8)
    assert [node.op_type for node in model.graph.node] == ["Relu", "RandomNormal", "Expand"]
    folded = next(tensor for tensor in model.graph.initializer if tensor.name == "d")
    assert numpy_helper.to_array(folded).tolist() == [-1.0]


def test_quantisers_fold_at_opsets_that_the_reference_lacks():
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0)]
    weights = {"q": np.array([[1], [9]], np.int8), "s": np.float32([0.5, 2]), "z": np.array([0, 4], np.int8)}
    model = model_of(nodes, [value("x", (1,))], ["d"], weights, opset=13)
    assert fold(model)
    folded = next(tensor for tensor in model.graph.initializer if tensor.name == "d")
    assert numpy_helper.to_array(folded).tolist() == [[0.5], [10.0]]
