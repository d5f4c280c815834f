"""Products and convolutions take in what scales or shifts their columns or channels by constants.

conv(x, W) · a + b  →  conv(x, W · a) + b            batch norms, scales and shifts per channel
x @ W + b           →  Gemm(x, W, b)                 of more than two axes between reshapes
Gemm(x, W, c) · a   →  Gemm(x, W · a, c · a)         behind a reshape that keeps columns, too
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.importer.fusion.fusion_graph import Factor, FusionScope, scope_of
from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Array
from autotune.importer.rewriting.emit import HALVES, Emit, Node
from autotune.importer.rewriting.registry import fuses
from autotune.importer.rewriting.step import Step

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, *HALVES)
"""Element types whose biases are moved, and whose weights are scaled unless they would lose digits."""

LARGEST = 2.0**60
"""Largest factor that weights are multiplied by: a heuristic guard against overflow."""

ROUNDS = 2.0**16
"""A shift of at least this much is added by itself, since it rounds: (x + b) − b is x to the spacing of floats near b.
A heuristic bound: exporters round to integers with 1.5 · 2^23."""


@dataclass(frozen=True)
class Affine:
    """y = x · scale + shift, where y has the shape of x.

    Attributes:
        data: name of x.
        scale, shift: double precision, of the rank of x, each axis as long as that of x or 1; None for 1 and 0.
    """

    data: str
    scale: Factor | None
    shift: Factor | None

    def along(self, axis: int) -> bool:
        """Return whether scale and shift are the same along all axes but ``axis``."""
        return all(factor is None or factor.size == factor.shape[axis] for factor in (self.scale, self.shift))


def affine_of(node: Node) -> Affine | None:
    """Return the affine function by constants that ``node`` computes, if it keeps its data's shape and type."""
    if node.kind == "BatchNormalization":
        return _normalised(node)
    scope = node.scope
    position = 1 if node.input(0) not in scope.tensors else 0
    data, other = node.input(1 - position), node.input(position)
    shape, result = scope.shapes.get(data), scope.shapes.get(node.proto.output[0])
    if other not in scope.tensors or data in scope.tensors or not shape or shape != result:
        return None
    sizes = scope.shapes[other]
    if scope.types.get(data) not in FLOATS or math.prod(sizes) > max(shape) or (node.kind == "Div" and position == 0):
        return None
    array = scope.array(other)
    assert array is not None
    value = array.astype(np.float64).reshape(*[1] * (len(shape) - len(sizes)), *sizes)
    if node.kind == "Mul":
        return _affine(data, value, None)
    if node.kind == "Div":
        return _affine(data, 1 / value, None) if value.all() else None
    if node.kind == "Add":
        return _affine(data, None, value)
    return _affine(data, None, -value) if position == 1 else _affine(data, -np.ones([1] * len(shape)), value)


def _affine(data: str, scale: Factor | None, shift: Factor | None) -> Affine | None:
    """An ``Affine`` of finite numbers, else None."""
    sound = all(factor is None or np.isfinite(factor).all() for factor in (scale, shift))
    return Affine(data, scale, shift) if sound and (scale is None or abs(scale).max(initial=0) < LARGEST) else None


def _normalised(node: Node) -> Affine | None:
    """A batch norm by constants; of one that is trained, or gives its statistics, None."""
    parameters = [node.array(index) for index in range(1, 5)]
    shape = node.known_shape(0)
    is_plain = not node.attr("training_mode", 0) and node.attr("spatial", 1) and not any(map(node.wants, range(1, 5)))
    if not is_plain or not shape or len(shape) < 2 or node.type(0) not in FLOATS:
        return None
    known = [
        parameter.astype(np.float64)
        for parameter in parameters
        if parameter is not None and parameter.shape == (shape[1],)
    ]
    if len(known) < 4:
        return None
    scale, bias, mean, variance = known
    spread = variance + float(node.attr("epsilon", 1e-5))
    if (spread <= 0).any():
        return None
    factor = scale / np.sqrt(spread)
    axes = 1, -1, *[1] * (len(shape) - 2)
    return _affine(node.input(0), factor.reshape(axes), (bias - mean * factor).reshape(axes))


AFFINE = ("Add", "Div", "Mul", "Sub")


