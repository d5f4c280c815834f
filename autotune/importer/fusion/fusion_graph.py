"""One pass over a graph that replaces nodes, together with those that feed them, by fewer nodes.

A fusion (``registry.fuses``) sees a node whose inputs were already visited, and may look back at the nodes that make
them. It never changes a node: it writes new ones, and what nothing reads any more is dropped at the end. So a fusion of
a value with several readers can cost work, but never changes a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.onnx_model.graph_edits import replace_nodes, tidy
from autotune.importer.onnx_model.graph_walk import BODIED, RANDOM, name_nodes, outer_reads, reads, rename, subgraphs
from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS, is_large
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import ENTRIES, Role

Factor = NDArray[np.float64]


class FusionScope(Scope):
    """A scope that follows who makes and who reads a value while nodes are replaced.

    Attributes:
        reads: value → number of its readers: node inputs, bodies and graph outputs.
        makers: value → the node that makes it, of the nodes kept so far.
        viewed: values that a Reshape of the original graph reads.
    """

    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.reads: Counter[str] = reads(model.graph)
        self.makers: dict[str, NodeProto] = {}
        self.viewed = {node.input[0] for node in model.graph.node if node.op_type == "Reshape"}
        self._kept: list[NodeProto] = []
        self._renamed: dict[str, str] = {}
        self._outputs = {value.name for value in model.graph.output}
        self._scaled: dict[str, tuple[str, Factor]] = {}
        self._first: dict[tuple[str, str, tuple[str, ...], tuple[bytes, ...]], NodeProto] = {}

    def maker(self, name: str, *kinds: str) -> Node | None:
        """The standard node of one of ``kinds`` that makes ``name``, if there is one."""
        node = self.makers.get(name)
        is_kind = node is not None and node.op_type in kinds and node.domain in STANDARD_DOMAINS
        return Node(node, self) if node is not None and is_kind else None

    def only_for(self, name: str, *kinds: str) -> Node | None:
        """Work like ``maker``, if only one input of one node reads ``name``."""
        return self.maker(name, *kinds) if self.reads[name] == 1 else None

    def scaled(self, weight: str, factor: Factor) -> str:
        """A constant: ``weight`` times ``factor``, which broadcasts to it; computed at the end, if it is still read."""
        source, before = self._scaled.get(weight, (weight, np.ones(())))
        name = self.names.new(f"{source}/scaled")
        self._scaled[name] = source, before * factor
        self.shapes[name], self.types[name] = self.shapes[source], self.types[source]
        self.made.add(name)
        return name

    def is_weight(self, name: str) -> bool:
        """Return whether ``name`` is a constant, one of ``scaled`` among them."""
        return name in self.tensors or name in self._scaled

    def weight(self, name: str) -> Array:
        """The value of a constant as ``is_weight`` has it."""
        source, factor = self._scaled.get(name, (name, None))
        array = self.array(source)
        assert array is not None
        return array if factor is None else np.multiply(array, factor, out=np.empty_like(array), casting="same_kind")

    def visit(self, node: NodeProto) -> None:
        """Keep ``node``, or replace it."""
        if self._renamed and not outer_reads(node).isdisjoint(self._renamed):
            node = deepcopy(node)
            rename(node, self._renamed)
        for fusion in ENTRIES.get((Role.FUSE, "", node.op_type), ()) if node.domain in STANDARD_DOMAINS else ():
            emit = Emit(Node(node, self))
            results = fusion(emit.node, emit)
            if results is not None:
                self._replace(node, emit.nodes, results)
                return
        if (same := self._repeated(node)) is not None:
            self._replace(node, (), same)
            return
        self._kept.append(node)
        self.makers.update(dict.fromkeys(filter(None, node.output), node))

    def _repeated(self, node: NodeProto) -> list[str] | None:
        """Return the values that an earlier node computed from the same inputs in the same way, if there is one."""
        known = node.domain in (*STANDARD_DOMAINS, OWN_DOMAIN) and node.op_type not in (*RANDOM, *BODIED)
        if not known:
            return None
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        key = node.domain, node.op_type, tuple(node.input), tuple(attributes)
        earlier = self._first.setdefault(key, node)
        wanted = [index for index, name in enumerate(node.output) if name]
        outputs = [*earlier.output, *[""] * (len(node.output) - len(earlier.output))]
        return None if earlier is node or not all(outputs[index] for index in wanted) else list(map(str, outputs))

    def _replace(self, node: NodeProto, nodes: Sequence[NodeProto], values: Sequence[str]) -> None:
        """Visit ``nodes`` in the place of ``node``, whose outputs are the values ``values``."""
        written = {name for new_node in nodes for name in new_node.output}
        pairs = [(name, str(output)) for name, output in zip(values, node.output, strict=False) if output]
        names = {name: output for name, output in pairs if name in written}
        for new_node in nodes:
            rename(new_node, names)
            self.reads.update(filter(None, new_node.input))
        for name, output in pairs:
            if name not in written:
                self.reads[name] += self.reads[output]
                if output in self._outputs:
                    self._kept.append(helper.make_node("Identity", [name], [output], output))
                self._renamed[output] = name
        self._unread(node)
        for new_node in nodes:
            self.visit(new_node)

    def _unread(self, node: NodeProto) -> None:
        """Forget that ``node``, which is gone, read its inputs, and forget nodes that nothing reads then."""
        for name in filter(None, node.input):
            self.reads[name] -= 1
            maker = self.makers.get(name)
            if maker is not None and not any(self.reads[output] for output in maker.output if output):
                for output in maker.output:
                    self.makers.pop(output, None)
                if not any(True for _ in subgraphs(maker)):
                    self._unread(maker)

    def finish(self, model: ModelProto) -> None:
        """Give ``model`` the nodes and constants that are left."""
        needed, live = set(self._outputs), []
        for node in reversed(self._kept):
            if not needed.isdisjoint(node.output):
                live.append(node)
                needed |= outer_reads(node)
        for name in self._scaled:
            if name in needed:
                self.add(name, self.weight(name))
        replace_nodes(model.graph, reversed(live))
        tidy(model.graph)
        replace_nodes(model.graph, by_depth(model.graph.node))
        name_nodes(model.graph.node)
        declared = {value.name for value in (*model.graph.value_info, *model.graph.output)}
        for name in (name for node in model.graph.node for name in node.output if name not in declared):
            if name in self.shapes and name in self.types:
                model.graph.value_info.append(helper.make_tensor_value_info(name, self.types[name], self.shapes[name]))


def scope_of(node: Node) -> FusionScope:
    """The scope of a node that a fusion sees."""
    assert isinstance(node.scope, FusionScope)
    return node.scope


def by_depth(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """``nodes`` with those of a shorter longest path from the inputs first; the order of equal ones stays.

    Keys of tasks with several inputs depend on this order.
    """
    depth: dict[str, int] = {}
    levels = []
    for node in nodes:
        level = max((depth[name] + 1 for name in outer_reads(node) if name in depth), default=0)
        levels.append((level, node))
        depth.update(dict.fromkeys(filter(None, node.output), level))
    return [node for _, node in sorted(levels, key=lambda pair: pair[0])]


def fuse(model: ModelProto) -> None:
    """Apply every fusion to the main graph, in place. Shapes must be inferred; unknown ones prevent fusions.

    Shapes and types of new values are declared where a fusion knows them.
    """
    scope = FusionScope(model)
    tie_constants(model, scope)
    for node in model.graph.node:
        scope.visit(node)
    scope.finish(model)


def tie_constants(model: ModelProto, scope: Scope) -> None:
    """Let nodes read the first of several small constants that are equal, so that equal nodes have equal inputs."""
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    same: dict[str, str] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.STRING or is_large(tensor):
            continue
        array = scope.array(tensor.name)
        assert array is not None
        key = tensor.data_type, array.shape, array.tobytes()
        if first.setdefault(key, tensor.name) != tensor.name:
            same[tensor.name] = first[key]
    if same:
        for node in model.graph.node:
            for index, name in enumerate(node.input):
                if name in same:
                    node.input[index] = same[name]
