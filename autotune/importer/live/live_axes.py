"""The graph is followed to find which part of every value counts, if only the first entries of an open size do.

A convolution with a stride of two leaves ⌈n ÷ 2⌉ positions of n, and an image that is reshaped to (1, 16 · n) has n
positions in each of 16 rows. So the axes of every value are followed from the inputs on, by the sizes that ONNX's
inference finds for the model at several sizes, and by what windows, reshapes and slices do. A value is left out if its
axes do not fit at one of these sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from autotune.importer.conversion.flat_model import flatten
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.rewriting.emit import Node
from autotune.interface import Axis, Extent, Joined, Part, axis_size, axis_symbols
from schedules.vocabulary.errors import ModelError

Ints = NDArray[np.int64]

OpenShapes = tuple[tuple[str, tuple[int | str, ...]], ...]
"""Names and shapes of inputs, in which an open size is a symbol."""

STRIDES = (1, 2, 4, 8, 16, 32, 64)
"""A model is looked at where its sizes are multiples of these, tried in turn: many take multiples of one alone.
Heuristic, not measured."""

FAR = (0.5, 0.25, 0.375, 0.125)
"""Shares by which the first sizes of a model are below those of its set at one of the looks. Heuristic, not
measured: they only have to differ."""

Axes = tuple[Axis, ...]


def is_open(axis: Axis) -> bool:
    """Return whether some part of an axis follows an open size."""
    return bool(axis_symbols(axis))


def followed_axes(
    load: Callable[[Mapping[str, int]], ModelProto], shapes: OpenShapes, sizes: Mapping[str, int]
) -> dict[str, Axes]:
    """Return the axes of every value of the flattened model that are followed; values of which one is not are left out.

    Args:
        load: loads the model at sizes by symbol.
        shapes: of its inputs.
        sizes: by symbol, of the set of shapes that the model is loaded for.

    Raises:
        ModelError: if the model cannot be loaded at ``sizes``.
    """
    first = flatten(load(sizes))
    for fixed in (False, True):
        for stride in STRIDES:
            others = [_smaller(sizes, stride, far, fixed) for far in (True, False)]
            try:
                models = [first, *(flatten(load(other)) for other in others)]
            except ModelError:  # the model does not take such sizes
                continue
            known = [Scope(model).shapes for model in models]
            return _Follower(Scope(first), known, [sizes, *others], shapes).axes
    return {}


def _smaller(sizes: Mapping[str, int], stride: int, far: bool, fixed: bool) -> dict[str, int]:
    """Sizes below ``sizes`` by multiples of ``stride``, each by another share or number.

    Two sizes that grew alike at all looks would be taken for one another. Tables of positions may end behind
    ``sizes``, so others are smaller; a size that has none below grows.

    Args:
        far: whether they are below by the shares ``FAR``.
        fixed: whether a size of 1 stays, as a batch does in graphs for one row.
    """
    other = {}
    for number, (symbol, size) in enumerate(sizes.items()):
        share = FAR[number % len(FAR)] if far else 0
        less = stride * (int(share * size) // stride + 1 + (number // len(FAR) if far else number))
        other[symbol] = size if fixed and size == 1 else size - less if size > less else size + less
    return other


class _Follower:
    """The axes of the values of one model, found in the order of its nodes."""

    def __init__(
        self,
        scope: Scope,
        known: Sequence[Mapping[str, tuple[int, ...]]],
        looks: Sequence[Mapping[str, int]],
        shapes: OpenShapes,
    ) -> None:
        self._scope, self._known, self._looks = scope, known, looks
        self._by_sizes: dict[tuple[int, ...], Axis] = {}
        self.axes: dict[str, Axes] = {}
        for name, shape in shapes:
            axes: Axes = tuple((Extent(size) if isinstance(size, str) else size,) for size in shape)
            if self._fits(name, axes):
                self._keep(name, axes)
        for proto in scope.graph.node:
            node = Node(proto, scope)
            for output in proto.output:
                own = self._of(node, output) if output else None
                if own is not None and self._fits(output, own):
                    self._keep(output, own)

    def _keep(self, name: str, axes: Axes) -> None:
        self.axes[name] = axes
        for axis in axes:
            if len(axis) == 1 and is_open(axis):
                self._by_sizes.setdefault(tuple(self._sizes(axis)), axis)

    def _sizes(self, axis: Axis) -> Ints:
        return np.array([axis_size(axis, sizes) for sizes in self._looks])

    def _fits(self, name: str, axes: Axes) -> bool:
        columns = self._columns(name)
        return columns is not None and len(columns) == len(axes) and all(map(self._is, axes, columns))

    def _is(self, axis: Axis, column: Ints) -> bool:
        return bool((self._sizes(axis) == column).all())

    def _columns(self, name: str) -> list[Ints] | None:
        """The sizes of each axis of a value at all looks; None if they are not known, or the value's rank changes."""
        shapes = [known.get(name) for known in self._known]
        if any(shape is None for shape in shapes) or len({len(shape or ()) for shape in shapes}) != 1:
            return None
        return [np.array(column) for column in zip(*(shape or () for shape in shapes), strict=True)]

    def _of(self, node: Node, output: str) -> Axes | None:
        """The axes of what ``node`` makes; None if one is not followed."""
        columns = self._columns(output)
        if columns is None:
            return None
        if node.kind in RESHAPES:
            source = self._source(node.input(0))
            return None if source is None else _split(source, columns, self._sizes)
        axes = []
        for number, column in enumerate(columns):
            axis = self._axis(node, number, len(columns), column)
            if axis is None:
                return None
            axes.append(axis)
        return tuple(axes)

    def _source(self, name: str) -> Axes | None:
        """The axes of a value that is read, of constants too."""
        if name in self.axes:
            return self.axes[name]
        columns = self._columns(name)
        if columns is None or any(len(set(column.tolist())) > 1 for column in columns):
            return None
        return tuple((int(column[0]),) for column in columns)

    def _axis(self, node: Node, number: int, rank: int, column: Ints) -> Axis | None:
        """Axis ``number`` of ``rank`` of what ``node`` makes, which has these sizes."""
        rule = RULES.get(node.kind)
        own = self.axes.get(node.input(0), ())
        if rule is not None and len(own) == rank and len(own[number]) == 1:
            (part,) = own[number]
            growth = rule(node, number, self) if isinstance(part, Extent) else None
            if isinstance(part, Extent) and growth is not None:
                axis: Axis = (Extent(part.symbol, part.growth.then(*growth)),)
                if self._is(axis, column):
                    return axis
        if node.kind == "Concat" and number == int(node.attr("axis", 0)) % rank:
            return self._joined(node, number, column)
        # A size that is alike at all looks may still follow an open one, as behind many strides.
        fixed = len(set(column.tolist())) == 1
        for name in node.proto.input:
            inputs = self.axes.get(name, ())
            at = number - rank + len(inputs)  # as numbers broadcast
            aligned = inputs[at : at + 1] if at >= 0 else ()
            for axis in aligned if fixed else (*aligned, *inputs):
                if is_open(axis) and self._is(axis, column):
                    return axis
        if fixed:
            return (int(column[0]),)
        return self._by_sizes.get(tuple(column.tolist()))

    def _joined(self, node: Node, number: int, column: Ints) -> Axis | None:
        """The axis along which tensors stand one after the other."""
        sources = [self._source(name) for name in node.proto.input]
        if any(source is None for source in sources):
            return None
        axes = tuple(source[number] for source in sources if source is not None)
        *first, last = axes
        axis: Axis = (Joined(axes),)
        if not any(map(is_open, first)) and len(last) == 1 and isinstance(last[0], Extent):
            before = sum(axis_size(own, self._looks[0]) for own in first)
            axis = (Extent(last[0].symbol, last[0].growth.then(plus=before)),)
        return axis if self._is(axis, column) else None

    def constants(self, node: Node, index: int) -> list[int] | None:
        """The values of a constant input of ``node``; None if it has none."""
        array = node.array(index)
        return None if array is None else [int(value) for value in array.ravel()]

    def change(self, node: Node, number: int) -> int | None:
        """How much longer than the first input the result is along axis ``number``, if as much at all looks."""
        before, after = self._columns(node.input(0)), self._columns(str(node.proto.output[0]))
        if before is None or after is None:
            return None
        change = set((after[number] - before[number]).tolist())
        return int(change.pop()) if len(change) == 1 else None

    def ratio(self, node: Node, number: int) -> tuple[int, int] | None:
        """How many times as long as the first input the result is there, as (times, over), one of them 1."""
        before, after = self._columns(node.input(0)), self._columns(str(node.proto.output[0]))
        if before is None or after is None or not (before[number][0] and after[number][0]):
            return None
        times, over = int(after[number][0] // before[number][0]), int(before[number][0] // after[number][0])
        return (times, 1) if times else (1, over) if over else None


def _split(axes: Axes, columns: Sequence[Ints], sizes: Callable[[Axis], Ints]) -> Axes | None:
    """The parts of ``axes``, in their order, dealt out to axes of these sizes; None if they do not fit."""
    left = [part for axis in axes for part in axis if part != 1]
    dealt = []
    for column in columns:
        missing, own = column.copy(), list[Part]()
        while (missing != 1).any():
            if not left:
                return None
            part = left.pop(0)
            extent = sizes((part,))
            if (extent == 0).any():
                return None
            if isinstance(part, int) and (missing % part).any():
                common = math.gcd(part, *missing.tolist())
                if common == 1:
                    return None
                left.insert(0, part // common)
                part, extent = common, np.full_like(missing, common)
            if (missing % extent).any():
                return None
            missing //= extent
            own.append(part)
        dealt.append(tuple(own) or (1,))
    return None if left else tuple(dealt)


Change = tuple[int, int, int]
"""Times, plus and over of a step of ``Growth``."""


def kernel_of(node: Node) -> list[int] | None:
    """The size of a window along each axis of an image; None if it is not known."""
    weight = 3 if node.kind == "QLinearConv" else 1
    kernel = node.attr("kernel_shape") or (node.known_shape(weight) or ())[2:]
    return [int(size) for size in kernel] or None


def _window(node: Node, number: int, _: _Follower) -> Change | None:
    """The change of windows that move over an image."""
    kernel, at = kernel_of(node), number - 2
    if at < 0 or kernel is None:
        return None
    rank = len(kernel)
    strides, dilations = (node.attr(name, [1] * rank) for name in ("strides", "dilations"))
    pads, auto = node.attr("pads", [0] * 2 * rank), str(node.attr("auto_pad", "NOTSET"))
    stride, reach = int(strides[at]), int(dilations[at]) * (kernel[at] - 1) + 1
    if node.kind == "ConvTranspose":
        more = int(node.attr("output_padding", [0] * rank)[at])
        if auto != "NOTSET" or node.attr("output_shape"):
            return None
        return stride, reach - stride + more - int(pads[at] + pads[at + rank]), 1
    if auto.startswith("SAME"):
        return 1, stride - 1, stride
    around = 0 if auto == "VALID" else int(pads[at] + pads[at + rank])
    if node.attr("ceil_mode", 0):
        return None if around else (1, 2 * stride - 1 - reach, stride)
    return 1, around - reach + stride, stride


def _sliced(node: Node, number: int, follower: _Follower) -> Change | None:
    """The change of a slice: entries before it, some at its end, and those that its steps pass over."""
    rank = len(follower.axes.get(node.input(0), ()))
    starts = node.attr("starts") or follower.constants(node, 1)
    axes = node.attr("axes") or (follower.constants(node, 3) if node.input(3) else None)
    steps = follower.constants(node, 4) if node.input(4) else None
    places = list(range(len(starts or ()))) if axes is None else [int(axis) % rank for axis in axes]
    if starts is None or number not in places:
        return None
    start, step = int(starts[places.index(number)]), 1 if steps is None else steps[places.index(number)]
    if start < 0 or step < 1:
        return None
    change = follower.change(node, number) if step == 1 else step - 1 - start
    return None if change is None else (1, change, step)


def _padded(node: Node, number: int, follower: _Follower) -> Change | None:
    """The change of a border of one number, or of the last ones."""
    change = follower.change(node, number)
    return None if change is None or str(node.attr("mode", "constant")) not in ("constant", "edge") else (1, change, 1)


def _resized(node: Node, number: int, follower: _Follower) -> Change | None:
    """The change of a size that is multiplied or divided."""
    ratio = follower.ratio(node, number)
    return None if ratio is None else (ratio[0], 0, ratio[1])


RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that leave the order of all numbers as it is."""

WINDOWED = frozenset({"AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv"})
"""Operators that move a window over an image."""

RULES: Mapping[str, Callable[[Node, int, _Follower], Change | None]] = {
    **dict.fromkeys(WINDOWED, _window),
    "Slice": _sliced,
    "Pad": _padded,
    **dict.fromkeys(("DepthToSpace", "Resize", "SpaceToDepth", "Upsample"), _resized),
}
"""Operator → the step by which an axis of its first input becomes that of its result; others copy an axis of an
input."""
