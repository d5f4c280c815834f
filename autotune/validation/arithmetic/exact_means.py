"""Operators that average positions, for ``widen``: ONNX Runtime's CPU provider has no 64-bit kernel of them.

In 32 bits such a sum may lose as much as all other operators of a model: ONNX Runtime's instance norm of 256 × 999
numbers was 1.5e-5 from exact, one with pairwise sums 3e-7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from autotune.validation.arithmetic.exact_conv import Writer

AXES_ARE_AN_INPUT = 18
"""First opset of ReduceMean whose axes are an input."""

EPSILON = 1e-5
"""Number that ONNX adds to variances unless a node says otherwise."""


def write_mean(graph: Writer, node: NodeProto, shape: Sequence[int | None] | None, opset: int) -> bool:
    """Write ``node``, one of ``MEANS``, into ``graph``; return whether the rank of its data, ``shape``, is known."""
    if shape is None or len(shape) < 3:
        return False
    MEANS[node.op_type](graph, node, len(shape), opset)
    return True


def _mean(graph: Writer, value: str, rank: int, opset: int, output: str = "") -> str:
    axes = list(range(2, rank))
    if opset >= AXES_ARE_AN_INPUT:
        return graph.emit("ReduceMean", value, graph.constant(np.array(axes, np.int64)), output=output)
    return graph.emit("ReduceMean", value, output=output, axes=axes)


def _global_average_pool(graph: Writer, node: NodeProto, rank: int, opset: int) -> None:
    _mean(graph, node.input[0], rank, opset, node.output[0])


def _instance_norm(graph: Writer, node: NodeProto, rank: int, opset: int) -> None:
    """(x − mean) ÷ √(variance + ε) · scale + bias."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    data, *parameters = node.input
    centred = graph.emit("Sub", data, _mean(graph, data, rank, opset))
    variance = _mean(graph, graph.emit("Mul", centred, centred), rank, opset)
    epsilon = graph.constant(np.array(attributes.get("epsilon", EPSILON), np.float64))
    normal = graph.emit("Div", centred, graph.emit("Sqrt", graph.emit("Add", variance, epsilon)))
    scale, bias = (graph.reshaped(parameter, (-1, *[1] * (rank - 2))) for parameter in parameters)
    graph.emit("Add", graph.emit("Mul", normal, scale), bias, output=node.output[0])


MEANS: Mapping[str, Callable[[Writer, NodeProto, int, int], None]] = {
    "InstanceNormalization": _instance_norm,
    "GlobalAveragePool": _global_average_pool,
}
"""Operator → what writes it."""
