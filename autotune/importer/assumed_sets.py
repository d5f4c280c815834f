"""The sets of input shapes that a model with open sizes gets where no ``--input`` names any.

A batch has several sets if a row uses most weights of the model once, as in a perceptron, not many times, as in
convolutions. Weights that are used once are read once per row, however fast the kernel; a kernel for several rows reads
them once for all. Nothing is inferred but ranks, and these roughly: a guess costs a set of shapes too many or too few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import onnx.numpy_helper

from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.input_shapes import LENGTHS, assumed_text, guessed_sets, open_batches
from autotune.importer.onnx_model.open_axes import REUSING, mixes_positions
from autotune.importer.onnx_model.shapes import is_fixed, is_known, true_inputs

LEAST_REUSE = 50
"""Multiplications of a row with one weight of a convolution or of a layer over positions. Heuristic, not measured:
convolutions of 7 × 7 results make 49, sentences and patches 16 to 200."""

LAYERS = ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul")
"""Operators of dense layers."""

MOST_AXES = 8
"""Most numbers in a tensor that may be a shape."""

RANK_OF = {"Flatten": 2, "Gemm": 2, "GlobalAveragePool": 4}
"""Rank of the results of operators."""


@dataclass(frozen=True)
class _Value:
    """A tensor, as far as it is known.

    Attributes:
        rank: number of axes, roughly.
        weights: elements of a tensor that does not depend on the inputs; 0 for others.
        last: its last size; 0 if unknown.
        is_folded: whether positions were folded into its rows.
        numbers: values of a small constant of integers, which may be a shape.
    """

    rank: int = 1
    weights: int = 0
    last: int = 0
    is_folded: bool = False
    numbers: tuple[int, ...] = ()


@dataclass
class _Weights:
    """Elements of the weights that a row uses once, and many times."""

    once: int = 0
    often: int = 0
    values: dict[str, _Value] = field(default_factory=dict)
    joined: dict[str, int] = field(default_factory=dict)
    """Result of a ``Concat`` → how many there are in it: an exporter's way to compute a shape."""

    def add(self, node: onnx.NodeProto) -> None:
        """Count the weights of ``node``, and note its results."""
        inputs = [self.values.get(name, _Value()) for name in node.input if name]
        constants = [value for value in inputs if value.weights]
        others = [value for value in inputs if not value.weights]
        if node.op_type == "Constant":
            value = next((_constant_of(attribute) for attribute in node.attribute), _Value(0, 1))
        elif constants and not others:
            value = max(constants, key=lambda value: value.weights)
        else:
            data = max(others, key=lambda value: value.rank, default=_Value())
            largest = max(constants, key=lambda value: value.weights, default=_Value())
            if node.op_type in LAYERS and not data.is_folded and (data.rank == 2 or node.op_type == "Gemm"):
                self.once += largest.weights
            elif node.op_type in LAYERS or node.op_type in REUSING:
                self.often += largest.weights
            value = self._result(node, data, largest)
        if node.op_type == "Concat":
            self.joined.update(dict.fromkeys(node.output, len(node.input)))
        self.values.update({name: value for name in node.output if name})

    def _result(self, node: onnx.NodeProto, data: _Value, largest: _Value) -> _Value:
        """The result of ``node``; ``data`` is its input with most axes, ``largest`` its largest constant."""
        if node.op_type == "Reshape" and len(node.input) > 1:
            target = self.values.get(node.input[1], _Value())
            rank = self.joined.get(node.input[1]) or target.weights or data.rank
            folds = rank == 2 < data.rank and target.numbers[1:] == (data.last,) and data.last > 0
            return replace(data, rank=rank, is_folded=data.is_folded or folds)
        if node.op_type == "Gather" and len(node.input) == 2:
            table, places = (self.values.get(name, _Value()) for name in node.input)
            return _Value(max(1, table.rank + places.rank - 1), last=table.last, is_folded=places.is_folded)
        last = largest.last if node.op_type in LAYERS else data.last
        return replace(data, rank=RANK_OF.get(node.op_type, data.rank), last=last)


def _tensor(tensor: onnx.TensorProto) -> _Value:
    """A constant, of which only the dimensions need be there."""
    numbers: tuple[int, ...] = ()
    is_here = tensor.data_location != onnx.TensorProto.EXTERNAL
    if is_here and tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) <= MOST_AXES:
        try:
            numbers = tuple(map(int, onnx.numpy_helper.to_array(tensor).ravel()))
        except ValueError:  # the import says what is wrong
            numbers = ()
    last = tensor.dims[-1] if tensor.dims else 0
    return _Value(len(tensor.dims), max(1, math.prod(tensor.dims)), last, numbers=numbers)


