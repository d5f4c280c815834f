"""The ends of a graph: every output is made by a kernel, and tensors without elements are left out."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_edits import keep_only, replace_nodes
from autotune.importer.onnx_model.graph_walk import Names
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.rewriting.registry import split_to_slices
from schedules.vocabulary.errors import UnsupportedError

COPY = "Copy"
"""An operator that exists only between here and our converters: an Identity that copies."""


def bounded(model: ModelProto) -> ModelProto:
    """A copy whose outputs are made by kernels of one output each, without inputs and outputs that have no elements.

    Raises:
        UnsupportedError: if a shape depends on data.
    """
    copy = deepcopy(model)
    split_to_slices(copy)
    graph, scope = copy.graph, Scope(model)
    _check_shapes(model, scope)
    names = Names(graph)
    sources = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in sources:
            node.op_type = COPY
        if node.op_type == "Concat":  # what is empty adds nothing
            keep_only(node.input, lambda name: 0 not in scope.shapes.get(name, ()))
        nodes.append(node)
    for value in graph.output:
        if value.name in sources:  # an output of its own: the copy takes the name, the readers keep the original
            copied = names.new(f"{value.name}/copy")
            nodes.append(helper.make_node(COPY, [value.name], [copied], copied))
            value.name = copied
    replace_nodes(graph, nodes)
    for field in (graph.input, graph.output):
        keep_only(field, lambda value: all(dim.dim_value for dim in value.type.tensor_type.shape.dim))
    if not graph.output:  # an artifact has a kernel: this one makes what nobody asks for
        del graph.node[:]
        graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), COPY))
        graph.node.append(helper.make_node(COPY, [COPY], [f"{COPY}/made"], COPY))
        graph.output.append(helper.make_tensor_value_info(f"{COPY}/made", TensorProto.FLOAT, [1]))
    return copy


def _check_shapes(model: ModelProto, scope: Scope) -> None:
    """Refuse the first node whose result has no static shape."""
    for node in model.graph.node:
        for name in node.output:
            if name and name not in scope.shapes:
                raise UnsupportedError(
                    f"operator {node.op_type} (node {node.name!r}) is not supported: the shape of its output {name!r} "
                    "depends on data or is unknown"
                )
