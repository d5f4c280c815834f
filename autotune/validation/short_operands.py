"""A model whose products read rounded operands: what bf16 must cost, computed by ONNX Runtime in fp32.

Before every chosen Conv, MatMul and Gemm its two operands go through bf16 and back; weights are rounded here. Two right
programs differ in who else reads a rounded tensor: a product alone, or all that read the tensor, as where it lies in
memory as bf16. Both are made.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from autotune.host.dtypes import numpy_type
from autotune.options import Precision

PRODUCTS = ("Conv", "MatMul", "Gemm")

SHORT = "bfloat16"


def product_nodes(model: onnx.ModelProto) -> list[NodeProto]:
    """The products of a simplified model, in the order in which ``Precision`` numbers them."""
    return [node for node in model.graph.node if node.op_type in PRODUCTS and node.domain in ("", "ai.onnx")]


def with_short_operands(model: onnx.ModelProto, precision: Precision, stored: bool) -> onnx.ModelProto:
    """``model`` with the operands of the products that ``precision`` chooses rounded to bf16.

    Args:
        model: simplified, in fp32; it is not changed.
        stored: whether all who read a rounded tensor read it rounded; the outputs of the model are not.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    chosen = [node for number, node in enumerate(product_nodes(copy)) if number in precision]
    weights = {tensor.name: tensor for tensor in graph.initializer}
    rounded = {name: f"{name}/bf16" for node in chosen for name in node.input[:2]}
    for name in rounded:
        if name in weights and weights[name].data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(weights[name])
            short = array.astype(numpy_type(SHORT)).astype(array.dtype)
            graph.initializer.append(numpy_helper.from_array(short, rounded[name]))
    for node in graph.node if stored else chosen:
        for index, name in enumerate(node.input):
            if name in rounded and (index < 2 or stored) and (name not in weights or node in chosen):
                node.input[index] = rounded[name]
    _insert_casts(graph, [name for name in rounded if name not in weights], rounded)
    return copy


def _insert_casts(graph: onnx.GraphProto, names: Collection[str], rounded: dict[str, str]) -> None:
    """Put the rounding of every tensor of ``names`` behind the node that makes it, or first for inputs."""
    casts = {
        name: [
            helper.make_node("Cast", [name], [f"{name}/short"], to=TensorProto.BFLOAT16),
            helper.make_node("Cast", [f"{name}/short"], [rounded[name]], to=TensorProto.FLOAT),
        ]
        for name in names
    }
    inputs = [cast for value in graph.input for cast in casts.get(value.name, [])]
    nodes = [*inputs]
    for node in graph.node:
        nodes += [node, *(cast for name in node.output for cast in casts.get(name, []))]
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
