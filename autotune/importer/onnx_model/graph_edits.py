"""Small rewrites of an ONNX graph, each in place: what Relax's importer handles badly becomes what it handles well.

All work on the main graph only; bodies of control flow are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_walk import Names, reads, rename
from autotune.importer.onnx_model.tensors import array_of

SCALAR_INPUTS = {"Clip": (1, 2), "Pad": (2,)}
"""Inputs that ONNX wants of rank 0 and exporters write with one element of rank 1."""


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Give the graph these nodes, which may be its own; its very own, in order, stay where they are."""
    kept = list(nodes)
    if len(kept) == len(graph.node) and all(one is other for one, other in zip(kept, graph.node, strict=True)):
        return
    copies = [NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)


def constants_to_initialisers(graph: GraphProto) -> None:
    """Constant nodes → initialisers, of rank 0 where the constant is a single number. Strings stay nodes."""
    kept = []
    for node in graph.node:
        value = _constant_value(node) if node.op_type == "Constant" else None
        if value is None:
            kept.append(node)
        else:
            graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    replace_nodes(graph, kept)


def _constant_value(node: NodeProto) -> NDArray[np.generic] | None:
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.t.data_type != onnx.TensorProto.STRING:
        return array_of(attribute.t)
    if attribute.name in ("value_float", "value_floats"):
        return np.asarray(helper.get_attribute_value(attribute), np.float32)
    if attribute.name in ("value_int", "value_ints"):
        return np.asarray(helper.get_attribute_value(attribute), np.int64)
    return None


def split_to_slices(graph: GraphProto) -> None:
    """``Split`` → one ``Slice`` per output: kernels have one output, and a slice is fused into what reads it.

    Shapes must be inferred; a Split whose shapes are unknown stays.
    """
    types = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    kept, new = [], Names(graph)
    for node in graph.node:
        if node.op_type != "Split" or not all(name in types for name in node.output if name):
            kept.append(node)
            continue
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        names = [name for name in node.output if name]
        start = 0
        for name in names:
            stop = start + types[name].shape.dim[axis].dim_value
            bounds = [
                numpy_helper.from_array(np.array([value], np.int64), new.new(f"{name}/{part}"))
                for part, value in (("start", start), ("stop", stop), ("axis", axis))
            ]
            graph.initializer.extend(bounds)
            inputs = [node.input[0], *(tensor.name for tensor in bounds)]
            kept.append(helper.make_node("Slice", inputs, [name], node.name if name == names[0] else name))
            start = stop
    replace_nodes(graph, kept)


def tidy(graph: GraphProto) -> None:
    """Constants as initialisers of the rank that ONNX wants, nothing that only passes on, nothing that is not read."""
    constants_to_initialisers(graph)
    remove_identities(graph)
    fix_scalars(graph)
    drop_unused(graph)


def remove_identities(graph: GraphProto) -> None:
    """Identity vanishes; one that makes a graph output from an input, a weight or another output must stay."""
    outputs = {value.name for value in graph.output}
    produced = {name for node in graph.node for name in node.output}
    renamed: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if node.op_type != "Identity":
            kept.append(node)
            continue
        source = renamed.get(node.input[0], node.input[0])
        if node.output[0] not in outputs:
            renamed[node.output[0]] = source
        elif source in produced and source not in outputs:
            # The graph's output keeps its name: rename what makes it instead.
            renamed[source] = node.output[0]
            outputs.add(source)  # a second output of the same value needs its Identity
        else:
            kept.append(helper.make_node("Identity", [source], node.output[:1], node.name))
    final = {name: _final(name, renamed) for name in renamed}
    for node in kept:
        rename(node, final)
    replace_nodes(graph, kept)


