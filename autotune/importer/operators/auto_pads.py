"""Padding that an operator asks for by a word, in numbers: Relax would pad in a step of its own, kernels need none."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import helper

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites


def same_pads(
    mode: str, image: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """What ``SAME_UPPER`` and ``SAME_LOWER`` pad: before every axis, then behind every axis.

    The result has ⌈size ÷ stride⌉ elements along an axis; of an odd padding the larger half is behind with
    ``SAME_UPPER``, else before.
    """
    missing = [
        max(0, (-(-size // stride) - 1) * stride + (taps - 1) * step + 1 - size)
        for size, stride, taps, step in zip(image, strides, kernel, dilations, strict=True)
    ]
    before = [each // 2 if mode == "SAME_UPPER" else each - each // 2 for each in missing]
    return [*before, *(each - first for each, first in zip(missing, before, strict=True))]


@rewrites("Conv", "AveragePool")
def written_out(node: Node, e: Emit) -> list[str] | None:
    """The operator with its padding in numbers."""
    found = with_pads(node, e)
    return None if found is None else [found]


def with_pads(node: Node, e: Emit) -> str | None:
    """``node`` with its padding in numbers; None if it has numbers, or its shapes are not known."""
    mode, shape = str(node.attr("auto_pad", "NOTSET")), node.known_shape(0)
    kernel = node.attr("kernel_shape") or (node.known_shape(1) or ())[2:]
    if not mode.startswith("SAME") or shape is None or len(kernel) != len(shape) - 2:
        return None
    ones = [1] * len(kernel)
    geometry = node.attr("strides", ones), node.attr("dilations", ones)
    kept = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute if a.name not in ("auto_pad", "pads")}
    names = [str(name) for name in node.proto.input]
    return e.op(node.kind, *names, pads=same_pads(mode, shape[2:], kernel, *geometry), **kept)
