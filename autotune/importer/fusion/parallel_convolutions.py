"""Sums and differences of convolutions of one image become one convolution.

Networks such as RepVGG, MobileOne and FastViT are trained with branches side by side, and often exported so:

    conv(x, W) + conv(x, V) + x · a + b  →  conv(x, W + V, where its taps are, + a at the tap of the pixel itself)

A filter of one tap lies inside of a larger one, and so does a scale of each channel (an inference batch norm of x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from autotune.importer.fusion.fusion_graph import FusionScope
from autotune.importer.fusion.scales import Affine, affine_of, written
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import fuses


@dataclass(frozen=True)
class _Filters:
    """Filters that an image is convolved with.

    Attributes:
        data: name of the image.
        weight: (filters, channels of a group, taps…), in double precision.
        bias: one number per filter, in double precision; a single 0 without.
        steps, before, dilations: strides, padding before the image and dilations, by axis.
        groups: of channels.
        conv: the node; None of a scale of each channel.
    """

    data: str
    weight: Array
    bias: Array
    steps: tuple[int, ...]
    before: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    conv: Node | None

    def place(self, other: _Filters) -> tuple[slice, ...] | None:
        """Return where the taps of ``other`` lie among these; None if some do not."""
        places = []
        sizes = zip(self.weight.shape[2:], other.weight.shape[2:], strict=True)
        for axis, (taps, few) in enumerate(sizes):
            ahead, step = self.before[axis] - other.before[axis], self.dilations[axis]
            spread = other.dilations[axis] if few > 1 else step
            first, last = ahead // step, (ahead + (few - 1) * spread) // step
            if ahead % step or spread % step or first < 0 or last >= taps:
                return None
            places.append(slice(first, last + 1, spread // step))
        return tuple(places)


@fuses("Add", "Sub")
def into_one_convolution(node: Node, e: Emit) -> list[str] | None:
    """A sum of two convolutions that nothing else reads, or of one and its image scaled channel by channel."""
    scope = node.scope
    assert isinstance(scope, FusionScope)
    shapes = {scope.shapes.get(name) for name in (*node.proto.input, *node.proto.output)}
    if len(shapes) > 1 or node.type(0) != TensorProto.FLOAT:
        return None
    names = [node.input(0), node.input(1)]
    convolved = [_convolved(scope, name) for name in names]
    like = next(filter(None, convolved), None)
    if like is None:
        return None
    known = [part or _scaled(scope, name, like) for part, name in zip(convolved, names, strict=True)]
    signs = (1.0, -1.0 if node.kind == "Sub" else 1.0)
    parts = sorted(((part, sign) for part, sign in zip(known, signs, strict=True) if part), key=_taps, reverse=True)
    if len(parts) < 2:
        return None
    (first, plus), (second, minus) = parts
    if first.data != second.data or (first.steps, first.groups) != (second.steps, second.groups):
        return None
    place = first.place(second)
    if place is None or first.conv is None:
        return None
    weight = plus * first.weight
    weight[(slice(None), slice(None), *place)] += minus * second.weight
    bias = np.broadcast_to(plus * first.bias + minus * second.bias, weight.shape[0])
    arrays = [array.astype(np.float32) for array in (weight, bias)]
    if not all(np.isfinite(array).all() for array in arrays):
        return None
    return [written(e, first.conv, [first.data, *(e.const(array) for array in arrays)])]


def _taps(part: tuple[_Filters, float]) -> tuple[int, bool]:
    """Taps of the filters, those of a convolution before those of a scale."""
    filters = part[0]
    return filters.weight.size, filters.conv is not None


def _convolved(scope: FusionScope, name: str) -> _Filters | None:
    """The filters of the convolution that makes ``name``, if only one node reads it and its weights are constant."""
    conv = scope.only_for(name, "Conv")
    if conv is None or not all(scope.is_weight(weight) for weight in filter(None, conv.proto.input[1:])):
        return None
    if conv.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    weight = scope.weight(conv.input(1)).astype(np.float64)
    rank = weight.ndim - 2
    pads = tuple(conv.attr("pads", [0] * 2 * rank))
    bias = scope.weight(conv.input(2)).astype(np.float64) if conv.input(2) else np.zeros(1)
    steps, dilations = (tuple(conv.attr(field, [1] * rank)) for field in ("strides", "dilations"))
    return _Filters(conv.input(0), weight, bias, steps, pads[:rank], dilations, int(conv.attr("group", 1)), conv)


def _scaled(scope: FusionScope, name: str, like: _Filters) -> _Filters | None:
    """An image times a number for each channel, as filters of one tap that have the groups of ``like``.

    The image as it is counts beside a depthwise convolution: others add it behind their sums of products.
    """
    maker, rank = scope.only_for(name, "BatchNormalization", "Mul"), like.weight.ndim - 2
    step = None if maker is None else affine_of(maker)
    if name == like.data and like.weight.shape[1] == 1:
        step = Affine(name, np.ones([1] * (rank + 2)), None)
    if step is None or step.scale is None or not step.along(1) or set(like.steps) != {1}:
        return None
    channels = scope.shapes[step.data][1]
    if channels != like.weight.shape[0]:
        return None
    own = np.arange(channels) % like.weight.shape[1]
    weight = np.zeros((channels, like.weight.shape[1], *[1] * rank))
    weight[(np.arange(channels), own, *[0] * rank)] = np.broadcast_to(step.scale.ravel(), channels)
    bias = np.zeros(1) if step.shift is None else step.shift.ravel()
    ones: Sequence[int] = [1] * rank
    return _Filters(step.data, weight, bias, like.steps, (0,) * rank, tuple(ones), like.groups, None)
