"""Moves of elements that cancel, or that the next operator does itself; operators that change nothing.

Those that change nothing come last, behind the other fusions too: a product with a bias of zeros is a ``Gemm``.
"""

from __future__ import annotations

import numpy as np

from autotune.importer.fusion.fusion_graph import scope_of
from autotune.importer.fusion.scales import written
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import fuses

REDUCTIONS = (
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
)
"""Reductions that can keep their axes."""


def order_of(node: Node) -> list[int] | None:
    """The permutation of a Transpose; None where neither it nor the rank is known."""
    shape = node.known_shape(0)
    order = node.attr("perm", None if shape is None else [*reversed(range(len(shape)))])
    return None if order is None else [int(axis) for axis in order]


@fuses("Transpose")
def transpose_of_ones(node: Node, e: Emit) -> list[str] | None:
    """A Transpose next to a Reshape that only moves axes of size one is a Reshape."""
    scope, order, shape = scope_of(node), order_of(node), node.known_shape(0)
    if order is None or shape is None or 0 in shape:
        return None
    if not (node.proto.output[0] in scope.viewed or scope.maker(node.input(0), "Reshape")):
        return None
    long = [axis for axis in order if shape[axis] != 1]
    return [e.reshape(node.input(0), *(shape[axis] for axis in order))] if long == sorted(long) else None


@fuses("Reshape")
def two_reshapes(node: Node, e: Emit) -> list[str] | None:
    """The last of two reshapes in a row reads what the first one reads."""
    before = scope_of(node).only_for(node.input(0), "Reshape")
    shape = node.scope.shapes.get(str(node.proto.output[0]))
    return None if before is None or shape is None or 0 in shape else [e.reshape(before.input(0), *shape)]


@fuses("Unsqueeze")
def two_unsqueezes(node: Node, e: Emit) -> list[str] | None:
    """Several new axes at once."""
    before = scope_of(node).only_for(node.input(0), "Unsqueeze")
    shape, result = (
        (None if before is None else before.known_shape(0)),
        node.scope.shapes.get(str(node.proto.output[0])),
    )
    first, second = (None if step is None else step.array(1) for step in (before, node))
    if before is None or shape is None or result is None or first is None or second is None:
        return None
    rank = len(result)
    late = {int(axis) % rank for axis in second}
    kept = [axis for axis in range(rank) if axis not in late]
    early = {kept[int(axis) % len(kept)] for axis in first}
    return [e.unsqueeze(before.input(0), *sorted(late | early))]


@fuses("Unsqueeze")
def reduction_of_kept_axes(node: Node, e: Emit) -> list[str] | None:
    """A reduction whose axes are put back keeps them."""
    scope = scope_of(node)
    before = scope.only_for(node.input(0), *REDUCTIONS)
    result, shape = scope.shapes.get(str(node.proto.output[0])), None if before is None else before.known_shape(0)
    if before is None or result is None or shape is None or before.attr("keepdims", 1) or len(result) != len(shape):
        return None
    axes = before.attr("axes", before.array(1)) if before.input(1) else before.attr("axes")
    added = node.attr("axes", node.array(1))
    if axes is None or added is None or not len(axes):
        return None
    rank = len(shape)
    if {int(axis) % rank for axis in axes} != {int(axis) % rank for axis in added}:
        return None
    return [written(e, before, list(before.proto.input), keepdims=1)]


@fuses("Concat")
def nested_concats(node: Node, e: Emit) -> list[str] | None:
    """Join at once the inputs of a Concat that only another Concat along the same axis reads."""
    scope, shape = scope_of(node), node.scope.shapes.get(str(node.proto.output[0]))
    if shape is None:
        return None
    axis = int(node.attr("axis", 0)) % max(len(shape), 1)
    parts: list[str] = []
    for name in map(str, node.proto.input):
        inner = scope.only_for(name, "Concat")
        same = inner is not None and int(inner.attr("axis", 0)) % len(shape) == axis
        parts.extend(map(str, inner.proto.input) if inner is not None and same else [name])
    return [written(e, node, parts)] if len(parts) > len(node.proto.input) else None


@fuses("Conv")
def padded_convolution(node: Node, e: Emit) -> list[str] | None:
    """A convolution pads with zeros itself."""
    pad = scope_of(node).maker(node.input(0), "Pad")
    data, auto = node.known_shape(0), str(node.attr("auto_pad", "NOTSET"))
    if (
        pad is None
        or data is None
        or auto not in ("NOTSET", "VALID")
        or str(pad.attr("mode", "constant")) != "constant"
    ):
        return None
    rank, value = len(data), pad.array(2)
    amounts, axes = pad.array(1), pad.array(3) if pad.input(3) else range(rank)
    if amounts is None or axes is None or (pad.input(2) and (value is None or value.any())):
        return None
    before, behind = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[int(axis) % rank], behind[int(axis) % rank] = int(amounts[index]), int(amounts[index + len(axes)])
    if any((*before[:2], *behind[:2])) or min((*before, *behind)) < 0:
        return None
    own = node.attr("pads", [0] * 2 * (rank - 2)) if auto == "NOTSET" else [0] * 2 * (rank - 2)
    pads = [int(one) + other for one, other in zip(own, (*before[2:], *behind[2:]), strict=True)]
    return [written(e, node, [pad.input(0), *node.proto.input[1:]], pads=pads, auto_pad="NOTSET")]


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
