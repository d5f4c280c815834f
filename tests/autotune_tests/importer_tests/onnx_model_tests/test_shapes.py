"""Shapes: bound, inferred, and the skeleton that inference reads."""

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from autotune.importer.onnx_model.shapes import (
    SKELETON_ELEMENTS,
    dim_name,
    infer_shapes,
    shape_text,
    skeleton,
)
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value


def test_large_weights_are_inputs_of_the_skeleton():
    weights = {"small": np.ones(SKELETON_ELEMENTS, np.float32), "large": np.ones(SKELETON_ELEMENTS + 1, np.float32)}
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (1,)), value("large", (1,))], ["y"], weights)
    small = skeleton(model)
    assert [tensor.name for tensor in small.graph.initializer] == ["small"]
    assert [info.name for info in small.graph.input] == ["x", "large"]


def test_declared_inner_shapes_are_replaced():
    model = conv_model()
    model.graph.value_info.append(value("c", (1, 4, 99, 99)))
    infer_shapes(model, "m")
    assert {v.name: shape_text(v.type.tensor_type.shape) for v in model.graph.value_info} == {"c": "1 x 4 x 8 x 8"}


def test_channels_that_do_not_go_together():
    with pytest.raises(ModelError, match=r"data \[1, 3, 8, 8\] does not go with weights \[4, 2, 3, 3\] in 1 groups"):
        infer_shapes(conv_model(channels=2), "m")


def test_a_tensor_that_is_too_large():
    model = model_of(
        [helper.make_node("Expand", ["x", "s"], ["y"])], [value("x", (1,))], ["y"], {"s": np.array([1 << 31])}
    )
    with pytest.raises(ModelError, match=r"'y' of shape 2147483648 takes 8.0 GiB, more than 4"):
        infer_shapes(model, "m")


def test_shape_text():
    shape = onnx.TensorShapeProto()
    assert shape_text(shape) == "scalar"
    shape.dim.add(dim_param="batch")
    shape.dim.add(dim_value=3)
    shape.dim.add()
    assert shape_text(shape) == "batch x 3 x ?"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("batch", "batch"),
        (" s0 + 1", "s0 + 1"),
        ("?", ""),
        ("-1", ""),
        ("", ""),
        ("  ", ""),
        ("None", ""),
        ("unk__7", "unk__7"),
    ],
)
def test_only_real_names_are_names(written, name):
    assert dim_name(onnx.TensorShapeProto.Dimension(dim_param=written)) == name


@pytest.mark.parametrize("declared", [(2, 6, 1), (2, 7)])
def test_wrongly_declared_outputs_are_told_and_inferred(declared, caplog):
    model = model_of([helper.make_node("Concat", ["x", "x"], ["y"], axis=1)], [value("x", (2, 3))], [])
    model.graph.output.append(value("y", declared))
    infer_shapes(model, "m.onnx")
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [2, 6]
    assert "m.onnx: the shapes that it declares for its outputs are not those that it makes" in caplog.text


@pytest.mark.parametrize("count", [3, SKELETON_ELEMENTS + 1])
def test_a_constant_that_is_an_output_has_its_own_shape(count):
    """As what ``Unique`` makes of constants, whose count was declared as open."""
    weights = {"c": np.zeros(count, np.float32)}
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (1,))], ["y"], weights)
    model.graph.output.append(value("c", ("found",)))
    infer_shapes(model, "m")
    assert shape_text(model.graph.output[1].type.tensor_type.shape) == str(count)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("element", ["float", "int64"])
def test_constants_of_a_column_beside_a_row_have_shapes(kind, element):
    """ONNX's inference takes the values of all tensors for vectors, and refuses those of unequal lengths."""
    graph = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({element}[4, 3] x) => ({element}[4, 3] y) <{element}[4] a = {{1, 2, 3, 4}}, {element}[3] b = {{1, 2, 3}},
    int64[1] last = {{-1}}, {element}[4] c = {{2, 2, 2, 2}}>
    {{ d = {kind}(a, c)
       column = Unsqueeze(d, last)
       table = {kind}(column, b)
       y = Add(x, table) }}"""
    model = parser.parse_model(graph)
    infer_shapes(model, "model")
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.value_info
    }
    assert shapes["table"] == [4, 3]
