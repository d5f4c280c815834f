"""Large weights beside a model: ONNX Runtime computes the same, and nothing large is serialised."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.light_model import light
from autotune.importer.onnx_model.shapes import SKELETON_ELEMENTS
from autotune.validation.reference_runs import reference_outputs

WIDTH = 64
RNG = np.random.default_rng(3)
WEIGHTS = {
    "large": RNG.standard_normal((WIDTH, WIDTH), dtype=np.float32),
    "small": RNG.standard_normal(WIDTH, dtype=np.float32),
    "unread": RNG.standard_normal((WIDTH, WIDTH), dtype=np.float32),
}


def model():
    nodes = [helper.make_node("MatMul", ["x", "large"], ["p"]), helper.make_node("Add", ["p", "small"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, WIDTH]) for name in "xy")
    weights = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_large_weights_that_are_read_are_beside():
    lit = light(model())
    assert [*lit.weights] == ["large"]
    assert [tensor.name for tensor in lit.proto.graph.initializer] == ["large", "small"]
    assert len(lit.proto.SerializeToString()) < WEIGHTS["large"].nbytes
    assert WIDTH <= SKELETON_ELEMENTS < WEIGHTS["large"].size


def test_onnx_runtime_computes_the_same():
    feed = {"x": RNG.standard_normal((2, WIDTH), dtype=np.float32)}
    session = onnxruntime.InferenceSession(model().SerializeToString())
    (ours,) = reference_outputs(light(model()), feed)[1]
    assert np.array_equal(ours, session.run(None, feed)[0])


def test_the_whole_model_has_its_data_again():
    whole = light(model()).whole()
    onnx.checker.check_model(whole, full_check=True)
    for tensor in whole.graph.initializer:
        assert np.array_equal(numpy_helper.to_array(tensor), WEIGHTS[tensor.name])


def test_weights_that_lie_beside_a_model_stay_there():
    lit = light(model())
    again = light(lit.proto, {**lit.weights, "other": WEIGHTS["small"]})
    assert again.weights.keys() == lit.weights.keys()
    assert again.weights["large"] is lit.weights["large"]