def _final(name: str, renamed: dict[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def fix_scalars(graph: GraphProto) -> None:
    """One-element constants of rank 1 that ONNX wants as scalars → rank 0. Others that read them see no difference."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    scalars: dict[str, str] = {}
    names: Names | None = None
    for node in graph.node:
        for position in SCALAR_INPUTS.get(node.op_type, ()):
            name = node.input[position] if position < len(node.input) else ""
            tensor = constants.get(name)
            if tensor is not None and list(tensor.dims) == [1]:
                if name not in scalars:
                    names = names or Names(graph)
                    scalars[name] = names.new(f"{name}/scalar")
                    value = array_of(tensor).reshape(())
                    graph.initializer.append(numpy_helper.from_array(value, scalars[name]))
                node.input[position] = scalars[name]


def split_batch_norms(model: ModelProto) -> None:
    """An inference ``BatchNormalization`` that no convolution swallowed → one ``Mul`` and one ``Add`` by channel.

    y = (x − mean) · scale / √(variance + ε) + bias = x·a + b, and what scales or shifts y by constants joins in, as
    Caffe's scale layers do: (x·a + b)·c + d = x·(ac) + (bc + d). Folded in double precision.
    """
    graph = model.graph
    if all(node.op_type != "BatchNormalization" for node in graph.node):
        return
    constants = {tensor.name: tensor for tensor in graph.initializer}
    known = (*graph.value_info, *graph.input, *graph.output)  # a batch norm may read what is an output, too
    types = {value.name: value.type.tensor_type for value in known}
    readers, names = _sole_readers(graph), Names(graph)
    gone: set[str] = set()
    kept = []
    for node in graph.node:
        if node.output and node.output[0] in gone:
            continue
        parameters = [constants[name] for name in node.input[1:] if name in constants]
        trained = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        plain = node.op_type == "BatchNormalization" and len(node.output) == 1 and not trained
        data = types.get(node.input[0]) if plain and len(parameters) == 4 else None
        rank = 0 if data is None else len(data.shape.dim)
        if data is None or rank < 2 or any(len(tensor.dims) != 1 for tensor in parameters):
            kept.append(node)
            continue
        scale, bias, mean, variance = (array_of(tensor) for tensor in parameters)
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        with np.errstate(invalid="ignore", divide="ignore"):  # a variance below zero gives NaN, as it does in the model
            a = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        affine = _Affine(a, bias.astype(np.float64) - mean.astype(np.float64) * a, node.output[0])
        while (reader := readers.get(affine.output)) is not None and affine.absorb(reader, constants, rank):
            gone.add(affine.output)
        kept.extend(affine.nodes(node, data.elem_type, rank, graph, names))
    replace_nodes(graph, kept)


class _Affine:
    """x·a + b with one a and b (c,) per channel, and the name of what it makes."""

    def __init__(self, a: NDArray[np.float64], b: NDArray[np.float64], output: str) -> None:
        self.a, self.b, self.output = a, b, output

    def absorb(self, node: NodeProto, constants: dict[str, onnx.TensorProto], rank: int) -> bool:
        """Take in ``node`` if it multiplies or adds a constant per channel; whether it did."""
        tensor = next((constants[name] for name in node.input if name in constants), None)
        if node.op_type not in ("Mul", "Add") or tensor is None:
            return False
        value = array_of(tensor).astype(np.float64)
        shape = (1,) * (rank - value.ndim) + value.shape
        if len(shape) != rank or shape[1] not in (1, len(self.a)) or value.size != shape[1]:
            return False
        value = value.reshape(-1)
        if node.op_type == "Mul":
            self.a, self.b = self.a * value, self.b * value
        else:
            self.b = self.b + value
        self.output = node.output[0]
        return True

    def nodes(self, norm: NodeProto, kind: int, rank: int, graph: GraphProto, names: Names) -> list[NodeProto]:
        """The Mul and the Add of data of element type ``kind``; their constants go into ``graph``.

        Halves are scaled and shifted as fp32: x·a and b may be large numbers of a small sum.
        """
        made, data = self.output, norm.input[0]
        halves = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
        wide = onnx.TensorProto.FLOAT if halves else kind
        scale, shift, scaled = (names.new(f"{made}/{label}") for label in ("scale", "shift", "scaled"))
        for name, value in ((scale, self.a), (shift, self.b)):
            array = value.astype(helper.tensor_dtype_to_np_dtype(wide)).reshape(-1, *[1] * (rank - 2))
            graph.initializer.append(numpy_helper.from_array(array, name))
        first, last = (names.new(f"{made}/wide"), names.new(f"{made}/sum")) if halves else (data, made)
        nodes = [
            helper.make_node("Mul", [first, scale], [scaled], f"{norm.name}/scale"),
            helper.make_node("Add", [scaled, shift], [last], norm.name),
        ]
        if halves:
            nodes.insert(0, helper.make_node("Cast", [data], [first], f"{norm.name}/wide", to=wide))
            nodes.append(helper.make_node("Cast", [last], [made], f"{norm.name}/half", to=kind))
        return nodes


def _sole_readers(graph: GraphProto) -> dict[str, NodeProto]:
    """Value → the one node that reads it, for values that one node reads once, no body does and no output is."""
    used = reads(graph)
    return {name: node for node in graph.node for name in node.input if used[name] == 1}


def drop_unused(graph: GraphProto) -> None:
    """Nodes and initialisers that nothing reads any more vanish, and no initialiser is listed among the inputs."""
    while True:
        used = reads(graph)
        kept = [node for node in graph.node if any(name in used for name in node.output)]
        if len(kept) == len(graph.node):
            break
        replace_nodes(graph, kept)
    names = {tensor.name for tensor in graph.initializer}
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]
    for index in reversed(range(len(graph.input))):
        if graph.input[index].name in names:
            del graph.input[index]
