"""Simplifying keeps what a model computes and its interface, and leaves nothing that the importer handles badly."""

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models import cached, random_inputs, run_reference
from tests.models.reference import reference_session
from tests.models.test_models import EACH

RNG = np.random.default_rng(0)


def operators(model):
    return Counter(node.op_type for node in model.graph.node)


def interface(model):
    return [(v.name, v.type.tensor_type.elem_type) for v in (*model.graph.input, *model.graph.output)]


def simplified(model, folder, **options):
    """The simplified model, after a check that it still computes the same."""
    loaded = load_model(written(model, folder))
    text = loaded.SerializeToString(deterministic=True)
    plain = simplify(loaded, **options)
    assert loaded.SerializeToString(deterministic=True) == text, "the given model was changed"
    agree(model, plain)
    return plain


def agree(model, plain):
    inputs = random_inputs(model, seed=3)
    assert interface(plain)[: len(plain.graph.input)] == [
        (v.name, v.type.tensor_type.elem_type) for v in model.graph.input if v.name in inputs
    ]
    expected = run_reference(model, inputs)
    # Without rewriting, ONNX Runtime's products of bytes saturate where there is no VNNI, and ``plain`` has some.
    session = reference_session(plain)
    names = [value.name for value in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs), strict=True))
    assert list(expected) == list(outputs)
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=1e-4, atol=1e-5 * max(np.abs(values).max(), 1))


@pytest.mark.parametrize("name", [model_name for model_name in EACH if "tiny_open" not in str(model_name)])
def test_models_compute_the_same(name):
    model = load_model(cached(name))
    plain = simplify(model)
    agree(onnx.load(cached(name)), plain)
    counts = operators(plain)
    assert not counts.keys() & {"Sum", "Identity", "Dropout", "Constant", "BatchNormalization", "ConstantOfShape"}
    assert plain.opset_import[0].version >= 13
    weights = {tensor.name for tensor in plain.graph.initializer}
    assert not weights & {v.name for v in plain.graph.input}
    assert all(node.name for node in plain.graph.node)
    shaped = {v.name for v in (*plain.graph.value_info, *plain.graph.output)}
    assert {name for node in plain.graph.node for name in node.output if name} <= shaped


def test_sums_become_additions(tmp_path):
    nodes = [
        helper.make_node("Sum", ["a"], ["one"]),
        helper.make_node("Sum", ["one", "b"], ["two"]),
        helper.make_node("Sum", ["two", "a", "b", "c"], ["y"]),
    ]
    plain = simplified(model_of(nodes, [value(n, (2, 3)) for n in "abc"], ["y"]), tmp_path)
    assert operators(plain) == {"Add": 4}


def test_sum_broadcasts(tmp_path):
    nodes = [helper.make_node("Sum", ["a", "b", "c"], ["y"])]
    inputs = [value("a", (4,)), value("b", (3, 1)), value("c", (2, 1, 1))]
    assert operators(simplified(model_of(nodes, inputs, ["y"]), tmp_path)) == {"Add": 2}


def test_identities_and_idle_dropouts_vanish(tmp_path):
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Dropout", ["a", "ratio", "off"], ["b", "mask"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Dropout", ["c"], ["d"]),
        helper.make_node("Identity", ["d"], ["y"]),
    ]
    weights = {"ratio": np.array(0.5, np.float32), "off": np.array(False)}
    plain = simplified(model_of(nodes, [value("x", (2, 3))], ["y"], weights), tmp_path)
    assert operators(plain) == {"Relu": 1}
    assert not plain.graph.initializer


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([("Identity", "x", "y")], ["y"]),
        ([("Relu", "x", "a"), ("Identity", "a", "y"), ("Identity", "a", "z")], ["y", "z"]),
        ([("Relu", "x", "a"), ("Identity", "a", "y"), ("Neg", "a", "z")], ["y", "z"]),
        ([("Relu", "x", "y"), ("Identity", "y", "z"), ("Neg", "z", "w")], ["y", "z", "w"]),
        ([("Identity", "x", "a"), ("Identity", "a", "y"), ("Identity", "a", "z")], ["y", "z"]),
    ],
)
def test_outputs_behind_identities_keep_their_names(tmp_path, nodes, outputs):
    protos = [helper.make_node(op, [source], [output]) for op, source, output in nodes]
    plain = simplified(model_of(protos, [value("x", (2, 3))], outputs), tmp_path)
    assert [v.name for v in plain.graph.output] == outputs


def test_identity_read_inside_a_branch(tmp_path):
    out = [value("out", (2, 3))]
    branches = [helper.make_graph([helper.make_node(op, ["a"], ["out"])], op, [], out) for op in ("Relu", "Neg")]
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [value("x", (2, 3)), value("c", (), TensorProto.BOOL)]
    simplified(model_of(nodes, inputs, ["y"]), tmp_path)


def test_constants_are_folded(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Constant", [], ["shape"], value_ints=[3, 2]),
        helper.make_node("Mul", ["two", "w"], ["scaled"]),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "scaled"], ["y"]),
    ]
    weights = {"w": RNG.standard_normal((2, 5)).astype(np.float32)}
    plain = simplified(model_of(nodes, [value("x", (2, 3))], ["y"], weights), tmp_path)
    assert operators(plain) == {"Reshape": 1, "MatMul": 1}


