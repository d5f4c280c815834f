"""The operator at which an import fails."""

import pytest
from onnx import helper

from autotune.importer.onnx_model.segments import attributed
from autotune.importer.onnx_model.shapes import infer_shapes
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def attempt(model):
    if any(node.op_type == "Sin" for node in model.graph.node):
        raise ValueError("no sine\nreally")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["Relu", "Sin"], "operator Sin (node 'n1') cannot be built: no sine; export"),
        (["Relu", "Neg"], "the model cannot be imported: whole; its operators are Relu, Neg"),
        (["Sin"], "the model cannot be imported: whole; its operators are Sin"),
    ],
)
def test_the_first_operator_that_fails_alone_is_named(kinds, message):
    names = ["x", *(f"v{index}" for index in range(len(kinds)))]
    nodes = [helper.make_node(k, [names[i]], [names[i + 1]], f"n{i}") for i, k in enumerate(kinds)]
    model = model_of(nodes, [value("x", (2,))], [names[-1]])
    infer_shapes(model, "m")
    assert str(attributed(model, ValueError("whole"), attempt)).startswith(message)
