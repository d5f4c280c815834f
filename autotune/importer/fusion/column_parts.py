"""A product of matrices whose columns go different ways becomes a product for each of the ways.

Attention computes queries, keys and values as one product and takes them apart then:

    x @ W (K, 3·h·d) → reshape (…, 3, h, d) → transpose (3, …, h, d) → gather 0, 1, 2
    →  x @ W[:, columns of part i] → reshape (…, h, d) → transpose (…, h, d)

Taking apart moves every number once or twice. The product of a part lies as it should, products of activations read it
in any order of its axes (``layouts/views.py``), and a scale that follows goes into its weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.step import Step

FEWEST_ROWS = 16
"""Rows of a product from which on it is taken apart. Heuristic: a product of few rows is a stream of weights, beside
which moving its result is little, and another launch is more."""

MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class _Product:
    """A product with a constant weight and perhaps a bias; what takes it apart reads ``value``.

    Attributes:
        x, weight, bias: names of its activations, its weight (K, C) and its bias (C,), "" without.
        turned: whether the weight is (C, K).
        shape: of the value that is taken apart before axes are permuted, its last ``factors`` axes of C numbers.
        perm: order of the axes behind that; None where they are as they were.
    """

    x: str
    weight: str
    turned: bool
    bias: str
    value: str
    shape: tuple[int, ...]
    factors: int
    perm: tuple[int, ...] | None


@dataclass(frozen=True)
class _Take:
    """The origin of one value: places along an axis of a product's value, which stays or goes."""

    value: str
    axis: int
    places: tuple[int, ...]
    stays: bool


@dataclass(frozen=True)
class _Part:
    """A product for what is taken, multiplied by a scale if there is one."""

    product: _Product
    take: _Take
    scale: Array | None


def take_columns_apart(model: ModelProto) -> None:
    """Rewrite ``model``, whose shapes are inferred, in place."""
    step = _TakeApart(model)
    if step.parts:
        step.run()


