"""Nodes, bodies and names of an ONNX graph."""

import pytest
from onnx import helper

from autotune.importer.onnx_model.graph_walk import MAX_DEPTH, name_nodes, reads, rename, walk_graphs, walk_nodes
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def branch(nodes, output):
    return helper.make_graph(nodes, "body", [], [value(output, (2,))])


def nested():
    body = branch([helper.make_node("Add", ["x", "w"], ["inner"])], "inner")
    return helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=branch([], "x"))


def test_bodies_are_walked_and_counted():
    model = model_of([nested(), helper.make_node("Neg", ["y"], ["z"])], [value("x", (2,))], ["z"])
    assert [node.op_type for node in walk_nodes(model.graph.node)] == ["If", "Add", "Neg"]
    assert reads(model.graph) == {"c": 1, "x": 2, "w": 1, "y": 1, "inner": 1, "z": 1}
    assert len(list(walk_graphs(model))) == 3


def test_names_follow_outputs_and_are_unique():
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"], "a"), nested()]
    name_nodes(nodes)
    assert [node.name for node in walk_nodes(nodes)] == ["a/1", "a", "y", "inner"]


def test_renaming_leaves_what_a_body_makes_itself():
    node = nested()
    rename(node, {"x": "renamed", "inner": "other"})
    bodies = {attribute.name: attribute.g for attribute in node.attribute}
    assert list(bodies["then_branch"].node[0].input) == ["renamed", "w"]
    assert bodies["then_branch"].output[0].name == "inner"
    assert bodies["else_branch"].output[0].name == "renamed"


def test_deep_nesting_is_refused():
    node = helper.make_node("Neg", ["x"], ["y"])
    for _ in range(MAX_DEPTH + 2):
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch([node], "y"), else_branch=branch([], "x"))
    with pytest.raises(ModelError, match="nests subgraphs more than 16 deep"):
        list(walk_nodes([node]))
