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
    model, narrow = made(["Add", "Identity", "Neg"], TensorProto.BFLOAT16)
    kinds = [node.op_type for node in narrow.graph.node]
    assert kinds == ["Decode", "Decode", "Add", "Encode", "Identity", "Decode", "Neg", "Encode"]
    assert narrow.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT16
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.BFLOAT16


def test_fp16_is_cast_for_every_operator():
    assert [n.op_type for n in made(["Add"], TensorProto.FLOAT16)[1].graph.node] == ["Cast", "Cast", "Add", "Cast"]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_device_that_stores_halves_keeps_their_types(dtype):
    _, narrow = made(["Add", "Softmax"], dtype, half_native=True)
    assert [node.op_type for node in narrow.graph.node] == ["Cast", "Cast", "Add", "Cast", "Softmax"]
    assert {node.attribute[0].i for node in narrow.graph.node if node.op_type == "Cast"} == {TensorProto.FLOAT, dtype}
    assert narrow.graph.input[0].type.tensor_type.elem_type == dtype


@pytest.mark.parametrize("half_native", [False, True])
def test_a_cast_is_one_step_where_no_step_is_missing(half_native):
    kinds = (TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT32)
    nodes = [helper.make_node("Cast", [f"v{i}"], [f"v{i + 1}"], f"n{i}", to=kinds[i + 1]) for i in range(3)]
    model = model_of(nodes, [value("v0", (2,), kinds[0])], [], opset=21)
    model.graph.output.append(value("v3", (2,), kinds[3]))
    infer_shapes(model, "m")
    kinds_found = [node.op_type for node in encoded(model, half_native).graph.node]
    assert kinds_found == (["Cast"] * 4 if half_native else ["Decode", "Encode", "Decode", "Cast"])


def test_models_of_usual_types_are_left_alone():
    model, narrow = made(["Add"], TensorProto.FLOAT)
    assert narrow is model


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
