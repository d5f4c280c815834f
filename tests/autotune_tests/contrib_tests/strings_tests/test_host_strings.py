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


CLASSIFIERS = {
    "linear": ("LinearClassifier", {"coefficients": [0.5, -1.0, 0.3, 0.2, 0.7, -0.4], "intercepts": [0.1, 0.0, -0.1]}),
    "two classes": ("LinearClassifier", {"coefficients": [0.5, -1.0, -0.5, 1.0], "intercepts": [0.1, -0.1]}),
    "vectors": (
        "SVMClassifier",
        {
            "coefficients": [0.5, -0.5],
            "kernel_params": [0.5, 0.0, 3.0],
            "kernel_type": "RBF",
            "support_vectors": [0.5, 1.0, -1.0, 0.2],
            "vectors_per_class": [1, 1],
            "rho": [0.1],
        },
    ),
    "trees": (
        "TreeEnsembleClassifier",
        {
            "nodes_treeids": [0] * 5,
            "nodes_nodeids": [0, 1, 2, 3, 4],
            "nodes_featureids": [0, 0, 1, 0, 0],
            "nodes_values": [0.1, 0.0, 0.3, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 3, 0, 0],
            "nodes_falsenodeids": [2, 0, 4, 0, 0],
            "class_treeids": [0] * 3,
            "class_nodeids": [1, 3, 4],
            "class_ids": [0, 1, 2],
            "class_weights": [1.0, 1.0, 1.0],
        },
    ),
}


def classifier(name, version, rows):
    """Return a model of a classifier with strings as labels, whose scores and labels are outputs."""
    kind, attributes = CLASSIFIERS[name]
    labels = ["no", "yes", "maybe"][: 3 if name in ("linear", "trees") else 2]
    node = helper.make_node(
        kind, ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_strings=labels, **attributes
    )
    model = model_of([node], [value("x", (rows, 2))], ["label", "scores"], domains=["ai.onnx.ml"])
    model.opset_import[1].version = version
    model.graph.output[0].type.tensor_type.elem_type = STRING
    return model


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_that_are_strings_are_named_on_the_host(name, version, tmp_path):
    model, x = classifier(name, version, 7), np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    _, after = set_strings_apart(load_model(written(model, tmp_path)))
    assert [step.kind for step in after] == ["LabelEncoder"]
    ours, theirs = run(model, tmp_path, {"x": x})
    assert ours[0].tolist() == theirs[0].tolist()
    assert len(set(theirs[0])) > 1
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)


def test_an_operator_without_a_step_is_refused_by_name(tmp_path):
    nodes = [helper.make_node("Unique", ["x"], ["y"])]
    model = model_of(nodes, [value("x", (4,), STRING)], ["y"])
    model.graph.output[0].type.tensor_type.elem_type = STRING
    with pytest.raises(ModelError, match=r"operator Unique .*strings"):
        simplify(load_model(written(model, tmp_path)))
