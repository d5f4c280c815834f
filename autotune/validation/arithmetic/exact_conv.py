"""A convolution as products of matrices, for ``widen``: ONNX Runtime's CPU provider has no 64-bit convolution.

    y[n, g, m, p] = Σ over c, k of w[g, m, c, k] · x[n, g, c, p·stride + k·dilation − pad]

Along each spatial axis the places p·stride + k·dilation − pad are gathered; those outside of x read an appended zero.
Kernel offsets of the first spatial axis are taken in pieces, so that the gathered columns stay small.

Operators here are those of every opset: Concat, Gather, Reshape, Transpose, MatMul, Add.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

COLUMNS_BYTES = 128 << 20
"""Gathered columns of one product, in bytes: several copies of them are alive at a time. Heuristic, not measured."""


class Writer(Protocol):
    """The graph that is being written."""

    def constant(self, array: NDArray[Any]) -> str:
        """The name of a new weight."""

    def emit(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """The output of a new node; it is called ``output`` if that is given."""

    def reshaped(self, value: str, shape: Iterable[int], output: str = "") -> str:
        """``value`` in another shape."""


def convolution(
    graph: Writer, node: NodeProto, data: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """Write the Conv ``node`` into ``graph``; the inputs are there already, as floats of 64 bits.

    Args:
        data: shape of its first input, (batch, channels, spatial …).
        weight: (channels out, channels in / groups, kernel …).
        result: shape of its output.
    """
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    kernel, spatial, outer = weight[2:], data[2:], result[2:]
    groups, depth = attributes.get("group", 1), weight[1]
    offset_bytes = 8 * data[0] * data[1] * math.prod(kernel[1:]) * math.prod(outer)
    per = max(1, COLUMNS_BYTES // max(1, offset_bytes))
    places = _places(attributes, spatial, kernel, outer)
    total = ""
    for start in range(0, kernel[0], per):
        stop = min(start + per, kernel[0])
        taken = (stop - start, *kernel[1:])
        columns = _columns(graph, node.input[0], data, [places[0][start:stop], *places[1:]])
        columns = graph.reshaped(columns, (data[0], groups, depth * math.prod(taken), math.prod(outer)))
        offsets = graph.constant(np.arange(start, stop))
        piece = graph.emit("Gather", node.input[1], offsets, axis=2)
        piece = graph.reshaped(piece, (groups, weight[0] // groups, depth * math.prod(taken)))
        product = graph.emit("MatMul", piece, columns)
        total = graph.emit("Add", total, product) if total else product
    biased = len(node.input) > 2 and node.input[2] != ""
    total = graph.reshaped(total, result, output="" if biased else node.output[0])
    if biased:
        bias = graph.reshaped(node.input[2], (-1, *(1 for _ in outer)))
        graph.emit("Add", total, bias, output=node.output[0])


def _columns(graph: Writer, value: str, data: tuple[int, ...], places: Sequence[NDArray[np.int64]]) -> str:
    """x at ``places``, in the shape (batch, channels, kernel offsets …, outputs …)."""
    shape = list(data)
    for axis, wanted in enumerate(places, start=2):
        if np.any(wanted == data[axis]):
            zeros = graph.constant(np.zeros([1 if at == axis else size for at, size in enumerate(shape)]))
            value = graph.emit("Concat", value, zeros, axis=axis)
        value = graph.emit("Gather", value, graph.constant(wanted.reshape(-1)), axis=axis)
        shape[axis] = wanted.size
    apart = [size for wanted in places for size in wanted.shape]
    value = graph.reshaped(value, (*data[:2], *apart))
    order = [0, 1, *range(2, 2 + len(apart), 2), *range(3, 2 + len(apart), 2)]
    return graph.emit("Transpose", value, perm=order)


def _places(
    attributes: dict[str, Any], spatial: Sequence[int], kernel: Sequence[int], outer: Sequence[int]
) -> list[NDArray[np.int64]]:
    """For each spatial axis the places read, (kernel offsets, outputs); the axis's size stands for a zero."""
    rank = len(kernel)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = list(attributes.get("pads", [0] * 2 * rank)[:rank])
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    places = []
    for axis, (size, taps, count) in enumerate(zip(spatial, kernel, outer, strict=True)):
        stride, dilation = strides[axis], dilations[axis]
        if mode.startswith("SAME"):
            lacking = max(0, (count - 1) * stride + (taps - 1) * dilation + 1 - size)
            pads[axis] = lacking // 2 if mode == "SAME_UPPER" else lacking - lacking // 2
        elif mode == "VALID":
            pads[axis] = 0
        at = np.arange(count)[None] * stride + np.arange(taps)[:, None] * dilation - pads[axis]
        places.append(np.where((at < 0) | (at >= size), size, at))
    return places
