"""Cutting a model: every node once, segments in order, and what cannot be imported apart."""

import numpy as np
import onnx
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autotune.importer.onnx_model.segments import split
from autotune.importer.onnx_model.shapes import infer_shapes
from schedules.vocabulary.errors import ModelError

BAD = "Sin"


def attempt(model: onnx.ModelProto) -> None:
    """An importer that knows every operator but two."""
    if any(node.op_type in (BAD, "NonZero") for node in model.graph.node):
        raise ModelError("no")


def model_of(nodes, outputs, shape=(2, 3)):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, shape)], [value(name, TensorProto.FLOAT, None) for name in outputs]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    infer_shapes(model, "g")
    return model


def run(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, feed), strict=True))


@given(st.data())
def test_the_segments_compute_the_model(data):
    names, nodes = ["x"], []
    for number in range(data.draw(st.integers(2, 12))):
        kind = data.draw(st.sampled_from(["Add", BAD, "Relu", "Mul"]))
        count = 2 if kind in ("Add", "Mul") else 1
        inputs = [data.draw(st.sampled_from(names)) for _ in range(count)]
        nodes.append(helper.make_node(kind, inputs, [f"v{number}"]))
        names.append(f"v{number}")
    nodes.append(helper.make_node("Relu", ["x"], ["last"]))  # something can always be imported
    read = {name for node in nodes for name in node.input}
    outputs = [name for node in nodes for name in node.output if name not in read]
    model = model_of(nodes, outputs)
    segments = split(model, attempt)
    assert sorted(n.output[0] for s in segments for n in s.model.graph.node) == sorted([*names[1:], "last"])
    assert all({n.op_type == BAD for n in s.model.graph.node} == {s.is_fallback} for s in segments)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)}
    values = dict(feed)
    for segment in segments:
        values.update(run(segment.model, {value.name: values[value.name] for value in segment.model.graph.input}))
    for name, want in run(model, feed).items():
        assert np.array_equal(values[name], want)


def test_what_depends_on_the_data_is_an_island_with_all_that_reads_it():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    segments = split(model_of(nodes, ["y"]), attempt)
    assert [(s.is_fallback, s.operators) for s in segments] == [(False, ("Relu",)), (True, ("NonZero", "Cast"))]


def test_values_of_unknown_shape_pass_between_fallback_partitions():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["places"]),
        helper.make_node(BAD, ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "b"], ["c"]),
        helper.make_node(BAD, ["c"], ["d"]),
        helper.make_node("GatherND", ["d", "rows"], ["y"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
    ]
    nodes[5:] = nodes[:4:-1]
    model = model_of(nodes, ["y"], (3, 3))
    segments = split(model, attempt)
    assert [s.is_fallback for s in segments] == [True, False, True]
    feed = {"x": np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)}
    values = dict(feed)
    for segment in segments:
        values.update(run(segment.model, {value.name: values[value.name] for value in segment.model.graph.input}))
    assert np.allclose(values["y"], run(model, feed)["y"])


def test_a_level_without_a_product_is_left_to_onnxruntime_where_others_have_one():
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"]),
        helper.make_node(BAD, ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert [s.operators for s in split(model_of(nodes, ["y"], (3, 3)), attempt)] == [("MatMul",), (BAD, "Relu")]


def test_a_model_of_which_nothing_can_be_imported_is_one_fallback_partition():
    segments = split(
        model_of([helper.make_node(BAD, ["x"], ["a"]), helper.make_node(BAD, ["a"], ["y"])], ["y"]), attempt
    )
    assert [(s.is_fallback, s.operators, len(s.model.graph.node)) for s in segments] == [(True, (BAD,), 2)]


def test_a_model_without_nodes_that_fails_has_no_segments():
    def refuse(_):
        raise ModelError("no")

    model = model_of([], ["x"])
    assert split(model, refuse) == []
