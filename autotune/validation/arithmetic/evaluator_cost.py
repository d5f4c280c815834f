"""Seconds that ONNX's evaluator takes for a model, so that nobody waits for one that takes minutes."""

from __future__ import annotations

import math

import onnx

from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.validation.arithmetic.model_work import multiplications, value_shapes

MULTIPLICATION_S = 3e-8
"""Seconds of one multiplication of a convolution or a product of matrices. A 3 × 3 convolution of 8 channels took
3.4e-8 (two-core AMD EPYC of Zen 5, busy)."""

ELEMENT_S = {
    "AveragePool": 4e-5,
    "Col2Im": 5e-5,
    "ConvTranspose": 1e-4,
    "DeformConv": 1e-2,
    "GridSample": 8e-4,
    "LpPool": 4e-5,
    "MaxPool": 2.5e-5,
}
"""Operators that the evaluator computes one element after the other → seconds of one element of their output, measured
likewise with windows of 3 × 3. The other 24 that were measured take below 1e-5, Conv by its multiplications."""


def evaluation_s(model: onnx.ModelProto) -> float:
    """Return about how many seconds the evaluator takes for ``model``; unknown sizes count as 1.

    Args:
        model: its shapes fixed and inferred.
    """
    shapes = value_shapes(model)
    slow = (
        (ELEMENT_S[node.op_type], node.output[0]) for node in walk_nodes(model.graph.node) if node.op_type in ELEMENT_S
    )
    elements = sum(seconds * math.prod(size or 1 for size in shapes.get(name, ())) for seconds, name in slow)
    return elements + MULTIPLICATION_S * multiplications(model)
