"""A node that is replaced, and the nodes that take its place."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.onnx_model.scope import Scope
from autotune.importer.rewriting.emit import Emit, Node
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def node_of(**attributes):
    proto = helper.make_node("TopK", ["x", "k", ""], ["v", ""], "top", **attributes)
    return Node(proto, Scope(model_of([proto], [value("x", (2, 3))], ["v"], {"k": np.array([2])})))


def test_attributes_inputs_and_outputs():
    node = node_of(axis=1, mode="linear", names=["a", "b"])
    assert (node.attr("axis"), node.attr("mode"), node.attr("names"), node.attr("none", 5)) == (
        1,
        "linear",
        ["a", "b"],
        5,
    )
    assert (node.input(0), node.input(2), node.input(7)) == ("x", "", "")
    assert (node.wants(0), node.wants(1)) == (True, False)
    assert (node.shape(0), node.dtype(0)) == ((2, 3), np.float32)
    assert node.constant(1, "k").tolist() == [2]


def test_refusals_name_the_node():
    node = node_of()
    with pytest.raises(ModelError, match=r"operator TopK \(node 'top'\) is not supported: its data 'x' is computed"):
        node.constant(0, "data")
    with pytest.raises(ModelError, match="the shape of its input 'k2' depends on data"):
        Node(helper.make_node("Abs", ["k2"], ["y"]), node.scope).shape(0)


def test_equal_constants_are_one_and_names_are_new():
    node = node_of()
    e = Emit(node)
    assert e.ints(1, 2) == e.ints(1, 2)
    assert e.ints(1, 2) != e.const(np.array([1, 2], np.int32))
    parts = e.split("x", [1, 2], 1)
    assert len({*parts, e.fresh(), e.concat(parts, 1)}) == 4
    assert [written.op_type for written in e.nodes] == ["Slice", "Slice", "Concat"]
    assert e.concat(["x"], 0) == "x"
    assert node.scope.array(e.like(3)).dtype == np.float32