class _TakeApart(Step):
    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.parts: dict[str, _Part] = {}
        self._passed: set[str] = set()  # what scales made, which are in the weights now
        for node in model.graph.node:
            product = self._product(node)
            parts = None if product is None else self._dealt(product)
            self.parts.update({part.take.value: part for part in parts or ()})

    def replaced(self, node: NodeProto) -> bool:
        """Append the products in the place of ``node``."""
        parts = [self.parts[name] for name in node.output if name in self.parts]
        for part in parts:
            self._write(part)
        is_passed = not parts and bool(node.output) and node.output[0] in self._passed
        if is_passed:
            data = next(name for name in node.input if name not in self.scope.tensors)
            self.called("Identity", [data], node.output[0])
        return bool(parts) or is_passed

    def _product(self, node: NodeProto) -> _Product | None:
        """Return the product that ``node`` computes, up to where it is taken apart."""
        attributes = attributes_of(node)
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in self.scope.tensors:
            return None
        weight = self.scope.shapes[node.input[1]]
        plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
        result = self.scope.shapes.get(node.output[0])
        if len(weight) != 2 or not plain or result is None or self.scope.types[node.input[1]] != TensorProto.FLOAT:
            return None
        columns, bias, value = result[-1], str(node.input[2]) if len(node.input) > 2 else "", str(node.output[0])
        if math.prod(result[:-1]) < FEWEST_ROWS or (bias and not self._is_row(bias, columns)):
            return None
        reader = self.only_reader(value)
        if reader is not None and reader.op_type == "Add" and not bias:
            bias = next((str(name) for name in reader.input if name != value and self._is_row(name, columns)), "")
            value = str(reader.output[0]) if bias else value
        shape, factors, perm = result, 1, None
        reader = self.only_reader(value)
        if reader is not None and reader.op_type == "Reshape":
            value, shape = str(reader.output[0]), self.scope.shapes.get(reader.output[0], ())
            sizes = (count for count in range(2, len(shape)) if math.prod(shape[-count:]) == columns)
            factors = next(sizes, 0)
            reader = self.only_reader(value)
            if reader is not None and reader.op_type == "Transpose":
                value, perm = str(reader.output[0]), tuple(attributes_of(reader).get("perm", ()))
        turned = bool(attributes.get("transB", 0))
        is_known = factors and (perm is None or len(perm) == len(shape))
        product = _Product(node.input[0], node.input[1], turned, bias, value, shape, factors, perm)
        return product if is_known else None

    def _is_row(self, name: str, columns: int) -> bool:
        shape = self.scope.shapes.get(name, ())
        return name in self.scope.tensors and math.prod(shape) == columns == (*shape, 0)[len(shape) - 1]

    def _dealt(self, product: _Product) -> list[_Part] | None:
        """The parts that a product is taken apart into; None unless that is all that is done with it."""
        shape = [product.shape[axis] for axis in product.perm or range(len(product.shape))]
        takes = [self._takes(reader, product.value, shape) for reader in self.readers(product.value) or ()]
        taken = [take for of_reader in takes for take in of_reader or ()]
        if len(taken) < 2 or None in takes or len({take.axis for take in taken}) != 1:
            return None
        axis = taken[0].axis
        along = axis if product.perm is None else product.perm[axis]
        places = [place for take in taken for place in take.places]
        is_factor = along >= len(product.shape) - product.factors
        if not is_factor or len(places) != len(set(places)) or not all(take.places for take in taken):
            return None
        squeezed = [self._squeezed(take, len(shape)) for take in taken]
        return [_Part(product, take, self._scale(take.value)) for take in squeezed]

    def _takes(self, node: NodeProto, value: str, shape: Sequence[int]) -> list[_Take] | None:
        """Return the parts that ``node``, a gather, slice or split of ``value``, takes; None if it is none of them."""
        if node.input[0] != value or any(not name or self.array(name) is None for name in node.input[1:]):
            return None
        numbers = [np.asarray(self.array(name)) for name in node.input[1:]]
        axis = int(attributes_of(node).get("axis", 0)) % len(shape)
        if node.op_type == "Gather" and numbers[0].ndim < 2:
            places = tuple(int(number) % shape[axis] for number in numbers[0].reshape(-1))
            return [_Take(str(node.output[0]), axis, places, numbers[0].ndim == 1)]
        if node.op_type == "Split":
            sizes = [self.scope.shapes.get(name, ())[axis : axis + 1] for name in node.output]
            stops = np.cumsum([0, *(size for dims in sizes for size in dims)]).tolist()
            if len(stops) != len(sizes) + 1 or stops[-1] != shape[axis]:
                return None
            bounds = zip(node.output, pairwise(stops), strict=True)
            return [_Take(str(name), axis, tuple(range(*ends)), True) for name, ends in bounds]
        if node.op_type != "Slice" or len(numbers) < 3 or any(array.size != 1 for array in numbers):
            return None
        start, stop, along, *step = (int(array.reshape(())) for array in numbers)
        along %= len(shape)
        places = tuple(range(shape[along])[start : stop : (*step, 1)[0]])
        return [_Take(str(node.output[0]), along, places, True)]

    def _squeezed(self, take: _Take, rank: int) -> _Take:
        """With the squeeze that follows, if all that does is to drop the axis."""
        reader = self.only_reader(take.value)
        if not take.stays or len(take.places) != 1 or reader is None or reader.op_type != "Squeeze":
            return take
        axes = self.array(reader.input[1]) if len(reader.input) > 1 else None
        if axes is None or [int(axis) % rank for axis in axes.reshape(-1)] != [take.axis]:
            return take
        return replace(take, value=str(reader.output[0]), stays=False)

    def _scale(self, name: str) -> Array | None:
        """The number that all of ``name`` is multiplied by before anything else is done with it but moving it."""
        reader = self.only_reader(name)
        while reader is not None and reader.op_type in MOVES and reader.input[0] == name:
            name = str(reader.output[0])
            reader = self.only_reader(name)
        if reader is None or reader.op_type != "Mul":
            return None
        factor = next((operand for operand in reader.input if operand in self.scope.tensors), "")
        if not factor or math.prod(self.scope.shapes[factor]) != 1:
            return None
        if len(self.scope.shapes[factor]) > len(self.scope.shapes.get(name, ())):
            return None
        self._passed.add(str(reader.output[0]))
        return self.array(factor)

    def _write(self, part: _Part) -> None:
        product, take = part.product, part.take
        along = take.axis if product.perm is None else product.perm[take.axis]
        first = len(product.shape) - product.factors
        numbers = np.arange(math.prod(product.shape[first:])).reshape(product.shape[first:])
        columns = numbers.take(take.places, axis=along - first).reshape(-1)
        value = self.op("MatMul", product.x, self.const(self._columns(product.weight, columns, part, product.turned)))
        if product.bias:
            value = self.op("Add", value, self.const(self._columns(product.bias, columns, part)))
        shape = list(product.shape)
        shape[along : along + 1] = [len(take.places)] if take.stays else []
        if product.factors > 1:
            value = self.reshape(value, *shape)
        if product.perm is not None:
            kept = [axis for axis in product.perm if take.stays or axis != along]
            value = self.transpose(value, *(axis - (not take.stays and axis > along) for axis in kept))
        self.called("Identity", [value], take.value)

    def _columns(self, name: str, columns: Array, part: _Part, turned: bool = False) -> Array:
        """Some columns of a constant (…, C), or rows where it is ``turned``, scaled."""
        array = np.asarray(self.array(name))
        taken = (array.T if turned else array.reshape(-1, array.shape[-1]))[:, columns]
        taken = taken if array.ndim > 1 else taken.reshape(-1)
        return taken if part.scale is None else taken * part.scale.reshape(())
