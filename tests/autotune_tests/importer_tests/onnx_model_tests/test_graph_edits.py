"""Small rewrites of an ONNX graph."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.importer.onnx_model.graph_edits import tidy
from autotune.importer.rewriting.registry import split_to_slices
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_constants_of_every_kind_become_initialisers():
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=2.0),
        helper.make_node("Constant", [], ["b"], value_ints=[1, 2]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(3, np.float32))),
        helper.make_node("Add", ["x", "a"], ["d"]),
        helper.make_node("Add", ["d", "c"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (3,))], ["y"])
    tidy(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Add", "Add"]
    assert {tensor.name: list(tensor.dims) for tensor in model.graph.initializer} == {"a": [], "c": [3]}


def test_identities_vanish_and_outputs_keep_their_names():
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Identity", ["b"], ["y"]),
        helper.make_node("Identity", ["b"], ["z"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    model = model_of(nodes, [value("x", (3,))], ["y", "z", "same"])
    tidy(model.graph)
    assert [(n.op_type, *n.input, *n.output) for n in model.graph.node] == [
        ("Relu", "x", "y"),
        ("Identity", "y", "z"),
        ("Identity", "x", "same"),
    ]


def test_bounds_of_one_element_become_scalars():
    model = model_of(
        [helper.make_node("Clip", ["x", "low"], ["y"])], [value("x", (3,))], ["y"], {"low": np.zeros(1, np.float32)}
    )
    tidy(model.graph)
    assert [(tensor.name, list(tensor.dims)) for tensor in model.graph.initializer] == [("low/scalar", [])]
    assert list(model.graph.node[0].input) == ["x", "low/scalar"]


@pytest.mark.parametrize(("axis", "sizes"), [(1, (2, 3, 2)), (-1, (1, 4)), (0, (3,))])
def test_split_is_slices(axis, sizes):
    shape = [3, 7, 5]
    names = [f"part{index}" for index in range(len(sizes))]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x", "sizes"], names, "split", axis=axis)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in names],
        [numpy_helper.from_array(np.array(sizes, np.int64), "sizes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    for output, known in zip(model.graph.output, inferred.graph.output, strict=True):
        output.CopyFrom(known)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    before = ReferenceEvaluator(model).run(None, {"x": x})
    split_to_slices(model)
    assert [node.op_type for node in model.graph.node] == ["Slice"] * len(sizes)
    onnx.checker.check_model(model)
    for old, new in zip(before, ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        assert np.array_equal(old, new)
