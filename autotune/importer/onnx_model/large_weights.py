"""Which large weights onnxslim need not see, and the one rewrite that it would have done with them.

onnxslim copies, serialises and compares every tensor several times: its time and memory are those of the bytes, not of
the nodes. Most weights it does nothing with. Those are graph inputs while it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_walk import Names, reads
from autotune.importer.onnx_model.rewrites import replace_nodes
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, is_large

WEIGHT_OF = {"MatMul": 1, "Gemm": 1, "Gather": 0, "Conv": 1, "ConvTranspose": 1, "MatMulInteger": 1, "ConvInteger": 1}
"""Operator → the input that may be a weight of which onnxslim needs the shape only, unless a scale follows."""

PASSES_ON = frozenset({"Add", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators between a product and a scale over which onnxslim moves the scale into the weight."""


def unneeded(graph: GraphProto) -> set[str]:
    """Names of the large initialisers whose values onnxslim does not compute with.

    It scales weights of products and convolutions that a ``Mul``, an ``Add`` or a batch norm by constants follows, and
    folds what reads constants only; it must see those weights.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    used = reads(graph)
    large = [name for name, tensor in constants.items() if is_large(tensor)]
    return {
        name
        for name in large
        if used[name] == len(readers.get(name, ()))  # else a body reads it, or it is an output
        and all(_ignores_values(node, name, constants, readers) for node in readers.get(name, ()))
    }


def _ignores_values(
    node: NodeProto, weight: str, constants: Mapping[str, TensorProto], readers: Mapping[str, list[NodeProto]]
) -> bool:
    """Whether onnxslim needs only the shape of the weight that ``node`` reads."""
    if node.domain == OWN_DOMAIN:
        return True
    position = WEIGHT_OF.get(node.op_type)
    others = [name for index, name in enumerate(node.input) if index != position]
    if position is None or weight in others or all(name in constants for name in others):
        return False
    if node.op_type in ("Gather", "MatMulInteger", "ConvInteger"):
        return True
    if node.op_type == "MatMul" and not _is_plain_bias(node, constants, readers):
        return False
    ahead = [(node, reader) for reader in readers.get(node.output[0], ())]
    while ahead:
        before, reader = ahead.pop()
        by_constant = any(name in constants for name in reader.input if name not in before.output)
        if reader.op_type == "BatchNormalization" or (reader.op_type == "Mul" and by_constant):
            return False
        if reader.op_type == "Add" and by_constant and node.op_type in ("Conv", "ConvTranspose"):
            return False
        if reader.op_type in PASSES_ON and by_constant:
            ahead.extend((reader, following) for following in readers.get(reader.output[0], ()))
    return True


def _is_plain_bias(
    node: NodeProto, constants: Mapping[str, TensorProto], readers: Mapping[str, list[NodeProto]]
) -> bool:
    """Whether no constant is added to a product, or one that ``products_to_gemm`` knows: a bias per column."""
    following = [reader for reader in readers.get(node.output[0], ()) if reader.op_type == "Add"]
    biases = [constants[name] for reader in following for name in reader.input if name in constants]
    weight = constants[node.input[1]]
    return all(len(weight.dims) == 2 and list(bias.dims) == list(weight.dims[1:]) for bias in biases)


def products_to_gemm(graph: GraphProto, weights: Collection[str]) -> None:
    """``MatMul`` by one of ``weights`` (k, n) and ``Add`` of a bias (n,) → ``Gemm``, between reshapes to a matrix.

    onnxslim does the same with the weights that it sees, which it also transposes. Shapes must be inferred; an input
    of unknown shape stays with its MatMul.
    """
    constants = {tensor.name for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    used, names = reads(graph), Names(graph)
    products = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in weights and used[node.output[0]] == 1
    }
    kept: list[NodeProto] = []
    for node in graph.node:
        made = next((name for name in node.input if name in products and name not in outputs), "")
        bias = next((name for name in node.input if name in constants), "")
        rank = len(shapes.get(products[made].input[0], ())) if made else 0
        if node.op_type != "Add" or not bias or rank < 2:
            kept.append(node)
            continue
        product = products[made]
        kept.remove(product)
        kept.extend(_gemm(graph, names, product, bias, node, shapes[node.output[0]] if rank > 2 else []))
    replace_nodes(graph, kept)


def _gemm(
    graph: GraphProto, names: Names, product: NodeProto, bias: str, add: NodeProto, shape: list[int]
) -> list[NodeProto]:
    """The nodes in the place of ``product`` and ``add``; ``shape`` is the result's where it is no matrix."""
    data, weight, made = product.input[0], product.input[1], product.output[0]
    if not shape:
        return [helper.make_node("Gemm", [data, weight, bias], add.output, made)]
    width = next(v.type.tensor_type.shape.dim[0].dim_value for v in graph.input if v.name == weight)
    rows, whole, flat, gemm = (names.new(f"{made}/{label}") for label in ("rows", "shape", "flat", "gemm"))
    for name, sizes in ((rows, [-1, width]), (whole, shape)):
        graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
    return [
        helper.make_node("Reshape", [data, rows], [flat], flat),
        helper.make_node("Gemm", [flat, weight, bias], [gemm], gemm),
        helper.make_node("Reshape", [gemm, whole], add.output, add.name),
    ]
