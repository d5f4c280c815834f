"""Convolutions as products of matrices, for ``widen``: ONNX Runtime's CPU provider has none of 64 bits.

    y[n, g, m, p] = Σ over c, k of w[g, m, c, k] · x[n, g, c, p·stride + k·dilation − pad]

Along each spatial axis the places p·stride + k·dilation − pad are gathered; those outside of x read an appended zero.

A transposed convolution multiplies first, u[n, g, m, k, j] = Σ over c of w[g, c, m, k] · x[n, g, c, j]. One axis after
the other then becomes the sum of the u[k, j] with j·stride + k·dilation − pad = p.

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
    _finish(graph, node, total, result)


def _finish(graph: Writer, node: NodeProto, total: str, result: Sequence[int]) -> None:
    """Write the output of ``node``: ``total`` in the shape ``result``, and the bias if there is one."""
    biased = len(node.input) > 2 and node.input[2] != ""
    total = graph.reshaped(total, result, output="" if biased else node.output[0])
    if biased:
        bias = graph.reshaped(node.input[2], (-1, *(1 for _ in result[2:])))
        graph.emit("Add", total, bias, output=node.output[0])


def transposed_convolution(
    graph: Writer, node: NodeProto, data: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """Write the ConvTranspose ``node``, as ``convolution``.

    Args:
        weight: (channels in, channels out / groups, kernel …).
    """
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    (batch, channels, *spatial), (_, outputs, *kernel) = data, weight
    groups = attributes.get("group", 1)
    filters = graph.reshaped(node.input[1], (groups, channels // groups, outputs * math.prod(kernel)))
    filters = graph.emit("Transpose", filters, perm=[0, 2, 1])
    image = graph.reshaped(node.input[0], (batch, groups, channels // groups, math.prod(spatial)))
    total = graph.emit("MatMul", filters, image)
    before = batch * groups * outputs
    for axis, pairs in enumerate(_pairs(attributes, spatial, kernel, result[2:])):
        taps, size = kernel[axis], spatial[axis]
        inner, behind = math.prod(kernel[axis + 1 :]), math.prod(spatial[axis + 1 :])
        total = graph.reshaped(total, (before, taps, inner, size, behind))
        total = graph.emit("Transpose", total, perm=[0, 1, 3, 2, 4])
        total = graph.reshaped(total, (before, taps * size, inner * behind))
        total = graph.emit("Concat", total, graph.constant(np.zeros((before, 1, inner * behind))), axis=1)
        terms = [graph.emit("Gather", total, graph.constant(row), axis=1) for row in pairs]
        total = terms[0]
        for term in terms[1:]:
            total = graph.emit("Add", total, term)
        before *= result[2 + axis]
    _finish(graph, node, total, result)


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


def _pairs(
    attributes: dict[str, Any], spatial: Sequence[int], kernel: Sequence[int], outer: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Return the terms of every output, (terms, outputs), for each spatial axis.

    A term is k · size + j; kernel · size stands for none.
    """
    rank = len(kernel)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads, extra = list(attributes.get("pads", [0] * 2 * rank)), attributes.get("output_padding", [0] * rank)
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    pairs = []
    for axis, (size, taps, count) in enumerate(zip(spatial, kernel, outer, strict=True)):
        stride, dilation = strides[axis], dilations[axis]
        if "output_shape" in attributes or mode != "NOTSET":
            surplus = max(0, (size - 1) * stride + (taps - 1) * dilation + 1 + extra[axis] - count)
            pads[axis] = surplus // 2 if mode == "SAME_UPPER" else surplus - surplus // 2
        steps = np.arange(count)[None] + pads[axis] - np.arange(taps)[:, None] * dilation
        at = steps // stride
        is_term = (steps % stride == 0) & (at >= 0) & (at < size)
        numbers = np.where(is_term, np.arange(taps)[:, None] * size + at, taps * size)
        most = max(1, int(is_term.sum(axis=0).max(initial=0)))
        pairs.append(np.sort(numbers, axis=0)[:most])
    return pairs
