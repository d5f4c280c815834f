"""A step over the nodes of a graph that knows what makes and what reads every value."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.onnx_model.graph_edits import drop_unused, replace_nodes
from autotune.importer.onnx_model.graph_walk import readers_of, reads
from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.tensors import array_of
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.folding import made_of_constants


class Step(Emit):
    """One step over the nodes of a graph; ``nodes`` collects what takes their place.

    Args:
        model: changed in place by ``run``; shapes and types inferred as far as they can be.
        inputs: as ``Scope`` has them; None for all inputs of the graph.
        weights: the initialisers of the model that ``model`` is a skeleton of.
    """

    def __init__(
        self, model: ModelProto, inputs: Collection[str] | None = None, weights: Mapping[str, TensorProto] | None = None
    ) -> None:
        name, known = type(self).__name__, [value.name for value in model.graph.input] if inputs is None else inputs
        super().__init__(Node(helper.make_node(name, [], ["integer"], name), Scope(model, known)))
        self._graph, self._weights, self._reads = model.graph, weights or {}, reads(model.graph)
        self.makers = {name: node for node in model.graph.node for name in node.output if name}
        self._readers = readers_of(model.graph.node)
        self._constant = made_of_constants(model.graph, self.scope.given)

    def run(self) -> None:
        """Replace the graph's nodes, those that make constants first: a scale may be needed before it was."""
        for node in sorted(self._graph.node, key=lambda node: not all(map(self.is_constant, node.output))):
            if not self.replaced(node):
                self.nodes.append(node)
        replace_nodes(self._graph, self.nodes)
        drop_unused(self._graph)

    def replaced(self, node: NodeProto) -> bool:
        """Append what takes the place of ``node`` to ``nodes``; False where it stays."""
        raise NotImplementedError

    def is_constant(self, name: str) -> bool:
        """Return whether a value does not depend on the model's inputs."""
        return name in self._constant

    def only_reader(self, name: str) -> NodeProto | None:
        """The node that reads ``name``, if nothing else does and it is no output."""
        return self._readers[name][0] if self._reads[name] == len(self._readers.get(name, ())) == 1 else None

    def readers(self, name: str) -> list[NodeProto] | None:
        """The nodes that read ``name``; None if it is an output or a body reads it."""
        readers = self._readers.get(name, [])
        return readers if self._reads[name] == len(readers) else None

    def array(self, name: str) -> Array | None:
        """The value of an initialiser, in a skeleton too."""
        if name in self._weights and name not in self.scope.tensors:
            return array_of(self._weights[name])
        return self.scope.array(name)

    def called(self, kind: str, inputs: list[str], to: str, /, **attributes: Any) -> None:
        """One node that makes the value ``to``."""
        self.nodes.append(helper.make_node(kind, inputs, [to], to, **attributes))


@dataclass
class Scores:
    """A product of queries and keys as it is before the softmax.

    Attributes:
        query, keys: the operands of the product: (…, length, size) and (…, size, positions).
        scale: of the product.
        masks: names of what is added to it after that.
    """

    query: str
    keys: str
    scale: float
    masks: list[str]


class AttentionStep(Step):
    """A step that looks for attention."""

    def scores(self, name: str) -> Scores | None:
        """Return how ``name`` comes from a product of queries and turned keys."""
        node = self.makers.get(name)
        if node is None:
            return None
        if node.op_type == "MatMul":
            return Scores(node.input[0], node.input[1], 1.0, [])
        if node.op_type == "Add":
            for mine, other in (node.input, list(node.input)[::-1]):
                scores = self.scores(mine)
                if scores is not None:
                    scores.masks.append(other)
                    return scores
        if node.op_type in ("Mul", "Div"):
            for mine, other in (node.input, list(node.input)[::-1])[: 2 if node.op_type == "Mul" else 1]:
                factor = self.number(other)
                scores = self.scores(mine) if factor is not None else None
                if scores is not None and factor and math.isfinite(factor) and not scores.masks:
                    scores.scale *= factor if node.op_type == "Mul" else 1 / factor
                    return scores
        return None

    def number(self, name: str) -> float | None:
        """The constant of one element called ``name``."""
        array = self.scope.array(name)
        return None if array is None or array.size != 1 else float(array.reshape(()))
