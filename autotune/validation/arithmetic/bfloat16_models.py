"""Models of bfloat16 in fp32: ONNX Runtime's CPU provider has kernels of few operators for them, and NumPy's arrays none.

It computes models of fp16 in fp32 by itself. So these are computed likewise, and casts round as the model says:

    tensors of bfloat16       →  of float32
    Cast(x, to=BFLOAT16)      →  Cast(Cast(x, to=BFLOAT16), to=FLOAT)
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
    """Whether ``model``, whose shapes are inferred, has tensors of bfloat16."""
    graph = model.graph
    values = (value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output))
    return SHORT in values or any(tensor.data_type == SHORT for tensor in graph.initializer)


def in_fp32(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` with float32 in place of bfloat16."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _widen(copy.graph)
    return copy


def _widen(graph: GraphProto) -> None:
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type == SHORT:
            value.type.tensor_type.elem_type = LONG
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    nodes: list[NodeProto] = []
    for node in graph.node:
        for body in subgraphs(node):
            _widen(body)
        nodes.append(node)
        rounds = False
        for attribute in node.attribute:
            rounds |= _widen_attribute(attribute)
        if rounds and node.op_type == "Cast":
            made, short = node.output[0], f"{node.output[0]}/bf16"
            node.output[0] = short
            nodes.append(helper.make_node("Cast", [short], [made], f"{node.name}/fp32", to=LONG))
            next(each for each in node.attribute if each.name == "to").i = SHORT
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
