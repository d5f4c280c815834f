"""Everything inside an ONNX model: its nodes and tensors, in graphs, subgraphs and function bodies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from schedules.vocabulary.errors import ModelError

MAX_DEPTH = 16
"""Levels of nested If, Loop and Scan bodies: a bound on recursion against hostile files. Heuristic, not measured."""

RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
"""Operators whose results differ from run to run."""

MOVES = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice"}
    | {"SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators whose result has elements of input 0, in other places."""

BODIED = ("If", "Loop", "Scan", "SequenceMap")
"""Operators that have bodies."""


def walk_nodes(nodes: Iterable[NodeProto], depth: int = 0) -> Iterator[NodeProto]:
    """Every node, then those of its subgraphs.

    Raises:
        ModelError: if subgraphs are nested deeper than ``MAX_DEPTH``.
    """
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            if depth >= MAX_DEPTH:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) nests subgraphs more than {MAX_DEPTH} deep; flatten the model"
                )
            yield from walk_nodes(graph.node, depth + 1)


def all_nodes(model: onnx.ModelProto) -> Iterator[NodeProto]:
    """Every node of the graph and of functions, those of subgraphs too."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from walk_nodes(nodes)


def name_nodes(nodes: Iterable[NodeProto]) -> None:
    """Give every node a name of its own, in subgraphs too, so that messages can point at it.

    A nameless node is called after what it makes, and one whose name another has already gets a number behind it.
    """
    walked = list(walk_nodes(nodes))
    taken = {node.name for node in walked}
    seen: set[str] = set()
    for node in walked:
        if not node.name or node.name in seen:
            stem = node.name or next((output for output in node.output if output), node.op_type)
            numbered = (f"{stem}/{index}" for index in count(1))
            node.name = next(name for name in chain([stem], numbered) if name not in taken)
            taken.add(node.name)
        seen.add(node.name)


class Names:
    """The names of all values and nodes of a graph and of those inside it, and new ones that nothing has."""

    def __init__(self, graph: GraphProto) -> None:
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._take(graph)

    def _take(self, graph: GraphProto) -> None:
        for field in (graph.input, graph.output, graph.value_info, graph.initializer):
            self._taken.update(entry.name for entry in field)
        for node in graph.node:
            self._taken.update((node.name, *node.input, *node.output))
            for body in subgraphs(node):
                self._take(body)

    def new(self, stem: str) -> str:
        """``stem`` if nothing is called so, else with a number behind it."""
        name = stem
        while name in self._taken:
            self._counts[stem] += 1
            name = f"{stem}/{self._counts[stem]}"
        self._taken.add(name)
        return name


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a control-flow node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attributes as ``helper.make_node`` takes them."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def reads(graph: GraphProto) -> Counter[str]:
    """Count the readers of every value of a graph: nodes, their bodies, and outputs of a body or the graph."""
    nodes = list(walk_nodes(graph.node))
    used = Counter(name for node in nodes for name in node.input)
    used.update(value.name for node in nodes for body in subgraphs(node) for value in body.output)
    used.update(value.name for value in graph.output)
    return used


def outer_reads(node: NodeProto) -> set[str]:
    """Return the values that ``node`` reads from its graph: its inputs, and those that its bodies do not make."""
    outer = set(node.input)
    for body in subgraphs(node):
        read = {value.name for value in body.output}.union(*map(outer_reads, body.node))
        own = {value.name for value in (*body.input, *body.initializer)}
        outer |= read - own.union(*(inner.output for inner in body.node))
    return outer - {""}


def readers_of(nodes: Iterable[NodeProto], bodies: bool = False) -> Mapping[str, list[NodeProto]]:
    """Value → the nodes that read it, as often as they do; with ``bodies`` each once, also where a body of it reads."""
    readers = defaultdict[str, list[NodeProto]](list)
    for node in nodes:
        for name in outer_reads(node) if bodies else node.input:
            readers[name].append(node)
    return dict(readers)


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Give what ``node`` and its bodies read and write from outside the bodies its new names."""
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    for body in subgraphs(node):
        own = {value.name for value in body.input} | {t.name for t in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in body.node:
            rename(inner, outer)
        for value in body.output:
            value.name = outer.get(value.name, value.name)


def walk_graphs(model: onnx.ModelProto) -> Iterator[GraphProto]:
    """The main graph and every subgraph, those of function bodies too."""
    yield model.graph
    for node in all_nodes(model):
        yield from subgraphs(node)


def walk_tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every dense tensor: initialisers and node attributes, of all graphs and function bodies."""
    for graph in walk_graphs(model):
        yield from graph.initializer
    for attribute in (attribute for node in all_nodes(model) for attribute in node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors
