"""Operators that change nothing.

They come after the other fusions: a product with a bias of zeros is a ``Gemm``, too.
"""

from __future__ import annotations

import numpy as np

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import fuses


def _keeps_shape(node: Node, index: int = 0) -> bool:
    """Return whether the result has the known shape and type of input ``index``."""
    output = str(node.proto.output[0])
    shape = node.known_shape(index)
    return (
        shape is not None
        and shape == node.scope.shapes.get(output)
        and node.type(index) == node.scope.types.get(output)
    )


@fuses("Expand", "Flatten", "Reshape", "Squeeze", "Tile", "Unsqueeze")
def same_view(node: Node, _e: Emit) -> list[str] | None:
    """Elements keep their order, so the same shape is the same tensor."""
    return [node.input(0)] if _keeps_shape(node) else None


@fuses("Cast")
def same_type(node: Node, _e: Emit) -> list[str] | None:
    """A cast to the type that the data has."""
    return [node.input(0)] if node.type(0) and node.type(0) == node.attr("to") else None


@fuses("Transpose")
def same_order(node: Node, _e: Emit) -> list[str] | None:
    """Axes that stay where they are."""
    order = node.attr("perm")
    return [node.input(0)] if order is not None and list(order) == sorted(order) else None


@fuses("Slice")
def whole_slice(node: Node, _e: Emit) -> list[str] | None:
    """Every element in order: a step of one that keeps the shape leaves nothing out."""
    steps = node.array(4) if node.input(4) else np.ones(1)
    return [node.input(0)] if steps is not None and (steps == 1).all() and _keeps_shape(node) else None


@fuses("Pad")
def no_padding(node: Node, _e: Emit) -> list[str] | None:
    """Nothing added on any side."""
    amounts = node.attr("pads", node.array(1))
    return [node.input(0)] if amounts is not None and not np.any(amounts) else None


@fuses("Split", "Concat")
def one_part(node: Node, _e: Emit) -> list[str] | None:
    """One part is the whole; parts of no elements do not count."""
    if node.kind == "Split":
        return [node.input(0)] if len(node.proto.output) == 1 and _keeps_shape(node) else None
    parts = [index for index in range(len(node.proto.input)) if 0 not in (node.known_shape(index) or (1,))]
    return [node.input(parts[0])] if len(parts) == 1 and _keeps_shape(node, parts[0]) else None


@fuses("Add", "Div", "Mul", "Sub")
def neutral_number(node: Node, _e: Emit) -> list[str] | None:
    """x + 0, x − 0, x · 1 and x ÷ 1, where the constant does not stretch x."""
    neutral = int(node.kind in ("Mul", "Div"))
    for index in (1, 0) if node.kind in ("Add", "Mul") else (1,):
        value = node.array(index)
        if value is not None and node.input(1 - index) not in node.scope.tensors and _keeps_shape(node, 1 - index):
            is_neutral = value.size and value.flat[0] == neutral and (value == neutral).all()
            return [node.input(1 - index)] if is_neutral else None
    return None
