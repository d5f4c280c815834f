"""What is known of a graph's values."""

import numpy as np
from onnx import TensorProto, helper

from autotune.importer.onnx_model.scope import Scope
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_constants_types_and_shapes():
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", (2, "n"))], ["y"], {"w": np.ones(3, np.int8)}
    )
    scope = Scope(model, ["x"])
    assert scope.opset == 17
    assert scope.given == {"w"}
    assert scope.shapes == {"w": (3,)}
    assert (scope.types["x"], scope.types["w"]) == (TensorProto.FLOAT, TensorProto.INT8)
    assert scope.array("w").tolist() == [1, 1, 1]
    assert scope.array("x") is None


def test_added_constants_are_part_of_the_graph():
    model = model_of([], [value("x", (2,))], ["x"])
    Scope(model).add("c", np.array([1.5]))
    assert [tensor.name for tensor in model.graph.initializer] == ["c"]
    assert Scope(model).shapes["c"] == (1,)
