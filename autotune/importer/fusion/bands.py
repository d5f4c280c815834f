"""Cut a convolution whose dilation is as large as its image into one per band of the output, without padding.

Most taps of such a filter read padding. All output rows of a band read the image with the same taps:

    dilation 12, 3 taps, 20 rows, 12 rows of padding on both sides
    →  rows 0 to 7 use taps 1 and 2, rows 8 to 11 use tap 1, rows 12 to 19 use taps 0 and 1: 36 products instead of 60

Every further axis is cut in the same way, and the outputs are concatenated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from onnx import ModelProto, NodeProto

from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.step import Step

WORTH = 1.25
"""Least ratio of multiplications for which an axis is cut. Heuristic: slices and outputs are copied once."""

FEWEST_POSITIONS = 32
"""Least output positions of a band. Each weight is used once per position; with 12, reading it from memory takes as
long as multiplying it, at 40 GB/s and 235 GFLOPS."""


@dataclass(frozen=True)
class Band:
    """Neighbouring output positions that read the image with the same taps.

    Attributes:
        start, stop: output positions, ``stop`` excluded.
        first, last: taps, ``last`` excluded.
    """

    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True)
class _Geometry:
    """Strides, dilations, and padding before and behind the image, by axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]

    def without_padding(self, axis: int) -> _Geometry:
        """The same with no padding along ``axis``."""
        before, behind = ((*pads[:axis], 0, *pads[axis + 1 :]) for pads in (self.before, self.behind))
        return replace(self, before=before, behind=behind)


def bands_of(image: int, result: int, taps: int, stride: int, dilation: int, before: int) -> list[Band]:
    """Return the bands of one axis, which cover all ``result`` positions in order.

    Args:
        image, result: extents of the input and of the output.
        before: padding before the image.
    """

    def used(position: int) -> tuple[int, int]:
        inside = [tap for tap in range(taps) if 0 <= position * stride - before + tap * dilation < image]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    bands, start = list[Band](), 0
    for (first, last), positions in groupby(map(used, range(result))):
        stop = start + len(list(positions))
        bands.append(Band(start, stop, first, last))
        start = stop
    return bands


def cut_into_bands(model: ModelProto) -> None:
    """Rewrite ``model``, whose shapes are inferred, in place."""
    step = _Cut(model)
    if any(map(step.is_cut, model.graph.node)):
        step.run()


class _Cut(Step):
    def replaced(self, node: NodeProto) -> bool:
        """Append the convolutions of the bands of ``node``."""
        weight = self.array(node.input[1]) if self.is_cut(node) else None
        if weight is not None:
            self.called("Identity", [self._convolved(node, weight)], node.output[0])
        return weight is not None

    def is_cut(self, node: NodeProto) -> bool:
        """Return whether ``node`` is a convolution that needs far fewer multiplications in bands along some axis."""
        if node.op_type != "Conv" or node.input[1] not in self.scope.tensors:
            return False
        image, result = (self.scope.shapes.get(name, ())[2:] for name in (node.input[0], node.output[0]))
        if not image or len(image) != len(result) or 0 in (*image, *result):
            return False
        weight, geometry = self.scope.shapes[node.input[1]][2:], _geometry(node, len(image))
        if geometry is None:
            return False
        return any(self._bands(image, result, weight, geometry, axis) for axis in range(len(image)))

    def _bands(
        self, image: Sequence[int], result: Sequence[int], weight: Sequence[int], geometry: _Geometry, axis: int
    ) -> list[Band]:
        """The bands along ``axis``; empty if cutting it is not worth it."""
        steps = geometry.strides[axis], geometry.dilations[axis], geometry.before[axis]
        padding = geometry.before[axis] + geometry.behind[axis]
        if padding / geometry.strides[axis] + 2 < (1 - 1 / WORTH) * result[axis]:
            return []  # too few positions read it: at most one more on each side than there are strides in it
        bands = bands_of(image[axis], result[axis], weight[axis], *steps)
        work = sum((band.stop - band.start) * (band.last - band.first) for band in bands)
        fewest = min(band.stop - band.start for band in bands) * math.prod(result) // result[axis]
        empty = any(band.first == band.last for band in bands)
        worth = len(bands) > 1 and weight[axis] * result[axis] >= WORTH * work and fewest >= FEWEST_POSITIONS
        return bands if worth and not empty else []

    def _convolved(self, node: NodeProto, weight: Array) -> str:
        """Emit the convolutions of all bands, the first axis outermost; return the name of the output."""
        image, result = (list(self.scope.shapes[name][2:]) for name in (node.input[0], node.output[0]))
        geometry = _geometry(node, len(image))
        assert geometry is not None
        group = int(attributes_of(node).get("group", 1))
        biases = [str(name) for name in node.input[2:]]

        def convolved(x: str, w: Array, shapes: tuple[list[int], list[int]], known: _Geometry, axis: int) -> str:
            if axis == len(image):
                pads = [*known.before, *known.behind]
                options = {"strides": known.strides, "dilations": known.dilations, "pads": pads, "group": group}
                return self.op("Conv", x, self.const(w), *biases, kernel_shape=w.shape[2:], **options)
            bands = self._bands(*shapes, w.shape[2:], known, axis)
            if not bands:
                return convolved(x, w, shapes, known, axis + 1)
            parts, inside = [], known.without_padding(axis)
            stride, step, before = known.strides[axis], known.dilations[axis], known.before[axis]
            for band in bands:
                taps = w.take(range(band.first, band.last), axis + 2)
                start = band.start * stride - before + band.first * step
                stop = (band.stop - 1) * stride - before + (band.last - 1) * step + 1
                sizes = [list(shape) for shape in shapes]
                sizes[0][axis], sizes[1][axis] = stop - start, band.stop - band.start
                some = x if stop - start == shapes[0][axis] else self.slice(x, axis + 2, start, stop)
                parts.append(convolved(some, taps, (sizes[0], sizes[1]), inside, axis + 1))
            return self.concat(parts, axis + 2)

        return convolved(str(node.input[0]), weight, (image, result), geometry, 0)


def _geometry(node: NodeProto, rank: int) -> _Geometry | None:
    """The geometry of a convolution of ``rank`` axes; None if its padding is not in numbers."""
    attributes = attributes_of(node)
    if attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    pads = attributes.get("pads") or [0] * 2 * rank
    strides, dilations = (tuple(attributes.get(name) or [1] * rank) for name in ("strides", "dilations"))
    if {len(strides), len(dilations), len(pads) / 2} != {rank} or min(pads) < 0:
        return None
    return _Geometry(strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
