"""Models of bfloat16 in fp32: ONNX Runtime's CPU provider has few kernels for bfloat16, and takes no arrays of it.

It computes models of fp16 in fp32 by itself. So these are computed likewise, and casts round as the model says:

    tensors of bfloat16       →  of float32
    Cast(x, to=BFLOAT16)      →  Cast(Cast(x, to=BFLOAT16), to=FLOAT)

The result of every operator may be rounded so, too.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import subgraphs
from autotune.importer.onnx_model.tensors import array_of

SHORT, LONG = TensorProto.BFLOAT16, TensorProto.FLOAT

TYPES = ("to", "dtype", "output_dtype")
"""Attributes that name the type of what an operator makes."""


def has_bfloat16(model: onnx.ModelProto) -> bool:
    """Return whether ``model``, whose shapes are inferred, has tensors of bfloat16."""
    graph = model.graph
    values = (value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output))
    return SHORT in values or any(tensor.data_type == SHORT for tensor in graph.initializer)


def in_fp32(model: onnx.ModelProto, rounded: bool) -> onnx.ModelProto:
    """A copy of ``model`` with float32 in place of bfloat16.

    Args:
        rounded: whether every operator rounds its result to bfloat16 where the model says so; else only casts do.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _widen(copy.graph, rounded)
    return copy


def _widen(graph: GraphProto, rounded: bool) -> None:
    short = set[str]()
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type == SHORT:
            value.type.tensor_type.elem_type = LONG
            short.add(value.name)
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    nodes: list[NodeProto] = []
    for node in graph.node:
        for body in subgraphs(node):
            _widen(body, rounded)
        named = [_widen_attribute(attribute) for attribute in node.attribute]
        is_cast = node.op_type == "Cast" and any(named)
        nodes.append(node)
        for place, name in enumerate(node.output):
            if is_cast or (rounded and name in short):
                node.output[place] = f"{name}/exact"
                nodes.append(helper.make_node("Cast", [node.output[place]], [f"{name}/short"], to=SHORT))
                nodes.append(helper.make_node("Cast", [f"{name}/short"], [name], to=LONG))
    replace_nodes(graph, nodes)


def _widen_attribute(attribute: AttributeProto) -> bool:
    """Widen an attribute in place; whether it named the type."""
    if attribute.type == AttributeProto.TENSOR:
        _widen_tensor(attribute.t)
    for tensor in attribute.tensors:
        _widen_tensor(tensor)
    if attribute.name not in TYPES or attribute.i != SHORT:
        return False
    attribute.i = LONG
    return True


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == SHORT:
        tensor.CopyFrom(numpy_helper.from_array(array_of(tensor).astype(np.float32), tensor.name))
