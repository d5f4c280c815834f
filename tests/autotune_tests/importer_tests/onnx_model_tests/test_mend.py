"""Graphs that ONNX Runtime runs and ONNX's checker refuses: they load, and compute the same."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.importer.load import load_model
from autotune.importer.onnx_model.graph_walk import name_nodes
from autotune.importer.onnx_model.mend import mend, outer_reads
from autotune.importer.program import import_program, simplify
from schedules.target import Target
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import FLOAT, model_of, value, written

X = np.array([[-1.0, 2.0, -3.0]], np.float32)


def unsorted():
    return model_of(
        [helper.make_node("Relu", ["b"], ["y"]), helper.make_node("Neg", ["a"], ["b"], "n"), negation("x", "a")],
        [value("x", (1, 3))],
        ["y"],
    )


def negation(read, output):
    return helper.make_node("Neg", [read], [output], "n")


def untyped_output():
    model = unsorted()
    model.graph.output[0].ClearField("type")
    return model


def nameless_graph():
    model = unsorted()
    model.graph.name = ""
    return model


def spelt_out_domain():
    model = unsorted()
    model.graph.node[0].domain = "ai.onnx"
    return model


def repeated_initialiser():
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", (1, 3))], ["y"])
    arrays = {"w": (1.0, 2.0), "": (3.0,)}
    for name, number_of in ((name, number) for name, numbers in arrays.items() for number in numbers):
        model.graph.initializer.append(numpy_helper.from_array(np.full(3, number_of, np.float32), name))
    return model


def undeclared_domain():
    nodes = [helper.make_node("Range", ["from", "to"], ["r"], domain="com.microsoft")]
    constants = {"from": np.zeros(1, np.float32), "to": np.full((), 3, np.float32)}
    model = model_of([*nodes, helper.make_node("Add", ["x", "r"], ["y"])], [value("x", (1, 3))], ["y"], constants)
    model.graph.output[0].CopyFrom(value("y", (1, 3)))
    return model


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


@pytest.mark.parametrize(
    "make",
    [
        unsorted,
        untyped_output,
        nameless_graph,
        spelt_out_domain,
        repeated_initialiser,
        undeclared_domain,
    ],
)
def test_what_onnx_runtime_runs_loads_and_is_the_same(make, tmp_path):
    model = make()
    for number, node in enumerate(model.graph.node):  # of two nodes with one name ONNX Runtime runs neither
        node.name = f"{node.op_type}{number}"
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    loaded = load_model(written(model, tmp_path))
    onnx.checker.check_model(loaded)
    np.testing.assert_array_equal(run(loaded), run(model))
    assert loaded.graph.output[0].type.tensor_type.elem_type == FLOAT


def test_every_node_has_a_name_of_its_own(tmp_path):
    loaded = load_model(written(unsorted(), tmp_path))
    assert sorted(node.name for node in loaded.graph.node) == ["n", "n/1", "y"]
    nodes = [helper.make_node("Neg", ["x"], ["n"]), negation("n", "a"), negation("a", "b")]
    name_nodes(nodes)
    assert [node.name for node in nodes] == ["n/1", "n", "n/2"]


def branch(*nodes):
    return helper.make_graph(nodes, "branch", [], [value("t", (1, 3))])


def test_bodies_are_sorted_and_what_they_read_comes_first(tmp_path):
    choice = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(negation("q", "t"), negation("a", "q")),
        else_branch=branch(negation("a", "t")),
    )
    model = model_of([choice, negation("x", "a")], [value("x", (1, 3)), value("c", (), TensorProto.BOOL)], ["y"])
    load_model(written(model, tmp_path))
    assert outer_reads(choice) == {"c", "a"}
    mend(model, "m")
    assert [node.op_type for node in model.graph.node] == ["Neg", "If"]
    then = next(attribute.g for attribute in model.graph.node[1].attribute if attribute.name == "then_branch")
    assert [list(node.output) for node in then.node] == [["q"], ["t"]]


def test_functions_are_sorted():
    body = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    function = helper.make_function("own", "F", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    model = model_of([call], [value("x", (1, 3))], ["y"], functions=[function], domains=["own"])
    mend(model, "m")
    assert [node.op_type for node in model.functions[0].node] == ["Relu", "Neg"]


def test_nodes_in_order_keep_it():
    nodes = [negation("x", "b"), negation("x", "a"), helper.make_node("Add", ["a", "b"], ["y"])]
    model = model_of(nodes, [value("x", (1, 3))], ["y"])
    mend(model, "m")
    assert list(model.graph.node) == nodes


@pytest.mark.parametrize("spelt", ["initialiser", "constant", "integer", "shared"])
def test_axes_of_one_number_are_a_vector(spelt, tmp_path):
    """ONNX Runtime takes them; jax2onnx writes them."""
    axis = numpy_helper.from_array(np.int64(1), "axis")
    constants = {
        "constant": [helper.make_node("Constant", [], ["axis"], value=axis)],
        "integer": [helper.make_node("Constant", [], ["axis"], value_int=1)],
    }.get(spelt, [])
    nodes = [helper.make_node("Unsqueeze", ["x", "axis"], ["u"]), helper.make_node("Unsqueeze", ["u", "axis"], ["y"])]
    if spelt == "shared":  # the scalar is read as one too
        nodes += [helper.make_node("Gather", ["x", "axis"], ["z"], axis=1)]
    model = model_of([*constants, *nodes], [value("x", (1, 3))], ["y", "z"] if spelt == "shared" else ["y"])
    if not constants:
        model.graph.initializer.append(axis)
    loaded = load_model(written(model, tmp_path))
    np.testing.assert_array_equal(run(loaded), run(model))
    assert import_program(simplify(loaded), Target.cpu("znver3", 1)).outputs[0].shape == (1, 1, 1, 3)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([negation("b", "a"), negation("a", "b"), negation("b", "y")], "in a circle"),
        ([negation("y", "y")], "in a circle"),
        ([helper.make_node("Add", ["x", "nope"], ["y"])], "the Add that makes 'y' reads 'nope', which nothing makes"),
    ],
)
def test_what_has_no_order_is_refused(nodes, words):
    with pytest.raises(ModelError, match=words) as caught:
        mend(model_of(nodes, [value("x", (1, 3))], ["y"]), "m")
    assert "\n" not in str(caught.value)


def test_zip_map_is_left_out_with_a_word(tmp_path, caplog):
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    node = helper.make_node("ZipMap", ["x"], ["chances"], domain="ai.onnx.ml", classlabels_int64s=[3, 5])
    output = onnx.ValueInfoProto(name="chances", type=kind)
    graph = helper.make_graph([node], "g", [value("x", (4, 2))], [output])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = load_model(written(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path))
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [4, 2]
    assert "output 'chances' is a tensor (rows, classes), not ZipMap's list of dictionaries; its classes are 3, 5" in (
        caplog.text
    )


def test_bounds_of_a_loop_may_be_vectors_of_one_element(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3] x) => (float[1,3] y)
        <int64[1] n = {3}, bool[1] yes = {1}> {
        y = Loop<body = b (int64 i, bool c, float[1,3] v) => (bool c2, float[1,3] w) {
            c2 = Identity(c) k = Cast<to=1>(i) w = Add(v, k) }>(n, yes, x) }"""
    model = onnx.parser.parse_model(text)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_array_equal(run(load_model(written(model, tmp_path))), expected)