def _constant_of(attribute: onnx.AttributeProto) -> _Value:
    """The result of a ``Constant`` with this attribute."""
    if attribute.name == "value":
        return _tensor(attribute.t)
    numbers = tuple(attribute.ints)
    return _Value(1, len(numbers), numbers=numbers) if numbers else _Value(0, 1)


def uses_weights_once(graph: onnx.GraphProto) -> bool:
    """Return whether multiplying a row of the inputs with the weights of ``graph`` is mostly reading them.

    Args:
        graph: of a model; weights need not be there, only their dimensions.
    """
    weights = _Weights()
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        weights.values[value.name] = _Value(len(dims), last=dims[-1].dim_value if dims else 0)
    for tensor in graph.initializer:
        weights.values[tensor.name] = _tensor(tensor)
    for node in graph.node:
        weights.add(node)
    return weights.once > LEAST_REUSE * weights.often


POSITIONS = LENGTHS[-1]
"""Positions of a set for short sequences, as of one for a long sequence, which takes as long to build. A call reads all
weights, which takes as long as 32 positions (``traffic.py``)."""

ROWS = (1, 4, 16, 64)
"""Batches of a model whose rows use most weights once. Measured: docs/lab/2026-11-29-any-batch.md."""


def assumed_sets(path: Path, in_batches: bool = True) -> tuple[tuple[Mapping[str, tuple[int, ...]], ...], str]:
    """Return the sets of shapes for a model with open sizes, and the line about them.

    Lengths have several sets, and an open batch alone if a row uses most weights once. Other open sizes, as of images,
    have one. There are none for an open batch of other models, for inputs that are not tensors of numbers, and for a
    model that cannot be read: its import assumes one set or says what is wrong.

    Args:
        in_batches: whether sets of short sequences have several rows. Graphs that were exported for one may not run so.
    """
    model = model_without_weights(path)
    if model is None:
        return (), ""
    values = true_inputs(model.graph)
    if not all(value.type.tensor_type.HasField("shape") for value in values):
        return (), ""
    if any(value.type.tensor_type.elem_type in (0, onnx.TensorProto.STRING) for value in values):
        return (), ""
    sets = guessed_sets(values)
    if len(sets) < 2:
        sets = _batches(model, values, sets[0]) or (sets if _has_other_sizes(values) else [])
    elif in_batches and open_batches(values) == {value.name for value in values} and not mixes_positions(model):
        sets = _short_in_batches(sets)
    if not sets:
        return (), ""
    return tuple(sets), assumed_text(path.name, [v for v in values if not is_fixed(v.type.tensor_type)], sets)


def _short_in_batches(sets: Sequence[Mapping[str, tuple[int, ...]]]) -> list[dict[str, tuple[int, ...]]]:
    """Sets of several short sequences in place of one each: calls leave out rows and positions that they do not have.

    Args:
        sets: of a sequence of each of ``LENGTHS``. The shortest has no set: attention computes 32 rows at a time.
    """
    lengths = zip(LENGTHS[1:], sets[1:], strict=True)
    return [{name: (POSITIONS // n, *shape[1:]) for name, shape in shapes.items()} for n, shapes in lengths]


def _has_other_sizes(values: Sequence[onnx.ValueInfoProto]) -> bool:
    """Return whether more than batches is open: an artifact that has one set leaves these sizes to ONNX Runtime."""
    batched = open_batches(values)
    return any(
        not is_known(dim)
        for value in values
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if axis or value.name not in batched
    )


def _batches(
    model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto], one: Mapping[str, tuple[int, ...]]
) -> list[dict[str, tuple[int, ...]]]:
    """Return a set for each of ``ROWS``, where nothing but the batch is open and several rows share their weights.

    Args:
        one: the shapes of a batch of 1.
    """
    batched = open_batches(values)
    fixed = [value for value in values if value.name not in batched]
    later = [dim for value in values for dim in value.type.tensor_type.shape.dim[1:]]
    if not batched or not all(is_fixed(value.type.tensor_type) for value in fixed) or not all(map(is_known, later)):
        return []
    if not uses_weights_once(model.graph):
        return []
    return [{name: (rows, *shape[1:]) if name in batched else shape for name, shape in one.items()} for rows in ROWS]
