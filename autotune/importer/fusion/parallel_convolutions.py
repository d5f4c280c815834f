"""Sums and differences of convolutions of one image become one convolution.

Networks such as RepVGG, MobileOne and FastViT are trained with branches side by side, and often exported so:

    conv(x, W) + conv(x, V) + x · a + b  →  conv(x, W + V, where its taps are, + a at the tap of the pixel itself)

A filter of one tap lies inside of a larger one, and so does a scale of each channel (an inference batch norm of x).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from autotune.importer.fusion.fusion_graph import FusionScope, scope_of
from autotune.importer.fusion.scales import Affine, affine_of, written
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import fuses


@dataclass(frozen=True)
class _Filters:
    """Filters that an image is convolved with.

    Attributes:
        image: its name.
        weight: (filters, channels of a group, taps…), in double precision.
        bias: one number per filter, in double precision; a single 0 without.
        strides, before, dilations: by axis; ``before`` is the padding before the image.
        groups: into which the channels are divided.
        conv: the node; None where the image is only scaled.
    """

    image: str
    weight: Array
    bias: Array
    strides: tuple[int, ...]
    before: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    conv: Node | None

    def place(self, other: _Filters) -> tuple[slice, ...] | None:
        """Return where the taps of ``other`` lie among these; None if some do not."""
        places = []
        counts = zip(self.weight.shape[2:], other.weight.shape[2:], strict=True)
        for axis, (taps, others) in enumerate(counts):
            offset, step = self.before[axis] - other.before[axis], self.dilations[axis]
            spread = other.dilations[axis] if others > 1 else step
            first, last = offset // step, (offset + (others - 1) * spread) // step
            if offset % step or spread % step or first < 0 or last >= taps:
                return None
            places.append(slice(first, last + 1, spread // step))
        return tuple(places)


@fuses("Add", "Sub")
def into_one_convolution(node: Node, e: Emit) -> list[str] | None:
    """Merge two convolutions that nothing else reads, or one and its image scaled channel by channel."""
    scope = scope_of(node)
    names = [node.input(0), node.input(1)]
    shapes = {scope.shapes.get(name) for name in (*names, node.proto.output[0])}
    convs = [scope.only_for(name, "Conv") for name in names]
    images = {conv.input(0) for conv in convs if conv is not None}
    if len(images) != 1 or len(shapes) != 1 or None in shapes or node.type(0) != TensorProto.FLOAT:
        return None
    convolved = [None if conv is None else _convolved(conv) for conv in convs]
    conv = next(filter(None, convolved), None)
    if conv is None:
        return None
    branches = [branch or _scaled(scope, name, conv) for branch, name in zip(convolved, names, strict=True)]
    signs = (1.0, -1.0 if node.kind == "Sub" else 1.0)
    pairs = [(branch, sign) for branch, sign in zip(branches, signs, strict=True) if branch is not None]
    if len(pairs) < 2:
        return None
    # Of equal branches, a convolution is larger than a scale.
    larger, smaller = sorted(pairs, key=lambda pair: (pair[0].weight.size, pair[0].conv is not None), reverse=True)
    merged = _merged(larger, smaller)
    if merged is None or larger[0].conv is None:
        return None
    return [written(e, larger[0].conv, [conv.image, *map(e.const, merged)])]


def _merged(larger: tuple[_Filters, float], smaller: tuple[_Filters, float]) -> tuple[Array, Array] | None:
    """Return weight and bias of the filters of both branches, each times its sign; None if they do not fit."""
    (first, plus), (second, minus) = larger, smaller
    if first.image != second.image or (first.strides, first.groups) != (second.strides, second.groups):
        return None
    place = first.place(second)
    if place is None:
        return None
    weight = plus * first.weight
    weight[(slice(None), slice(None), *place)] += minus * second.weight
    bias = np.broadcast_to(plus * first.bias + minus * second.bias, weight.shape[0])
    with np.errstate(over="ignore"):
        arrays = weight.astype(np.float32), bias.astype(np.float32)
    return arrays if all(np.isfinite(array).all() for array in arrays) else None


def _convolved(conv: Node) -> _Filters | None:
    """Return the filters of a convolution; None if they are computed, or its padding is not in numbers."""
    scope = scope_of(conv)
    if not all(map(scope.is_weight, filter(None, map(str, conv.proto.input[1:])))):
        return None
    if conv.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    weight = scope.weight(conv.input(1)).astype(np.float64)
    rank = weight.ndim - 2
    pads = tuple(conv.attr("pads", [0] * 2 * rank))
    bias = scope.weight(conv.input(2)).astype(np.float64) if conv.input(2) else np.zeros(1)
    strides, dilations = (tuple(conv.attr(field, [1] * rank)) for field in ("strides", "dilations"))
    return _Filters(conv.input(0), weight, bias, strides, pads[:rank], dilations, int(conv.attr("group", 1)), conv)


def _scaled(scope: FusionScope, name: str, conv: _Filters) -> _Filters | None:
    """Return an image that is scaled by a number for each channel, as filters of one tap in the groups of ``conv``.

    An unscaled image is taken in by depthwise convolutions only: others add it to their sums of products.
    """
    maker, rank = scope.only_for(name, "BatchNormalization", "Mul"), conv.weight.ndim - 2
    step = None if maker is None else affine_of(maker)
    if name == conv.image and conv.weight.shape[1] == 1:
        step = Affine(name, np.ones([1] * (rank + 2)), None)
    if step is None or step.scale is None or not step.along(1) or set(conv.strides) != {1}:
        return None
    channels = scope.shapes[step.data][1]
    if channels != conv.weight.shape[0]:
        return None
    inside = np.arange(channels) % conv.weight.shape[1]
    weight = np.zeros((channels, conv.weight.shape[1], *[1] * rank))
    weight[(np.arange(channels), inside, *[0] * rank)] = np.broadcast_to(step.scale.ravel(), channels)
    bias = np.zeros(1) if step.shift is None else step.shift.ravel()
    return _Filters(step.data, weight, bias, conv.strides, (0,) * rank, (1,) * rank, conv.groups, None)
