"""Whether a row of a batch uses most weights of a model once, as in a perceptron, or many times, as in convolutions.

Weights that are used once are read once per row, however fast the kernel. A kernel for several rows reads them once for
all. Nothing is inferred but ranks, and these roughly: a guess costs a set of shapes too many or too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx

LEAST_REUSE = 50
"""Multiplications of a row with one weight of a convolution or of a layer over positions. Heuristic, not measured:
convolutions of 7 × 7 results make 49, sentences and patches 16 to 200."""

LAYERS = ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul")
"""Operators of dense layers."""

REUSING = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "LSTM", "GRU", "RNN")
"""Operators that use each of their weights at many places or steps."""

RANK_OF = {"Flatten": 2, "Gemm": 2, "GlobalAveragePool": 4}
"""Rank of the results of operators."""


@dataclass
class _Value:
    """A tensor, as far as it is known.

    Attributes:
        rank: about.
        weights: elements, of one that does not depend on the inputs; 0 for others.
    """

    rank: int = 1
    weights: int = 0


@dataclass
class _Weights:
    """Elements of the weights that a row uses once, and many times."""

    once: int = 0
    often: int = 0
    values: dict[str, _Value] = field(default_factory=dict)

    def add(self, node: onnx.NodeProto) -> None:
        """Count the weights of ``node``, and note its results."""
        inputs = [self.values.get(name, _Value()) for name in node.input if name]
        constants = [value for value in inputs if value.weights]
        others = [value for value in inputs if not value.weights]
        if node.op_type == "Constant":
            self._note(node, next((constant(a.t.dims) for a in node.attribute if a.name == "value"), constant(())))
        elif constants and not others:
            self._note(node, max(constants, key=lambda value: value.weights))
        else:
            rank = max((value.rank for value in others), default=1)
            largest = max((value.weights for value in constants), default=0)
            if node.op_type in LAYERS and rank == 2:
                self.once += largest
            elif node.op_type in LAYERS or node.op_type in REUSING:
                self.often += largest
            self._note(node, _Value(self._rank(node, rank)))

    def _note(self, node: onnx.NodeProto, value: _Value) -> None:
        self.values.update({name: value for name in node.output if name})

    def _rank(self, node: onnx.NodeProto, rank: int) -> int:
        """The rank of the results of ``node``, whose inputs have up to ``rank``."""
        if node.op_type == "Reshape" and len(node.input) > 1:
            return self.values.get(node.input[1], _Value()).weights or rank
        if node.op_type == "Gather":
            table, places = (self.values.get(name, _Value()) for name in node.input)
            return max(1, table.rank + places.rank - 1)
        return RANK_OF.get(node.op_type, rank)


def constant(dims: Sequence[int]) -> _Value:
    """A tensor of ``dims`` that does not depend on the inputs."""
    return _Value(len(dims), max(1, math.prod(dims)))


def uses_weights_once(graph: onnx.GraphProto) -> bool:
    """Return whether multiplying a row of the inputs with the weights of ``graph`` is mostly reading them.

    Args:
        graph: of a model; weights need not be there, only their dimensions.
    """
    weights = _Weights()
    for value in graph.input:
        weights.values[value.name] = _Value(len(value.type.tensor_type.shape.dim))
    for tensor in graph.initializer:
        weights.values[tensor.name] = constant(tensor.dims)
    for node in graph.node:
        weights.add(node)
    return weights.once > LEAST_REUSE * weights.often
