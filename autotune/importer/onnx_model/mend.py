"""Mend what ONNX Runtime accepts in a graph and ONNX's checker does not: the order of nodes, and names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autotune.importer.onnx_model.graph_edits import keep_only
from autotune.importer.onnx_model.graph_walk import Names, all_nodes, outer_reads, subgraphs, walk_graphs, walk_nodes
from autotune.importer.onnx_model.shapes import MICROSOFT, STANDARD_DOMAINS, know_domain
from schedules.vocabulary.errors import ModelError

ADVICE = "export the model again"

OPSET = 13
"""The version of the standard operators where a model names none: the least that the importer raises models to."""

MOST_LABELS = 20
"""Classes that a message lists."""

logger = logging.getLogger(__name__)


def mend(model: ModelProto, name: str) -> None:
    """Make ``model`` one that ONNX's checker accepts too, in place, where ONNX Runtime has one meaning for it.

    - The nodes of every graph and function stand behind those whose results they read.
    - A graph has a name, and ``ai.onnx`` is written as the empty domain, which it is.
    - Of several initialisers with one name the last stays, as in ONNX Runtime; one without a name is dropped.
    - A model of no standard operators says by which version its functions and what replaces its nodes are read.
    - A model with ONNX Runtime's own operators says so, which ONNX Runtime does not need.
    - The axes of an ``Unsqueeze`` are a vector, where they are one number, and the bounds of a ``Loop`` the reverse.
    - ``ZipMap``, which puts a dictionary around every row, is left out: its output is the tensor of the rows.

    Args:
        model: its graphs nest no deeper than ``walk_graphs`` allows.
        name: the model's, for messages.

    Raises:
        ModelError: if nodes read each other in a circle, or read what nothing makes.
    """
    for graph in walk_graphs(model):
        graph.name = graph.name or "graph"
        _mend_initializers(graph)
    for node in all_nodes(model):
        if node.domain and node.domain in STANDARD_DOMAINS:
            node.domain = ""
    _mend_ranks(model)
    if any(node.domain == MICROSOFT for node in walk_nodes(model.graph.node)):
        know_domain(model, MICROSOFT)
    if all(opset.domain not in STANDARD_DOMAINS for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", OPSET))
    for node in model.graph.node:
        if node.op_type == "ZipMap" and node.domain == "ai.onnx.ml":
            _leave_out(node, model.graph, name)
    _sort_graph(model.graph, frozenset(), name)
    for function in model.functions:
        _sort(function.node, frozenset(function.input), name)


def drop_undeclared(graph: GraphProto) -> None:
    """Leave out, in place, outputs without type or shape: ONNX's checker insists on both, and inference finds them."""
    keep_only(graph.output, lambda value: value.type.WhichOneof("value"))
    tensors = {value.name: value.type.tensor_type for value in graph.output}
    keep_only(graph.output, lambda value: not tensors[value.name].elem_type or tensors[value.name].HasField("shape"))


def _mend_ranks(model: ModelProto) -> None:
    """Give every ``Unsqueeze`` whose axes are a constant of no dimension a vector, and ``Loop`` bounds of none."""
    graphs = list(walk_graphs(model))
    lists = [*(graph.node for graph in graphs), *(function.node for function in model.functions)]
    tensors = {tensor.name: tensor for graph in graphs for tensor in graph.initializer}
    for constant in (node for nodes in lists for node in nodes if node.op_type == "Constant"):
        for attribute in constant.attribute:
            if attribute.name == "value":
                tensors[constant.output[0]] = attribute.t
            elif attribute.name == "value_int":
                tensors[constant.output[0]] = helper.make_tensor("", TensorProto.INT64, [], [attribute.i])
    vectors = {name for name, tensor in tensors.items() if list(tensor.dims) == [1]}
    for graph in graphs:
        vectors |= {value.name for value in (*graph.input, *graph.value_info) if _is_vector_of_one(value)}
    names = Names(model.graph)
    for nodes in lists:
        for index in reversed(range(len(nodes))):
            node = nodes[index]
            axes = tensors.get(node.input[1]) if node.op_type == "Unsqueeze" and len(node.input) > 1 else None
            if axes is not None and not axes.dims:
                vector = deepcopy(axes)
                vector.dims.append(1)
                node.input[1] = names.new(f"{node.input[1]}/vector")
                nodes.insert(index, helper.make_node("Constant", [], [node.input[1]], value=vector))
            for place in (0, 1) if node.op_type == "Loop" else ():
                if node.input[place] in vectors:
                    bound, node.input[place] = node.input[place], names.new(f"{node.input[place]}/scalar")
                    nodes.insert(index, helper.make_node("Squeeze", [bound], [node.input[place]]))
                    node = nodes[index + 1]


def _is_vector_of_one(value: ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and [dim.dim_value for dim in tensor.shape.dim] == [1]


def _leave_out(node: NodeProto, graph: GraphProto, name: str) -> None:
    """Make a ZipMap an Identity, and what it makes a tensor."""
    labels: list[Any] = next((helper.get_attribute_value(attribute) for attribute in node.attribute), [])
    shown = ", ".join(label.decode() if isinstance(label, bytes) else str(label) for label in labels[:MOST_LABELS])
    logger.warning(
        "%s: output %r is a tensor (rows, classes), not ZipMap's list of dictionaries; its classes are %s%s",
        *(name, node.output[0], shown, ", …" if len(labels) > MOST_LABELS else ""),
    )
    node.CopyFrom(helper.make_node("Identity", node.input, node.output, node.name))
    for value in graph.output:
        if value.name == node.output[0]:
            value.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))


def _mend_initializers(graph: GraphProto) -> None:
    last = {tensor.name: tensor for tensor in graph.initializer}
    keep_only(graph.initializer, lambda tensor: tensor.name and last[tensor.name] is tensor)


def _sort_graph(graph: GraphProto, outer: Collection[str], name: str) -> None:
    """Sort a graph and those in it; ``outer`` are the values around it."""
    _sort(
        graph.node,
        {*outer, *(value.name for value in graph.input), *(weight.name for weight in graph.initializer)},
        name,
    )


def _sort(nodes: Sequence[NodeProto], known: Collection[str], name: str) -> None:
    """Sort ``nodes``, a field of a message, in place, unless they are in order; then the bodies of each.

    Args:
        known: names of what is there before the first node.
    """
    makers = {value: index for index, node in enumerate(nodes) for value in node.output if value}
    needed: dict[int, set[int]] = {}
    for index, node in enumerate(nodes):
        read = outer_reads(node)
        missing = sorted(value for value in read if value not in makers and value not in known)
        if missing:
            raise ModelError(f"{name}: {_label(node)} reads {missing[0]!r}, which nothing makes; {ADVICE}")
        needed[index] = {makers[value] for value in read if value in makers}
    if any(before >= index for index, all_before in needed.items() for before in all_before):
        try:
            order = list(TopologicalSorter(needed).static_order())
        except CycleError as error:
            circle = ", ".join(_label(nodes[index]) for index in error.args[1][1:4])
            raise ModelError(f"{name}: nodes read each other's results in a circle ({circle}); {ADVICE}") from error
        for node, copy in zip(nodes, [deepcopy(nodes[index]) for index in order], strict=True):
            node.CopyFrom(copy)
    inside = {*known, *makers}
    for node in nodes:
        for body in subgraphs(node):
            _sort_graph(body, inside, name)


def _label(node: NodeProto) -> str:
    outputs = ", ".join(map(repr, node.output)) or "nothing"
    return f"{node.op_type} (node {node.name!r})" if node.name else f"the {node.op_type} that makes {outputs}"
