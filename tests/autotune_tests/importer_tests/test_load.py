"""Loading: shapes bound, names given; a broken model is refused in one line that says what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from schedules.vocabulary.errors import ModelError, UsageError
from tests.autotune_tests.importer_tests.onnx_cases import FLOAT, conv_model, model_of, value, written


def refusal(path, inputs=None, error=ModelError):
    """The one line with which ``path`` is refused."""
    with pytest.raises(error) as caught:
        load_model(path, inputs)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def dims(value_info):
    return [dim.dim_value for dim in value_info.type.tensor_type.shape.dim]


def test_a_window_that_fits_nowhere_is_refused(tmp_path):
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[3, 3])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "g", [value("x", onnx.TensorProto.FLOAT, [1, 2, 2, 5])], [value("y", onnx.TensorProto.FLOAT, None)]
    )
    path = tmp_path / "pool.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    with pytest.raises(ModelError, match=r"MaxPool.*pool.*window is larger than its padded data \[1, 2, 2, 5\]"):
        load_model(path)


def test_good_model_gets_every_shape_and_name(tmp_path):
    model = load_model(written(conv_model(), tmp_path))
    assert dims(model.graph.output[0]) == [1, 4, 8, 8]
    assert {info.name: dims(info) for info in model.graph.value_info} == {"c": [1, 4, 8, 8]}
    assert [node.name for node in model.graph.node] == ["first_conv", "y"]


def test_symbolic_inputs_that_others_leave_open_are_refused_with_the_flag_to_give(tmp_path):
    nodes = [*conv_model().graph.node, helper.make_node("Relu", ["z"], ["r"])]
    model = conv_model(("batch", 3, None, "w"))
    model.graph.node.append(nodes[-1])
    model.graph.input.append(value("z", ("n", 4)))
    model.graph.output.append(value("r", None))
    message = refusal(written(model, tmp_path), {"z": (3, 4)})
    assert "input 'x' has dynamic dimensions (batch x 3 x ? x w)" in message
    assert "--input x:1x3x224x224" in message


def test_negative_dimension_means_any(tmp_path):
    path = written(conv_model((-1, 3, -1, 8)), tmp_path)
    assert dims(load_model(path).graph.output[0]) == [1, 4, 224, 8]
    path = written(conv_model((-1, 3, 8, 8)), tmp_path)
    assert dims(load_model(path).graph.output[0]) == [1, 4, 8, 8]
    assert dims(load_model(path, {"x": (2, 3, 8, 8)}).graph.output[0]) == [2, 4, 8, 8]


def test_input_without_shape(tmp_path):
    path = written(conv_model(None), tmp_path)
    assert "input 'x' has an unknown shape" in refusal(path)
    assert dims(load_model(path, {"x": (1, 3, 5, 6)}).graph.output[0]) == [1, 4, 5, 6]


def test_symbol_bound_by_one_input_binds_the_others(tmp_path):
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    path = written(model_of(nodes, [value("a", ("n", 4)), value("b", ("n", 4))], ["y"]), tmp_path)
    model = load_model(path, {"a": (3, 4)})
    assert [dims(info) for info in (*model.graph.input, *model.graph.output)] == [[3, 4]] * 3
    message = refusal(path, {"a": (3, 4), "b": (2, 4)}, UsageError)
    assert "'n' is 3 already" in message


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"z": (1,)}, ["--input z:", "its inputs are: x"]),
        ({"x": (1, 3, 8)}, ["--input x:1x3x8", "has 3 dimensions", "give 4"]),
        ({"x": (1, 4, 8, 8)}, ["--input x:1x4x8x8", "batch x 3 x 8 x 8", "cannot change"]),
        ({"x": (0, 3, 8, 8)}, ["at least 1"]),
    ],
)
def test_flag_that_does_not_fit_is_a_usage_error(tmp_path, inputs, words):
    message = refusal(written(conv_model(("batch", 3, 8, 8)), tmp_path), inputs, UsageError)
    assert all(word in message for word in words), message


def test_declared_output_batch_follows_the_bound_one(tmp_path):
    model = conv_model(("batch", 3, 8, 8))
    model.graph.output[0].CopyFrom(value("y", ("batch", 4, 8, 8)))
    assert dims(load_model(written(model, tmp_path), {"x": (5, 3, 8, 8)}).graph.output[0]) == [5, 4, 8, 8]


def test_misshaped_model_names_the_node(tmp_path):
    message = refusal(written(conv_model(channels=5), tmp_path))
    assert "first_conv" in message
    assert "Conv" in message


def test_misshaped_input_names_the_node(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="projection")]
    model = model_of(nodes, [value("x", (None, None))], ["y"], {"w": np.ones((4, 5), np.float32)})
    message = refusal(written(model, tmp_path), {"x": (2, 3)})
    assert "projection" in message
    assert "--input" in message


def test_declared_output_that_contradicts_the_graph_is_told(tmp_path, caplog):
    model = conv_model()
    model.graph.output[0].CopyFrom(value("y", (1, 9, 8, 8)))
    output = load_model(written(model, tmp_path)).graph.output[0]
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [1, 4, 8, 8]
    assert "node name: y" in caplog.text
    assert "(4) vs (9)" in caplog.text


def test_missing_file_and_folder(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.onnx")
    assert "is not a file" in refusal(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"hello world", b"\x89PNG\r\n\x1a\n" + bytes(100), b"PK\x03\x04" + b"z" * 64]
)
def test_file_that_is_no_model(tmp_path, data):
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    message = refusal(path)
    assert f"{len(data)} bytes" in message
    assert "copy or export it again" in message


def test_truncated_anywhere_is_refused_or_still_checked(tmp_path):
    whole = conv_model().SerializeToString()
    path = tmp_path / "cut.onnx"
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refusal(path)


def test_external_domain_names_operator_and_node(tmp_path):
    nodes = [helper.make_node("MurmurHash3", ["x"], ["y"], name="fused", domain="com.microsoft")]
    message = refusal(written(model_of(nodes, [value("x", (1, 2))], ["y"], domains=["com.microsoft"]), tmp_path))
    assert "com.microsoft::MurmurHash3" in message
    assert "'fused'" in message
    assert "standard operators" in message


def test_unknown_operator_names_operator_and_output(tmp_path):
    nodes = [helper.make_node("Bogus", ["x"], ["y"])]
    message = refusal(written(model_of(nodes, [value("x", (1, 2))], ["y"]), tmp_path))
    assert "'Bogus'" in message
    assert "makes 'y'" in message
    assert "opset 17" in message


def test_operator_newer_than_the_opset(tmp_path):
    nodes = [helper.make_node("Gelu", ["x"], ["y"])]
    assert "opset 17" in refusal(written(model_of(nodes, [value("x", (1, 2))], ["y"]), tmp_path))
    load_model(written(model_of(nodes, [value("x", (1, 2))], ["y"], opset=20), tmp_path))


def test_opset_from_the_future(tmp_path):
    model = conv_model()
    model.opset_import[0].version = 999
    message = refusal(written(model, tmp_path))
    assert "999" in message
    assert "upgrade onnx" in message


def test_missing_attribute(tmp_path):
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], name="join")]
    assert "axis" in refusal(written(model_of(nodes, [value("x", (1, 2))], ["y"]), tmp_path))


def test_inputs_that_are_no_tensors(tmp_path):
    sequence = onnx.ValueInfoProto(
        name="x", type=helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    )
    nodes = [helper.make_node("SequenceLength", ["x"], ["y"])]
    assert "number of elements is not known; give their shapes" in refusal(
        written(model_of(nodes, [sequence], ["y"]), tmp_path)
    )


def test_weights_listed_as_inputs_need_no_shape_from_the_user(tmp_path):
    model = conv_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (4, 3, 3, 3)))
    model.ir_version = 3
    assert dims(load_model(written(model, tmp_path)).graph.output[0]) == [1, 4, 8, 8]


def test_large_weights_take_part_in_shape_checks(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="projection")]
    weights = {"w": np.ones((300, 200), np.float32)}
    path = written(model_of(nodes, [value("x", (1, 300))], ["y"], weights), tmp_path)
    model = load_model(path)
    assert dims(model.graph.output[0]) == [1, 200]
    assert [info.name for info in model.graph.input] == ["x"]
    assert np.array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), weights["w"])
    assert "projection" in refusal(written(model_of(nodes, [value("x", (1, 30))], ["y"], weights), tmp_path))
