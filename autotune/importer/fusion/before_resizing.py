"""Convolve an image before it is enlarged, where the convolution reads single pixels.

Enlarging computes each channel alone, and such a convolution each pixel alone, so their order is free. Each part of a
concatenation is convolved by its own columns of the weight:

    conv(concat(a, enlarged(b)), W) + bias
    →  conv(a, W[:, channels of a]) + bias + enlarged(conv(b, W[:, channels of b]))

Heads of detectors and of segmentation networks do this. Where sides double, a quarter of the pixels is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.step import Step

LEAST_GROWTH = 2
"""Least ratio of pixels after enlarging to pixels before. Heuristic, not measured: half of the products are saved."""

FEWEST_CHANNELS = 32
"""Least channels of an enlarged image. An addition per pixel and filter is new, whose 12 bytes take as long as 36
channels of one filter, at 250 GFLOPS and 40 GB/s."""

MOST_GROWN = 2
"""Most filters per channel of an image. After the move, filters are enlarged instead of channels. Heuristic, not
measured."""


@dataclass(frozen=True)
class _Part:
    """Channels that a convolution reads.

    Attributes:
        name: name of the image.
        source: name of the smaller image that it is made of; its own if convolving that is not worth it.
        channels: first and last channel among all that the convolution reads, the last one excluded.
    """

    name: str
    source: str
    channels: tuple[int, int]

    @property
    def is_moved(self) -> bool:
        """Whether the convolution goes before the enlarging."""
        return self.name != self.source


def convolve_before_resizing(model: ModelProto) -> None:
    """Rewrite ``model``, whose shapes are inferred, in place."""
    step = _ConvolvedFirst(model)
    if any(map(step.parts, model.graph.node)):
        step.run()


class _ConvolvedFirst(Step):
    def replaced(self, node: NodeProto) -> bool:
        """Append the convolutions of the parts of ``node`` and their sum."""
        parts = self.parts(node)
        weight = self.array(node.input[1]) if parts else None
        if weight is None:
            return False
        bias = [str(name) for name in node.input[2:] if name]
        total = ""
        for group in _convolved_together(parts):
            own = self.const(weight[:, group[0].channels[0] : group[-1].channels[1]])
            if group[0].is_moved:
                image = self._enlarged(group[0], self._convolved(group[0].source, own))
            else:
                image = self._convolved(self._joined(group), own, *bias)
                bias = []
            total = self.op("Add", total, image) if total else image
        if bias:
            shaped = self.reshape(bias[0], 1, -1, *[1] * (weight.ndim - 2))
            total = self.op("Add", total, shaped)
        self.called("Identity", [total], node.output[0])
        return True

    def parts(self, node: NodeProto) -> list[_Part]:
        """The images that ``node`` reads, if it convolves single pixels and some are worth moving; else nothing."""
        if not self._reads_pixels(node):
            return []
        image = str(node.input[0])
        joined = self.makers.get(image)
        rank = len(self.scope.shapes[node.input[1]])
        is_joined = joined is not None and joined.op_type == "Concat" and attributes_of(joined)["axis"] % rank == 1
        names = [str(name) for name in joined.input] if joined is not None and is_joined else [image]
        shapes = [self.scope.shapes.get(name) for name in names]
        readers = self.readers(image)
        if None in shapes or readers is None or not all(map(self._reads_pixels, readers)):
            return []
        filters = self.scope.shapes[node.input[1]][0]
        ends = list(accumulate((shape[1] for shape in shapes if shape), initial=0))
        parts = []
        for name, first, last in zip(names, ends, ends[1:], strict=False):
            only = not is_joined or self.only_reader(name) is joined
            source = self._source(name) if only else name
            parts.append(_Part(name, source if self._is_worth(name, source, filters) else name, (first, last)))
        return parts if any(part.is_moved for part in parts) else []

    def _reads_pixels(self, node: NodeProto) -> bool:
        """Whether ``node`` is a convolution in fp32 by a constant weight whose filters have one tap."""
        if node.op_type != "Conv" or node.domain or node.input[1] not in self.scope.tensors:
            return False
        weight, attributes = self.scope.shapes[node.input[1]], attributes_of(node)
        steps = (*attributes.get("strides", ()), *attributes.get("dilations", ()))
        plain = attributes.get("group", 1) == 1 and not any(attributes.get("pads", ())) and set(steps) <= {1}
        return plain and set(weight[2:]) == {1} and self.scope.types.get(node.input[0]) == TensorProto.FLOAT

    def _is_worth(self, name: str, source: str, filters: int) -> bool:
        pixels, before = (math.prod(self.scope.shapes[image][2:]) for image in (name, source))
        channels = self.scope.shapes[name][1]
        grown = pixels >= LEAST_GROWTH * before
        return grown and channels >= FEWEST_CHANNELS and filters <= MOST_GROWN * channels

    def _source(self, name: str) -> str:
        """The image that ``name`` is made of by what treats all channels alike, pixel by pixel; ``name`` if none."""
        known: dict[str, str] = {}

        def source(value: str) -> str:
            if value not in known:
                data = self._data(value)
                sources = {source(image) for image in data}
                known[value] = sources.pop() if len(sources) == 1 else value
            return known[value]

        return source(name)

    def _data(self, name: str) -> list[str]:
        """The images that ``name`` is a linear function of, the same one for every channel; none if it is not."""
        node, shape = self.makers.get(name), self.scope.shapes.get(name)
        if node is None or node.domain or shape is None or len(shape) < 3:
            return []
        inputs = [str(operand) for operand in node.input]
        if node.op_type == "Gather":
            picks, axis = self.array(inputs[1]), attributes_of(node).get("axis", 0) % len(shape)
            return inputs[:1] if picks is not None and picks.ndim == 1 and axis >= 2 else []
        data = [operand for operand in inputs if not self.is_constant(operand)]
        if any(self.scope.shapes.get(image) != shape for image in data):
            return []
        if node.op_type == "Add" and len(data) == 2:
            return data
        factors = [self.array(operand) for operand in inputs if self.is_constant(operand)]
        alike = all(factor is not None and _is_same_by_channel(factor, len(shape)) for factor in factors)
        return data if node.op_type == "Mul" and len(data) == 1 and alike else []

    def _joined(self, parts: Sequence[_Part]) -> str:
        names = [part.name for part in parts]
        if len(names) == 1:
            return names[0]
        shape = list(self.scope.shapes[names[0]])
        shape[1] = parts[-1].channels[1] - parts[0].channels[0]
        joined = self.concat(names, 1)
        self.declare(joined, shape, TensorProto.FLOAT)
        return joined

    def _convolved(self, image: str, weight: str, *bias: str) -> str:
        result = self.op("Conv", image, weight, *bias, kernel_shape=list(self.scope.shapes[weight][2:]))
        shape = self.scope.shapes[image]
        self.declare(result, (shape[0], self.scope.shapes[weight][0], *shape[2:]), TensorProto.FLOAT)
        return result

    def _enlarged(self, part: _Part, image: str) -> str:
        """The image that ``part`` would be if its source were ``image``."""
        images = {part.source: image}

        def enlarged(value: str) -> str:
            if value not in images:
                node, data = self.makers[value], self._data(value)
                inputs = [enlarged(str(name)) if name in data else str(name) for name in node.input]
                images[value] = self.op(node.op_type, *inputs, **attributes_of(node))
            return images[value]

        return enlarged(part.name)


def _convolved_together(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield each enlarged part alone, and neighbours of the others together."""
    for is_moved, group in groupby(parts, key=lambda part: part.is_moved):
        members = list(group)
        yield from ([part] for part in members) if is_moved else [members]


def _is_same_by_channel(factor: Array, rank: int) -> bool:
    """Whether ``factor`` broadcasts along the channels, and the images, of a tensor of ``rank`` axes."""
    sizes: Sequence[int] = (*[1] * (rank - factor.ndim), *factor.shape)
    return set(sizes[:2]) == {1} and bool(np.isfinite(factor).all())
