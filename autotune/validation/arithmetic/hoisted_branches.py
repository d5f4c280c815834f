"""Models whose Ifs only choose: both branches are computed before, in the main graph.

The types of what a branch computes are inferred there, so it can be written in 64 bits like everything else.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto, helper

from autotune.importer.onnx_model.graph_walk import name_nodes, subgraphs
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes
from autotune.importer.operators.control import inlined
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import replace_all

SIDES = ("then_branch", "else_branch")


def only_chooses(node: NodeProto) -> bool:
    """Return whether ``node`` is an If whose branches compute nothing."""
    bodies = list(subgraphs(node)) if node.op_type == "If" and node.domain in STANDARD_DOMAINS else []
    return bool(bodies) and all(inner.op_type == "Identity" for body in bodies for inner in body.node)


def hoist_branches(model: ModelProto) -> ModelProto:
    """Return ``model``, or a copy with shapes inferred whose Ifs of the main graph only choose.

    Raises:
        ModelError: if what a branch computes does not fit the shapes that the other one needs.
    """
    if not any(map(_computes, model.graph.node)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    while any(map(_computes, copy.graph.node)):
        replace_all(copy, Scope(copy), lambda node: _hoisted if _computes(node) else None)
    name_nodes(copy.graph.node)
    infer_shapes(copy)
    return copy


def _computes(node: NodeProto) -> bool:
    return node.op_type == "If" and node.domain in STANDARD_DOMAINS and not only_chooses(node)


def _hoisted(node: Node, e: Emit) -> list[str]:
    """The nodes of both branches, and an If between what they make."""
    bodies = {}
    for side in SIDES:
        results = inlined(e, node.attr(side), [], side)
        copies = [e.fresh() for _ in results]
        nodes = [helper.make_node("Identity", [own], [copy]) for own, copy in zip(results, copies, strict=True)]
        bodies[side] = helper.make_graph(nodes, e.fresh(), [], list(map(helper.make_empty_tensor_value_info, copies)))
    return e.ops("If", node.input(0), outputs=len(node.proto.output), **bodies)
