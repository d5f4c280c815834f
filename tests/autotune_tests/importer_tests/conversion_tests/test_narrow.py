"""Tensors of narrow types travel as bit patterns; arithmetic is in fp32."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.narrow import encoded
from autotune.importer.onnx_model.shapes import infer_shapes
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def made(kinds, dtype, **options):
    names = ["x", *(f"v{index}" for index in range(len(kinds)))]
    nodes = [
        helper.make_node(k, [names[i]] * (2 if k == "Add" else 1), [names[i + 1]], f"n{i}") for i, k in enumerate(kinds)
    ]
    model = model_of(nodes, [value("x", (2,), dtype)], [], opset=21)
    model.graph.output.append(value(names[-1], (2,), dtype))
    infer_shapes(model, "m")
    return model, encoded(model, **options)


def test_every_operation_rounds_once():
    model, found = made(["Add", "Identity", "Neg"], TensorProto.BFLOAT16)
    kinds = [node.op_type for node in found.graph.node]
    assert kinds == ["Decode", "Decode", "Add", "Encode", "Identity", "Decode", "Neg", "Encode"]
    assert found.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT16
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.BFLOAT16


def test_a_device_that_multiplies_halves_gets_them():
    assert [n.op_type for n in made(["Add"], TensorProto.FLOAT16)[1].graph.node] == ["Cast", "Cast", "Add", "Cast"]
    assert [n.op_type for n in made(["Add"], TensorProto.FLOAT16, half_native=True)[1].graph.node] == ["Add"]


def test_models_of_usual_types_are_left_alone():
    model, found = made(["Add"], TensorProto.FLOAT)
    assert found is model


def test_integers_without_arithmetic_are_refused():
    model = model_of(
        [helper.make_node("Abs", ["x"], ["y"], "culprit")], [value("x", (2,), TensorProto.INT4)], [], opset=21
    )
    model.graph.output.append(value("y", (2,), TensorProto.INT4))
    with pytest.raises(ModelError, match=r"operator Abs \(node 'culprit'\) is not supported on INT4 tensors"):
        encoded(model)


def test_weights_become_bit_patterns():
    weights = helper.make_tensor("w", TensorProto.FLOAT8E5M2, [2], [1.0, -2.0])
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"], "add")], [value("x", (2,), TensorProto.FLOAT8E5M2)], []
    )
    model.graph.initializer.append(weights)
    model.graph.output.append(value("y", (2,), TensorProto.FLOAT8E5M2))
    tensor = encoded(model).graph.initializer[0]
    assert (tensor.data_type, np.frombuffer(tensor.raw_data, np.uint8).tolist()) == (TensorProto.UINT8, [0x3C, 0xC0])
