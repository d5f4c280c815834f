"""The axes along which operators read what stands behind the end of a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from numpy.typing import ArrayLike

from autotune.importer.live.live_axes import kernel_of
from autotune.importer.live.live_masks import Masks
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS
from autotune.importer.rewriting.emit import Node

PER_AXIS = 13
"""First opset whose ``Softmax`` is along one axis, not along all from one on."""


def reads_beside(node: Node, masks: Masks) -> list[int]:
    """The axes of its first input along which an operator adds up numbers that do not count."""
    if node.proto.domain not in STANDARD_DOMAINS:
        return []
    own = masks.axes.get(node.input(0), ())
    if node.kind in CONVOLUTIONS:
        return open_windows(node, masks)
    if node.kind in ("AveragePool", "LpPool"):
        return open_windows(node, masks) if has_border(node) else []
    if node.kind in AVERAGED:
        return masks.open_axes(node.input(0), AVERAGED[node.kind](node, len(own)))
    if node.kind == "Pad":
        return open_borders(node, masks) if border_number(node) == 0 else []
    if node.kind == "MatMul":
        return masks.open_axes(node.input(0), [len(own) - 1]) if len(own) > 1 else []
    return []


def open_windows(node: Node, masks: Masks) -> list[int]:
    """The axes of an image that follow open sizes and along which a window has more than one number."""
    kernel = kernel_of(node) or []
    return masks.open_axes(node.input(0), [2 + at for at, size in enumerate(kernel) if size > 1])


def has_border(node: Node) -> bool:
    """Return whether windows reach beyond the image."""
    auto = str(node.attr("auto_pad", "NOTSET"))
    return auto.startswith("SAME") or any(node.attr("pads", ())) or bool(node.attr("ceil_mode", 0))


def open_borders(node: Node, masks: Masks) -> list[int]:
    """The axes that follow open sizes and get a border; none where it repeats numbers."""
    own = masks.axes.get(node.input(0), ())
    pads = node.attr("pads") or node.array(1)
    if str(node.attr("mode", "constant")) != "constant" or pads is None or node.input(3):
        return []
    return masks.open_axes(node.input(0), [at for at in range(len(own)) if pads[at] or pads[at + len(own)]])


def border_number(node: Node) -> float | None:
    """The number of a constant border; None if it is not known before the model runs."""
    if not node.input(2):
        return float(node.attr("value", 0.0))
    array = node.array(2)
    return None if array is None else float(array.ravel()[0])


def neutral(node: Node) -> ArrayLike:
    """The number that adds nothing to a sum of products: zero, or what stands for it."""
    zero = node.array(2) if node.kind in ("ConvInteger", "QLinearConv") else None
    return 0 if zero is None else zero.ravel()[0]


def behind_two(node: Node, rank: int) -> list[int]:  # noqa: ARG001  # as ``reduced``
    """The axes of an image."""
    return [*range(2, rank)]


def reduced(node: Node, rank: int) -> list[int]:
    """The axes of a reduction; none where they are not known."""
    return node.axes(rank) or []


def softened(node: Node, rank: int) -> list[int]:
    """The axes over which a softmax adds up to one."""
    default = -1 if node.scope.opset >= PER_AXIS else 1
    axis = int(node.attr("axis", default)) % max(1, rank)
    return [axis] if node.scope.opset >= PER_AXIS else [*range(axis, rank)]


def picked(node: Node, rank: int) -> list[int]:
    """The axis along which a number is looked for."""
    return [int(node.attr("axis", -1 if node.kind == "TopK" else 0)) % max(1, rank)]


CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "QLinearConv"})

AVERAGED: Mapping[str, Callable[[Node, int], Collection[int]]] = {
    **dict.fromkeys(("GlobalAveragePool", "GroupNormalization", "InstanceNormalization"), behind_two),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"), reduced),
}
"""Operator → the axes over which it adds up numbers."""
