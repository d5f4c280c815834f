"""Strings around the kernels, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.contrib.strings.host_strings import set_strings_apart
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

STRING = TensorProto.STRING


def pipeline():
    """Strings → numbers → a product → the greatest → a string."""
    nodes = [
        helper.make_node(
            "LabelEncoder", ["x"], ["codes"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_floats=[1.0, 2.0]
        ),
        helper.make_node("MatMul", ["codes", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["best"], ["y"], domain="ai.onnx.ml", keys_int64s=[0, 1], values_strings=["no", "yes"]
        ),
    ]
    weights = np.array([[1, -1], [-2, 3]], np.float32)
    model = model_of(nodes, [value("x", (4, 2), STRING)], ["scores", "y"], {"w": weights}, domains=["ai.onnx.ml"])
    model.opset_import[1].version = 2
    model.graph.output[1].type.tensor_type.elem_type = STRING
    return model


def test_numbers_between_strings_are_kernels(tmp_path):
    x = np.array([["a", "b"], ["b", "a"], ["z", "b"], ["", "a"]], object)
    ours, theirs = run(pipeline(), tmp_path, {"x": x})
    assert np.allclose(ours[0], theirs[0])
    assert ours[1].tolist() == theirs[1].tolist()


def test_steps_come_before_and_after_the_kernels(tmp_path):
    model = load_model(written(pipeline(), tmp_path))
    before, after = set_strings_apart(model)
    assert [step.kind for step in before] == [step.kind for step in after] == ["LabelEncoder"]
    assert [node.op_type for node in model.graph.node] == ["MatMul", "ArgMax"]
    assert [info.name for info in model.graph.input] == ["codes"]
    assert sorted(info.name for info in model.graph.output) == ["best", "scores"]


def test_strings_that_nothing_reads_are_inputs(tmp_path):
    inputs = [value("x", (3,)), value("unread", (2,), STRING)]
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], inputs, ["y"])
    feed = {"x": np.array([1, 2, 3], np.float32), "unread": np.array(["a", "b"], object)}
    ours, theirs = run(model, tmp_path, feed)
    assert np.array_equal(ours[0], theirs[0])


def test_an_operator_without_a_step_is_refused_by_name(tmp_path):
    nodes = [helper.make_node("Unique", ["x"], ["y"])]
    model = model_of(nodes, [value("x", (4,), STRING)], ["y"])
    model.graph.output[0].type.tensor_type.elem_type = STRING
    with pytest.raises(ModelError, match=r"operator Unique .*strings"):
        simplify(load_model(written(model, tmp_path)))
