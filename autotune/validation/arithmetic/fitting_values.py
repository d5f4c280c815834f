"""Values for inputs that are sizes, shapes or indices: random numbers in them rarely make a valid call."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.validation.arithmetic.model_work import value_shapes

MOST_NUMBERS = 16
"""Numbers in an input up to which it may be a list of sizes; a longer one holds indices."""

MOST_TOGETHER = 4
"""Candidates of an input that are combined with each candidate of the others. Heuristic, not measured."""

MOST_FEEDS = 200
"""Feeds that are tried. Heuristic, not measured."""

MOST_FILLING = 20
"""Feeds that are tried if the model runs the random one, with an empty output. Heuristic, not measured."""

SAME_VALUES = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators whose first output has the numbers of their first input, in their order."""

NUMBERS = ("1", "-2", "0", "30")
"""Texts that inputs of strings are filled with where others make no call."""

MOST_S = 20.0
"""Seconds after which no further feed is tried. Heuristic, not measured."""

Feed = dict[str, NDArray[Any]]

Outputs = Sequence[Any]

Sizes = tuple[int, ...]


class Reader(NamedTuple):
    """A node that reads an input as a list of sizes.

    Attributes:
        input: position among the node's inputs.
        start: position of the graph input's first number in what the node reads.
        length: numbers that the node reads.
        data: sizes of the node's first input; an unknown one is 1.
        axes: that the sizes belong to.
    """

    node: onnx.NodeProto
    input: int
    start: int
    length: int
    data: Sizes
    axes: Sizes


def fitting_feed(
    model: onnx.ModelProto, feed: Feed, run: Callable[[Feed], Outputs | None], runs: bool = False
) -> Feed | None:
    """``feed`` with values of inputs that may be sizes or indices with which the model runs; None if none does.

    The first feed of which no output is empty; else the first that the model runs.

    Args:
        model: its shapes fixed.
        run: returns the model's outputs on a feed; None if it refuses that.
        runs: whether the model runs ``feed`` itself: then only a feed of which no output is empty is better.
    """
    end = time.monotonic() + MOST_S
    fitting: Feed | None = None
    feeds = itertools.islice(_feeds(model, feed, runs), MOST_FILLING if runs else MOST_FEEDS)
    for other in itertools.takewhile(lambda _: time.monotonic() < end, feeds):
        outputs = run(other)
        if outputs is not None and is_filled(outputs):
            return other
        fitting = other if fitting is None and outputs is not None and not runs else fitting
    return fitting


def is_filled(outputs: Outputs) -> bool:
    """Return whether every tensor among ``outputs`` has elements, so that comparing them says something."""
    return all(output.size for output in outputs if isinstance(output, np.ndarray))


def assumed_values(feed: Feed, fitting: Feed) -> str:
    """The line that says which inputs of ``fitting`` have other values than in ``feed``."""
    changed = [name for name, array in fitting.items() if not np.array_equal(array, feed[name])]
    values = ", ".join(f"{name!r} = {_shown(fitting[name])}" for name in changed)
    return (
        f"random values make no call with a result; the model is verified and timed with {values}; for other values "
        "make these inputs constants of the model"
    )


def _shown(array: NDArray[Any]) -> str:
    """The numbers of a short array; how they lie of a longer one."""
    if array.size > MOST_NUMBERS and array.dtype.kind != "O":
        return f"{array.size:,} numbers from {array.min():.3g} to {array.max():.3g}"
    return " ".join(np.array2string(array, separator=", ", threshold=MOST_NUMBERS).split())


def _feeds(model: onnx.ModelProto, feed: Feed, runs: bool) -> Iterator[Feed]:
    """Copies of ``feed`` with other values than it has, the likely ones first."""
    yield from _sized_feeds(model, feed)
    floats = {name: array for name, array in feed.items() if array.dtype.kind == "f"}
    if runs or not floats:
        return
    # A Cast may make indices of them.
    yield {**feed, **{name: array - np.floor(array) for name, array in floats.items()}}
    yield {**feed, **{name: np.zeros_like(array) for name, array in floats.items()}}