@fuses("BatchNormalization", *AFFINE)
def into_convolution(node: Node, e: Emit) -> list[str] | None:
    """An affine function of each channel behind a convolution goes into its weight and bias."""
    scope, step = scope_of(node), affine_of(node)
    conv = None if step is None else scope.only_for(step.data, "Conv", "ConvTranspose")
    if step is None or conv is None or not step.along(1):
        return None
    weight = conv.input(1)
    channels = scope.shapes[step.data][1]
    numbers = (step.scale, step.shift)
    scale, shift = (None if factor is None else np.broadcast_to(factor.ravel(), channels) for factor in numbers)
    offset = _moved(conv, scale, shift)
    if offset is None:
        return None
    if scale is not None:
        scaled = _scaled(scope, weight, _per_weight(conv, scale))
        if scaled is None:
            return None
        weight = scaled
    return [written(e, conv, [conv.input(0), weight, *([e.const(offset)] if offset.size else [])])]


def _per_weight(conv: Node, scale: Factor) -> Factor:
    """One factor per channel of a result, in the shape of the weights that make it."""
    shape = conv.shape(1)
    ones = [1] * (len(shape) - 2)
    if conv.kind == "Conv":
        return scale.reshape(-1, 1, *ones)
    groups = int(conv.attr("group", 1))
    return np.repeat(scale.reshape(groups, shape[1]), shape[0] // groups, axis=0).reshape(*shape[:2], *ones)


def _scaled(scope: FusionScope, weight: str, factor: Factor) -> str | None:
    """The constant ``weight`` times ``factor``; None where it is none, or halves would lose digits.

    Those of bfloat16, which has few, always would.
    """
    kind = scope.types.get(weight)
    if not scope.is_weight(weight) or kind not in FLOATS or kind == TensorProto.BFLOAT16:
        return None
    if kind == TensorProto.FLOAT16:
        exact = scope.weight(weight).astype(np.float64) * factor
        with np.errstate(over="ignore"):
            rounded = exact.astype(np.float16).astype(np.float64)
        if not np.allclose(rounded, exact, rtol=2.0**-10, atol=0):
            return None
    return scope.scaled(weight, factor)


def _moved(product: Node, scale: Factor | None, shift: Factor | None, beta: float = 1.0) -> Array | None:
    """``beta`` · bias · scale + shift, where the bias of ``product`` is its third input.

    Empty where there is neither bias nor shift; None where the bias is no constant, the result is too large, or one
    of both rounds.
    """
    scope, bias, dtype = scope_of(product), product.input(2), product.dtype(0)
    value = np.zeros(()) if bias or shift is not None else np.zeros(0)
    if bias:
        if not scope.is_weight(bias) or scope.types.get(bias) not in FLOATS:
            return None
        value = beta * scope.weight(bias).astype(np.float64) * (1.0 if scale is None else scale)
    if shift is not None:
        if _rounds(value, shift):
            return None
        value = value + shift
    with np.errstate(over="ignore"):
        offset = value.astype(dtype)
    return offset if np.isfinite(offset).all() else None


def _rounds(shift: Factor, other: Factor) -> bool:
    """Return whether one of two shifts that follow each other rounds what it is added to."""
    return bool(((np.maximum(abs(shift), abs(other)) >= ROUNDS) & (shift != 0) & (other != 0)).any())


def written(e: Emit, node: Node, inputs: list[str], **attributes: object) -> str:
    """``node`` on other inputs, with its name and its attributes as far as ``attributes`` does not replace them."""
    kept = attributes_of(node.proto)
    output = e.op(node.kind, *inputs, **{**kept, **attributes})
    e.nodes[-1].name = node.name
    return output


def split_batch_norms(model: ModelProto) -> None:
    """Make inference batch norms that no convolution took in one ``Mul`` and one ``Add`` by channel, in place.

    What scales or shifts their results by constants joins in, as Caffe's scale layers do: (x·a + b)·c + d =
    x·(ac) + (bc + d). Folded in double precision.
    """
    if any(node.op_type == "BatchNormalization" for node in model.graph.node):
        _Norms(model).run()


class _Norms(Step):
    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self._joined: set[str] = set()

    def replaced(self, node: NodeProto) -> bool:
        """Append a product and a sum in the place of ``node`` and of what scales or shifts it."""
        if node.output[0] in self._joined:
            return True
        step = affine_of(Node(node, self.scope)) if node.op_type == "BatchNormalization" else None
        if step is None or step.scale is None or step.shift is None:
            return False
        result, scale, shift = str(node.output[0]), step.scale, step.shift
        while (reader := self.only_reader(result)) is not None and reader.op_type in AFFINE:
            more = affine_of(Node(reader, self.scope))
            if more is None or not more.along(1):
                break
            factor = 1.0 if more.scale is None else more.scale
            if more.shift is not None and _rounds(shift * factor, more.shift):
                break
            result = str(reader.output[0])
            self._joined.add(result)
            scale, shift = scale * factor, shift * factor + (0.0 if more.shift is None else more.shift)
        kind = self.scope.types[step.data]
        wide = TensorProto.FLOAT if kind in HALVES else kind  # x·a and b may be large, their sum small
        dtype = helper.tensor_dtype_to_np_dtype(wide)
        x = step.data if wide == kind else self.cast(step.data, wide)
        a, b = (self.const(array.astype(dtype).reshape(array.shape[1:])) for array in (scale, shift))
        if wide == kind:
            self.called("Add", [self.op("Mul", x, a), b], result)
        else:
            self.called("Cast", [self.op("Add", self.op("Mul", x, a), b)], result, to=kind)
        return True


@fuses("Add")
def product_with_bias(node: Node, e: Emit) -> list[str] | None:
    """A product by a constant matrix and a bias per column → ``Gemm``, between reshapes to a matrix and back."""
    scope = scope_of(node)
    for position in (0, 1):
        product = scope.only_for(node.input(position), "MatMul")
        bias = node.input(1 - position)
        if product is not None and scope.is_weight(bias) and scope.is_weight(product.input(1)):
            return _gemm(product, bias, node, e)
    return None


def _gemm(product: Node, bias: str, node: Node, e: Emit) -> list[str] | None:
    scope = product.scope
    data, weight = product.known_shape(0), product.shape(1)
    product_shape, result = (scope.shapes.get(operator.proto.output[0]) for operator in (product, node))
    if (
        data is None
        or product_shape is None
        or product_shape != result
        or len(data) < 2
        or len(weight) != 2
        or 0 in (*data, *weight)
    ):
        return None
    sizes = scope.shapes[bias]
    if scope.types.get(bias) not in FLOATS or len(sizes) > len(product_shape):
        return None
    if len(data) == 2:
        made_by = e.op("Gemm", product.input(0), product.input(1), bias)
        e.nodes[-1].name = product.name
        return [made_by]
    if math.prod(sizes) != (sizes[-1] if sizes else 1):
        return None
    if scope.types.get(bias) == TensorProto.BFLOAT16:  # its roundings would lie behind the reshape, in another kernel
        return None
    row = bias
    if len(sizes) > 1:
        array = scope.array(bias)
        assert array is not None
        row = e.const(array.reshape(-1))
    rows = math.prod(data[:-1])
    flat = e.reshape(product.input(0), -1, data[-1])
    gemm = e.op("Gemm", flat, product.input(1), row)
    e.nodes[-1].name = product.name
    for name, shape in ((flat, (rows, data[-1])), (gemm, (rows, weight[1]))):
        scope.shapes[name], scope.types[name] = shape, product.type(0)
    return [e.reshape(gemm, *product_shape)]


@fuses(*AFFINE)
def into_gemm(node: Node, e: Emit) -> list[str] | None:
    """An affine function of each column behind a ``Gemm``, perhaps reshaped, goes into its weight and bias."""
    scope, step = scope_of(node), affine_of(node)
    if step is None:
        return None
    view = scope.only_for(step.data, "Reshape")
    gemm = scope.only_for(view.input(0) if view else step.data, "Gemm")
    columns = 0 if gemm is None else scope.shapes.get(str(gemm.proto.output[0]), (0,))[-1]
    if gemm is None or not step.along(-1) or scope.shapes[step.data][-1] != columns:
        return None
    scale, shift = (None if factor is None else factor.ravel() for factor in (step.scale, step.shift))
    weight, offset = gemm.input(1), _moved(gemm, scale, shift, float(gemm.attr("beta", 1.0)))
    if offset is None:
        return None
    if scale is not None:
        turned = bool(gemm.attr("transB", 0))
        scaled = _scaled(scope, weight, scale.reshape((-1, 1) if turned else (1, -1)))
        if scaled is None:
            return None
        weight = scaled
    output = written(e, gemm, [gemm.input(0), weight, *([e.const(offset)] if offset.size else [])], beta=1.0)
    if view is None:
        return [output]
    scope.shapes[output], scope.types[output] = scope.shapes[view.input(0)], scope.types[view.input(0)]
    return [e.op("Reshape", output, view.input(1), **({"allowzero": 1} if view.attr("allowzero", 0) else {}))]
