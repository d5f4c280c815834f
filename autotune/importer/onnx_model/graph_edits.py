"""Small rewrites of an ONNX graph, each in place: what Relax's importer handles badly becomes what it handles well.

All work on the main graph only; bodies of control flow are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

from autotune.importer.onnx_model.graph_walk import Names, reads, rename
from autotune.importer.onnx_model.tensors import array_of

SCALAR_INPUTS = {"Clip": (1, 2), "Pad": (2,)}
"""Inputs that ONNX wants of rank 0 and exporters write with one element of rank 1."""


def keep_only(field: Any, wanted: Callable[[Any], bool]) -> None:
    """Remove from a repeated field of a message, in place, what is not ``wanted``."""
    for index in reversed(range(len(field))):
        if not wanted(field[index]):
            del field[index]


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


def drop_unused(graph: GraphProto) -> None:
    """Nodes and initialisers that nothing reads any more vanish, and no initialiser is listed among the inputs."""
    while True:
        used = reads(graph)
        kept = [node for node in graph.node if any(name in used for name in node.output)]
        if len(kept) == len(graph.node):
            break
        replace_nodes(graph, kept)
    names = {tensor.name for tensor in graph.initializer}
    keep_only(graph.initializer, lambda tensor: tensor.name in used)
    keep_only(graph.input, lambda value: value.name not in names)