def _sized_feeds(model: onnx.ModelProto, feed: Feed) -> Iterator[Feed]:
    """Copies of ``feed`` with other values of inputs that are sizes, indices or texts."""
    walk = _Walk(model)
    candidates = {name: walk.candidates(name, array) for name, array in feed.items()}
    candidates = {name: arrays for name, arrays in candidates.items() if arrays}
    if not candidates:
        return
    longest = max(map(len, candidates.values()))
    alike = ([arrays[min(at, len(arrays) - 1)] for arrays in candidates.values()] for at in range(longest))
    mixed = itertools.product(*(arrays[:MOST_TOGETHER] for arrays in candidates.values()))
    for arrays in itertools.chain(alike, mixed):
        changed = dict(zip(candidates, arrays, strict=True))
        if any(not np.array_equal(array, feed[name]) for name, array in changed.items()):
            yield {**feed, **changed}


class _Walk:
    """The readers of the inputs of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._nodes = list(walk_nodes(model.graph.node))
        self._shapes = {name: tuple(size or 1 for size in sizes) for name, sizes in value_shapes(model).items()}
        small = (tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= MOST_NUMBERS)
        self._constants = {tensor.name: tensor for tensor in small if not uses_external_data(tensor)}

    def candidates(self, name: str, drawn: NDArray[Any]) -> list[NDArray[Any]]:
        """Arrays to try for the input ``name``; none for one that holds no sizes, indices or texts.

        Args:
            drawn: its random values.
        """
        if drawn.dtype.kind == "O":  # texts, which a Cast may read as numbers
            return [np.resize(np.array(NUMBERS, object), drawn.shape)]
        readers = list(self._readers(name, 0, drawn.size))
        if drawn.dtype.kind == "f":
            if any(reader.node.op_type == "NonMaxSuppression" and reader.input > 2 for reader in readers):
                return [np.full(drawn.shape, share, drawn.dtype) for share in (0.5, 0.0)]
            readers = [reader for reader in readers if reader.node.op_type in ("Resize", "Upsample") and reader.input]
            lists = [_sizes(reader, drawn.size) for reader in readers if drawn.size <= MOST_NUMBERS]
        elif drawn.dtype not in (np.int32, np.int64):
            return []
        elif drawn.size > MOST_NUMBERS:
            lists = [[[0] * drawn.size]]
        else:
            lists = [_sizes(reader, drawn.size) for reader in readers]
            lists += [[[number] * drawn.size for number in (0, 1, 2, 4)], [[*range(drawn.size)]]]
            lists += [[list(shape)] for shape in dict.fromkeys(self._shapes.values()) if len(shape) == drawn.size]
            if not any(map(len, lists[: len(readers)])):
                lists = [[drawn.reshape(-1).tolist()], *lists]  # it is read as no size: the values may be right
        distinct = dict.fromkeys(tuple(sizes) for sizes in itertools.chain.from_iterable(lists))
        return [np.array(sizes, drawn.dtype).reshape(drawn.shape) for sizes in distinct]

    def _readers(self, name: str, start: int, count: int, depth: int = 0) -> Iterator[Reader]:
        """Nodes that read ``name``, also behind operators that only move its numbers."""
        for node in self._nodes if depth < MOST_NUMBERS else ():
            for number in [number for number, value in enumerate(node.input) if value == name]:
                if node.op_type in SAME_VALUES and number == 0:
                    yield from self._readers(node.output[0], start, count, depth + 1)
                elif node.op_type == "Concat":
                    lengths = [math.prod(self._shapes.get(value, (1,))) for value in node.input]
                    begin = start + sum(lengths[:number])
                    yield from self._readers(node.output[0], begin, max(sum(lengths), begin + count), depth + 1)
                else:
                    data = self._shapes.get(node.input[0], ())
                    yield Reader(node, number, start, count, data, self._axes(node, count, len(data)))

    def _axes(self, node: onnx.NodeProto, count: int, rank: int) -> Sizes:
        """The axes that ``node`` works on, as far as they are constants; else the first ones."""
        named = [attribute for attribute in node.attribute if attribute.name in ("axis", "axes")]
        axes = [axis for attribute in named for axis in (attribute.ints or [attribute.i])]
        place = {"Slice": 3, "Pad": 3, "DFT": 2}.get(node.op_type, len(node.input))
        if len(node.input) > place and (constant := self._constants.get(node.input[place])) is not None:
            axes = numpy_helper.to_array(constant).reshape(-1).tolist()
        axes = axes or {"TopK": [-1], "DFT": [1]}.get(node.op_type, [*range(count)])
        return tuple(axis % rank for axis in axes if rank)


Lists = list[list[int]]


def _sizes(reader: Reader, count: int) -> Lists:
    """The ``count`` numbers of an input that its reader would take, most likely ones first."""
    kind = reader.node.op_type
    role = ROLES.get((kind, reader.input))
    if role is None and kind.startswith("Reduce"):
        role = _axes_in_order
    lists = role(reader) if role is not None else []
    cut = (sizes[reader.start : reader.start + count] for sizes in lists)
    return [sizes for sizes in cut if len(sizes) == count]


def _own(reader: Reader) -> Lists:
    """The sizes of the data along the axes."""
    whole = [reader.data[axis] for axis in reader.axes if axis < len(reader.data)]
    return [whole, [max(1, size // 2) for size in whole]]


def _target(reader: Reader) -> Lists:
    """Shapes that the data can be brought to."""
    data, count = [*reader.data], reader.length
    fewer = len(data) - count
    if fewer <= 0:
        return [[*data, *[1] * -fewer], [*[1] * -fewer, *data]]
    if not count:
        return []
    return [
        [math.prod(data[: fewer + 1]), *data[fewer + 1 :]],
        [*data[: count - 1], math.prod(data[count - 1 :])],
    ]


def _shares(reader: Reader) -> Lists:
    """An axis in parts that are as long as each other, but for the last."""
    size = reader.data[reader.axes[0]] if reader.axes and reader.data else reader.length
    part = size // reader.length if reader.length else 0
    return [[*[part] * (reader.length - 1), size - part * (reader.length - 1)]]


def _axes_in_order(reader: Reader) -> Lists:
    ones = [axis for axis, size in enumerate(reader.data) if size == 1]
    return [ones[: reader.length] if reader.node.op_type == "Squeeze" else [*range(reader.length)]]


def _region(reader: Reader) -> Lists:
    half = reader.length // 2
    return [[*[0] * half, *[1] * half]]


def _all_steps(reader: Reader) -> Lists:
    """The length of all sequences of recurrent layers."""
    return [[reader.data[0]] * reader.length] if reader.data else []


def _of(*numbers: int) -> Callable[[Reader], Lists]:
    """Lists of one number."""
    return lambda reader: [[number] * reader.length for number in numbers]


ROLES: Mapping[tuple[str, int], Callable[[Reader], Lists]] = {
    ("CenterCropPad", 1): _own,
    ("ConstantOfShape", 0): _of(2, 1),
    ("DFT", 1): _own,
    ("Expand", 1): _target,
    ("Gather", 1): _of(0),
    ("GatherElements", 1): _of(0),
    ("GatherND", 1): _of(0),
    ("Loop", 0): _of(2),
    ("NonMaxSuppression", 2): _of(3),
    ("OneHot", 1): _of(4, 2),
    ("Pad", 1): _of(0, 1),
    ("Pad", 3): _axes_in_order,
    ("Range", 0): _of(0),
    ("Range", 1): _of(4, 1),
    ("Range", 2): _of(1),
    ("Reshape", 1): _target,
    ("Resize", 1): _region,
    ("Resize", 2): _of(1),
    ("Resize", 3): _own,
    ("ReverseSequence", 1): _of(1),
    ("ScatterElements", 1): _of(0),
    ("ScatterND", 1): _of(0),
    ("Slice", 1): _of(0),
    ("Slice", 2): _own,
    ("Slice", 3): _axes_in_order,
    ("Slice", 4): _of(1),
    ("Split", 1): _shares,
    ("SplitToSequence", 1): _shares,
    ("Squeeze", 1): _axes_in_order,
    ("Tile", 1): _of(1, 2),
    ("TopK", 1): lambda reader: [*reversed(_own(reader)), [1] * reader.length],
    ("Unsqueeze", 1): _axes_in_order,
    ("Upsample", 1): _of(1),
    **dict.fromkeys((("GRU", 4), ("LSTM", 4), ("RNN", 4)), _all_steps),
}
"""(Operator, position of an input) → lists of numbers that a call may hold there."""