def test_shape_arithmetic_is_folded_once_inputs_are_bound(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    path = written(model_of(nodes, [value("x", ("n", 3, 4))], ["y"], weights), tmp_path)
    assert operators(simplify(load_model(path, {"x": (2, 3, 4)}))) == {"Reshape": 1}


def test_scalars_of_rank_one(tmp_path):
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"]), helper.make_node("Add", ["y", "low"], ["z"])]
    weights = {"low": np.array([0], np.float32), "high": np.array([6], np.float32)}
    plain = simplify(load_model(written(model_of(nodes, [value("x", (2, 3))], ["z"], weights), tmp_path)))
    (clip,) = [node for node in plain.graph.node if node.op_type == "Clip"]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in plain.graph.initializer}
    assert [constants[name].shape for name in clip.input[1:]] == [(), ()]
    assert [float(constants[name]) for name in clip.input[1:]] == [0, 6]


def batch_norm(names="x s b m v", output="n", **attributes):
    return helper.make_node("BatchNormalization", names.split(), [output], **attributes)


NORM = {
    "s": RNG.uniform(0.5, 2, 4).astype(np.float32),
    "b": RNG.standard_normal(4).astype(np.float32),
    "m": RNG.standard_normal(4).astype(np.float32),
    "v": RNG.uniform(0.5, 2, 4).astype(np.float32),
    "c": RNG.uniform(0.5, 2, (4, 1, 1)).astype(np.float32),
    "d": RNG.standard_normal((1, 4, 1, 1)).astype(np.float32),
    "e": RNG.standard_normal((4, 1)).astype(np.float32),
}


def test_batch_norm_with_its_scale_layer_is_one_multiplication_and_addition(tmp_path):
    nodes = [
        batch_norm(epsilon=1e-3),
        helper.make_node("Mul", ["n", "c"], ["scaled"]),
        helper.make_node("Add", ["d", "scaled"], ["shifted"]),
        helper.make_node("Relu", ["shifted"], ["y"]),
    ]
    plain = simplified(model_of(nodes, [value("x", (2, 4, 3, 5))], ["y"], NORM), tmp_path)
    assert operators(plain) == {"Mul": 1, "Add": 1, "Relu": 1}


def test_batch_norm_does_not_swallow_what_is_not_per_channel_or_read_twice(tmp_path):
    nodes = [
        batch_norm(),
        helper.make_node("Add", ["n", "e"], ["y"]),  # along the wrong axis
        batch_norm("x s b m v", "k"),
        helper.make_node("Mul", ["k", "c"], ["z"]),
        helper.make_node("Neg", ["k"], ["w"]),
        batch_norm("x s b m v", "out"),
        helper.make_node("Mul", ["out", "c"], ["u"]),
    ]
    simplified(model_of(nodes, [value("x", (2, 4, 4, 5))], ["y", "z", "w", "out", "u"], NORM), tmp_path)


def test_batch_norm_over_a_matrix(tmp_path):
    plain = simplified(model_of([batch_norm(output="y")], [value("x", (7, 4))], ["y"], NORM), tmp_path)
    assert operators(plain) == {"Mul": 1, "Add": 1}


def test_functions_are_expanded(tmp_path):
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Sigmoid", ["v"], ["s"]), helper.make_node("Mul", ["v", "s"], ["r"])]
    function = helper.make_function("local", "Swish", ["v"], ["r"], body, opsets)
    nodes = [
        helper.make_node("Swish", ["x"], ["a"], domain="local"),
        helper.make_node("Swish", ["a"], ["y"], domain="local"),
    ]
    model = model_of(nodes, [value("x", (2, 3))], ["y"], functions=[function], domains=["local"])
    assert operators(simplified(model, tmp_path)) == {"Sigmoid": 2, "Mul": 2}


def test_old_softmax_keeps_its_meaning(tmp_path):
    """Before opset 13, Softmax flattened everything from its axis on."""
    model = model_of([helper.make_node("Softmax", ["x"], ["y"])], [value("x", (2, 3, 4))], ["y"], opset=9)
    plain = simplified(model, tmp_path)
    assert plain.opset_import[0].version == 13


def test_conversion_that_changes_the_interface_is_not_taken(tmp_path, caplog):
    """ONNX's converter drops the batch dimension of a version 8 Scan from the whole graph."""
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "next"], ["sum"]), helper.make_node("Identity", ["sum"], ["scan"])],
        "body",
        [value("state", (2,)), value("next", (2,))],
        [value("sum", (2,)), value("scan", (2,))],
    )
    node = helper.make_node("Scan", ["", "initial", "x"], ["y", "z"], num_scan_inputs=1, body=body)
    model = model_of([node], [value("initial", (1, 2)), value("x", (1, 3, 2))], ["y", "z"], opset=8)
    stayed = simplified(model, tmp_path)
    assert "stays at opset 8" in caplog.text
    assert [len(info.type.tensor_type.shape.dim) for info in stayed.graph.input] == [2, 3]


def test_unused_input_stays_in_the_interface(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    plain = simplified(model_of(nodes, [value("idle", (1,)), value("x", (2, 3))], ["y"]), tmp_path)
    assert [v.name for v in plain.graph.input] == ["idle", "x"]


def test_function_that_cannot_be_expanded_is_a_model_error(tmp_path):
    body = [helper.make_node("Relu", ["v"], ["r"])]
    function = helper.make_function("local", "F", ["v"], ["r"], body, [helper.make_opsetid("", 17)])
    node = helper.make_node("F", ["x", "x"], ["y"], domain="local")
    model = model_of([node], [value("x", (2, 3))], ["y"], functions=[function], domains=["local"])
    with pytest.raises(ModelError) as caught:
        simplify(load_model(written(model, tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("exponent", "left"),
    [(2.0, 0), (np.full((1,), 2.0), 0), (3.0, 0), (4.0, 1), (np.array([2.0, 2.0]), 1)],
)
def test_squares_are_products(tmp_path, exponent, left):
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    model = model_of([node], [value("x", (3, 2))], ["y"], {"e": np.asarray(exponent, np.float32)})
    assert operators(simplified(model, tmp_path))["Pow"] == left
