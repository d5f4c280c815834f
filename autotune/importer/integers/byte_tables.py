"""Element by element functions of one quantised tensor, quantised again, become tables of 256 bytes.

    Q(x · DQ(Q(sigmoid(x)))), x = DQ(q)  →  ByteTable(q, t), t[i] = the same of the byte with the bits i

The table holds what ONNX's reference gives for each byte, roundings in between among it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.integers.levels import Levels, LevelsStep
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, know_domain
from autotune.importer.rewriting.folding import reference_values

TABLE = "ByteTable"

COSTLY = frozenset(
    {
        *("Sigmoid", "Tanh", "Erf", "Exp", "Log", "Softplus", "Gelu", "Elu", "Selu", "Celu", "Mish", "Softsign"),
        *("HardSigmoid", "HardSwish", "Sqrt", "Pow", "Reciprocal", "Swish"),
    }
)
"""Operators that are worth a table: some are tens of operations, and around the others there are roundings."""

CHEAP = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Relu", "LeakyRelu", "Clip", "Min", "Max", "Identity"})

REFERENCE_OPSET = 21
"""ONNX's reference has quantisers from 19 on. Between ``LEAST_OPSET`` and this the operators are the same."""
LEAST_OPSET = 13

MOST_NODES = 40
"""Nodes that one table stands for: a bound of the search."""


@dataclass
class _Function:
    """A value as a function of one quantised tensor: the nodes between them, in order."""

    levels: Levels
    nodes: list[NodeProto] = field(default_factory=list)


class Tables(LevelsStep):
    """Quantisers of functions of one byte become tables."""

    def __init__(self, model: ModelProto, inputs: Collection[str], weights: Mapping[str, TensorProto]) -> None:
        super().__init__(model, inputs, weights)
        know_domain(model)

    def replaced(self, node: NodeProto) -> bool:
        """Append a table in place of a quantiser, where it is one's."""
        goal = self.levels(node) if node.op_type == "QuantizeLinear" and self.opset >= LEAST_OPSET else None
        function = None if goal is None or goal.axis is not None else self._function(str(node.input[0]), MOST_NODES)
        if function is None or goal is None or not any(inner.op_type in COSTLY for inner in function.nodes):
            return False
        shape = self.scope.shapes.get(node.output[0])
        if shape is None or shape != self.scope.shapes.get(function.levels.q):
            return False
        table = self._values(function, node)
        if table is None:
            return False
        inputs, name = [function.levels.q, self.const(table)], str(node.output[0])
        self.nodes.append(helper.make_node(TABLE, inputs, [name], f"{name}/table", domain=OWN_DOMAIN))
        self.declare(name, shape, goal.kind)
        return True

    def _function(self, name: str, left: int) -> _Function | None:
        """Return ``name`` as a function of one quantised tensor; None if it is no such function."""
        maker = self.makers.get(name)
        if maker is None or left <= 0:
            return None
        if maker.op_type == "DequantizeLinear":
            levels = self.levels(maker)
            if levels is None or levels.axis is not None or self.is_constant(levels.q):
                return None
            return self._again(maker, levels, left) or _Function(levels, [maker])
        if maker.op_type not in COSTLY | CHEAP or len(maker.output) != 1:
            return None
        function: _Function | None = None
        constants: list[NodeProto] = []
        for operand in filter(None, maker.input):
            if self.is_constant(operand):
                if (nodes := self._number(str(operand))) is None:
                    return None
                constants += nodes
                continue
            part = self._function(str(operand), left - 1)
            if part is None or (function is not None and part.levels.q != function.levels.q):
                return None
            before = [] if function is None else function.nodes
            outputs = {node.output[0] for node in before}
            more = [node for node in part.nodes if node.output[0] not in outputs]
            function = _Function(part.levels, [*before, *more])
        return None if function is None else _Function(function.levels, [*function.nodes, *constants, maker])

    def _number(self, name: str) -> list[NodeProto] | None:
        """The nodes that make a constant of one element, none or one that dequantises; None for others."""
        if (array := self.array(name)) is not None:
            return [] if array.size == 1 else None
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            return None
        arrays = [self.array(operand) for operand in filter(None, maker.input)]
        return [maker] if all(array is not None and array.size == 1 for array in arrays) else None

    def _again(self, maker: NodeProto, levels: Levels, left: int) -> _Function | None:
        """The same through a quantiser whose bytes are read again."""
        quantiser = self.makers.get(levels.q)
        if quantiser is None or quantiser.op_type != "QuantizeLinear":
            return None
        before = self._function(str(quantiser.input[0]), left - 1)
        if before is None or not any(node.op_type in COSTLY for node in before.nodes):
            return None
        return _Function(before.levels, [*before.nodes, quantiser, maker])

    def _values(self, function: _Function, last: NodeProto) -> np.ndarray | None:
        """The bytes that ``last`` makes of all bytes, by their bits; None where its parameters are not known."""
        nodes = [*function.nodes, last]
        produced = {name for node in nodes for name in node.output}
        names = {name for node in nodes for name in node.input if name} - produced - {function.levels.q}
        arrays = {str(name): array for name in names if (array := self.array(name)) is not None}
        if len(arrays) < len(names):
            return None
        dtype = helper.tensor_dtype_to_np_dtype(function.levels.kind)
        feed = {**arrays, function.levels.q: np.arange(256).astype(np.uint8).view(dtype)}
        values = reference_values(nodes, feed, [str(last.output[0])], max(self.opset, REFERENCE_OPSET))
        return None if values is None else np.asarray(values[0])
