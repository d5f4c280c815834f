"""What the steps of ``integer_graph`` know of a graph: constants, readers, and 8-bit tensors that stand for numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.conversion.emit import FLOAT, Emit, Node
from autotune.importer.conversion.folding import made_of_constants
from autotune.importer.onnx_model.graph_walk import reads
from autotune.importer.onnx_model.rewrites import replace_nodes
from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.tensors import array_of

BYTES = (TensorProto.UINT8, TensorProto.INT8)
"""Types of the integers that products are made of."""


@dataclass(frozen=True)
class Levels:
    """An 8-bit tensor and the numbers (q − zero) · scale that it stands for.

    Attributes:
        q: the integers.
        scale, zero: names of values; no zero point is "".
        kind: ONNX element type of ``q``.
        axis: along which scale and zero point differ; None if they are one number each.
        key: equal for equal parameters.
    """

    q: str
    scale: str
    zero: str
    kind: int
    axis: int | None
    key: tuple[Any, ...]


class Step(Emit):
    """One step over the nodes of a graph; ``nodes`` collects what takes their place.

    Args:
        model: changed in place by ``finish``; shapes and types inferred as far as they can be.
        inputs: as ``Scope`` has them.
        weights: the initialisers of the model that ``model`` is a skeleton of.
    """

    def __init__(self, model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto]) -> None:
        name = type(self).__name__
        super().__init__(Node(helper.make_node(name, [], ["integer"], name), Scope(model, inputs)))
        self._graph, self._weights, self._reads = model.graph, weights, reads(model.graph)
        self.makers = {name: node for node in model.graph.node for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        self._constant = made_of_constants(model.graph, self.scope.given)
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def run(self) -> None:
        """Replace the graph's nodes, those that make constants first: a scale may be needed before it was."""
        for node in sorted(self._graph.node, key=lambda node: not all(map(self.is_constant, node.output))):
            self.visit(node)
        replace_nodes(self._graph, self.nodes)

    def visit(self, node: NodeProto) -> None:
        """Append ``node``, or what takes its place, to ``nodes``."""
        raise NotImplementedError

    def is_constant(self, name: str) -> bool:
        """Whether a value does not depend on the model's inputs."""
        return name in self._constant

    def only_reader(self, name: str) -> NodeProto | None:
        """The node that reads ``name``, if nothing else does and it is no output."""
        return self._readers[name][0] if self._reads[name] == len(self._readers.get(name, ())) == 1 else None

    def readers(self, name: str) -> list[NodeProto] | None:
        """The nodes that read ``name``; None if it is an output or a body reads it."""
        found = self._readers.get(name, [])
        return found if self._reads[name] == len(found) else None

    def array(self, name: str) -> Array | None:
        """The value of an initialiser, in a skeleton too."""
        if name in self._weights and name not in self.scope.tensors:
            return array_of(self._weights[name])
        return self.scope.array(name)

    def called(self, kind: str, inputs: list[str], to: str, **attributes: Any) -> None:
        """One node that makes the value ``to``."""
        self.nodes.append(helper.make_node(kind, inputs, [to], to, **attributes))

    def levels(self, node: NodeProto) -> Levels | None:
        """What a QuantizeLinear makes or a DequantizeLinear reads; None unless it is of 8 bits and fp32 scales."""
        is_source = node.op_type == "DequantizeLinear"
        q = str(node.input[0] if is_source else node.output[0])
        kind, scale = self.scope.types.get(q, 0), str(node.input[1])
        zero = str(node.input[2]) if len(node.input) > 2 else ""
        attributes = attributes_of(node)
        shape, rank = self.scope.shapes.get(scale), len(self.scope.shapes.get(str(node.input[0]), ()))
        is_plain = not attributes.get("block_size", 0) and attributes.get("output_dtype", 0) in (0, FLOAT, kind)
        if kind not in BYTES or self.scope.types.get(scale) != FLOAT or shape is None or not is_plain:
            return None
        axis = None
        if math.prod(shape) > 1:
            if not rank:
                return None
            axis = int(attributes.get("axis", 1)) % rank
        key = (kind, axis, self._identity(scale), self._identity(zero) if zero else b"")
        return Levels(q, scale, zero, kind, axis, key)

    def _identity(self, name: str) -> str | bytes:
        """Equal for equal values; zeros are as nothing."""
        array = self.array(name)
        if array is None:
            return name
        return np.ascontiguousarray(array).tobytes() if array.any() else b""

    def dequantised(self, levels: Levels, to: str = "") -> str:
        """The numbers that ``levels`` stand for, called ``to``."""
        to = to or self.fresh()
        inputs = [name for name in (levels.q, levels.scale, levels.zero) if name]
        self.called("DequantizeLinear", inputs, to, **({} if levels.axis is None else {"axis": levels.axis}))
        return to

    def quantised(self, x: str, like: Levels) -> Levels:
        """``x`` on the levels of another tensor, which are one number each."""
        zero = like.zero or self.const(np.zeros((), helper.tensor_dtype_to_np_dtype(like.kind)))
        return replace(like, q=self.op("QuantizeLinear", x, like.scale, zero), zero=zero)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attributes as ``helper.make_node`` takes them."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def inputs_of(node: NodeProto) -> Iterator[str]:
    """Names of the inputs that are not left out."""
    return (str(name) for name in node.input if name)
