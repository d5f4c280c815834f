"""Reductions that Relax's importer lacks or gets wrong: of whole numbers and over no axes."""

from __future__ import annotations

import math

from onnx import TensorProto

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

DOUBLE = TensorProto.DOUBLE

OF_ONE = {
    "ReduceL1": lambda e, x: e.op("Abs", x),
    "ReduceL2": lambda e, x: e.op("Abs", x),
    "ReduceLogSum": lambda e, x: e.op("Log", x),
    "ReduceMean": lambda e, x: e.op("Identity", x),
    "ReduceSumSquare": lambda e, x: e.op("Mul", x, x),
}
"""Reduction → what it makes of a single element."""


@rewrites("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare")
def reduction(node: Node, e: Emit) -> list[str] | None:
    """Over no axes: of every element by itself. Of whole numbers: sums in their type, roots and logarithms in fp64."""
    axes, whole = node.axes(len(node.shape(0))), node.dtype(0).kind in "iu"
    if axes is None:
        return None
    if not axes and node.attr("noop_with_empty_axes", 0):
        x = e.cast(node.input(0), DOUBLE) if whole and node.kind.startswith("ReduceLog") else node.input(0)
        result = OF_ONE[node.kind](e, x)
        return [result if x == node.input(0) else e.cast(result, node.type(0))]
    return _of_whole_numbers(node, e, axes) if whole else None


def _of_whole_numbers(node: Node, e: Emit, axes: list[int]) -> list[str] | None:
    shape, kind, keep = node.shape(0), node.type(0), bool(node.attr("keepdims", 1))
    x = node.input(0)
    if node.kind == "ReduceMean":
        count = math.prod(shape[axis] for axis in axes)
        return [e.op("Div", e.reduce("ReduceSum", x, axes, keep), e.like(count))] if count else None
    if node.kind == "ReduceL2":
        return [e.cast(e.reduce("ReduceL2", e.cast(x, DOUBLE), axes, keep), kind)]
    if node.kind == "ReduceLogSum":
        return [e.cast(e.op("Log", e.cast(e.reduce("ReduceSum", x, axes, keep), DOUBLE)), kind)]
    return None
