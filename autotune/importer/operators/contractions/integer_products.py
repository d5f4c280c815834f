"""Products of 8-bit integers, summed in int32: activations times int8 weights, all else in one constant behind.

With weights w and zero points a of x and c of w, both integers,

    Σ (x − a)(w − c) = Σ x·w' − a·Σ w',        w' = w − c where that fits int8
                     = Σ x·w' − a·(Σ w' − K·c') − c'·Σ x      else: w' and c' are w and c of int8, K terms in a sum

so the kernel multiplies what is stored, and −a·Σ w' is added once per filter, with the bias. A border of a convolution
holds a, which stands for 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper
from tvm import relax

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import attributes_of, reads
from autotune.importer.onnx_model.scope import Array, Scope
from autotune.importer.onnx_model.shapes import BYTE_LSTM
from autotune.importer.rewriting.registry import Inputs, converts
from autotune.importer.rewriting.relax_values import constant_of, sizes_of, text_of
from schedules.templates.common.movements import BORDER, with_border
from schedules.vocabulary.errors import ModelError

PRODUCTS = ("ConvInteger", "MatMulInteger")

OFFSET = 128
"""How much more a uint8 is than the int8 that stands for the same number."""

EXACT = 1 << 24
"""Whole numbers up to this one are floats."""

MOST_PARTS = 8
"""Parts of a sum of which each is exact in floats. Heuristic, not measured: 2,000 terms of any bytes."""

BIAS = 4
"""Input of a product behind ONNX's own: an int32 constant that is added to the sums."""


def with_biases(model: ModelProto, activations: str) -> ModelProto:
    """``model`` with int32 constants that are added to integer products as their input ``BIAS``, in place.

    Args:
        activations: uint8 or int8, the type that products are to read; their attribute of that name.
    """
    scope, readers = Scope(model), reads(model.graph)
    products = {node.output[0]: node for node in model.graph.node if node.op_type in PRODUCTS}
    kept: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type in (*PRODUCTS, BYTE_LSTM) and not any(
            attribute.name == "activations" for attribute in node.attribute
        ):
            node.attribute.append(helper.make_attribute("activations", activations))
        source = next((name for name in node.input if name in products and readers[name] == 1), "")
        bias = next((name for name in node.input if name in scope.tensors), "")
        if node.op_type == "Add" and source and bias and scope.shapes.get(node.output[0]) == scope.shapes.get(source):
            product = products.pop(source)
            kept.remove(product)
            inputs = [*product.input, *[""] * (BIAS - len(product.input)), bias]
            attributes = attributes_of(product)
            kept.append(helper.make_node(product.op_type, inputs, node.output, product.name, **attributes))
        else:
            kept.append(node)
    replace_nodes(model.graph, kept)
    return model


@converts("MatMulInteger")
def matmul_integer(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Weights of two axes on the right are multiplied as they are stored, other bytes as floats if these are exact."""
    data, right, zero, right_zero, bias = inputs[:5]
    weight = constant_of(right)
    if weight is None or weight.ndim != 2:
        return _plus(bb, _of_activations(bb, (data, _rows(zero, data)), (right, right_zero)), bias)
    data, zero = _of_type(bb, wanted_type(attrs), data, zero)
    form = ByteWeight.of(weight, constant_of(right_zero), 1)
    product = bb.emit(relax.op.matmul(data, relax.const(form.values), out_dtype="int32"))
    sums = form.values.sum(0, dtype=np.int64)
    if form.zero.any():
        product = _less(bb, product, form.zero, relax.op.sum(relax.op.astype(data, "int32"), [-1], keepdims=True))
        sums = sums - len(weight) * form.zero
    return _centred(bb, product, _rows(zero, data), sums, bias)


def _of_activations(
    bb: relax.BlockBuilder, left: tuple[relax.Expr, relax.Expr | None], right: tuple[relax.Expr, relax.Expr | None]
) -> relax.Expr:
    """Sums in int32 of the products of two tensors less their zero points.

    They are summed in floats, in as few parts as make every sum exact: kernels of int32 take six times as long.
    """
    terms = sizes_of(left[0])[-1]
    own = max(1, EXACT // math.prod(_largest(*side) for side in (left, right)))
    parts, is_matrix = -(-terms // own), len(sizes_of(right[0])) > 1
    if parts > MOST_PARTS or not terms:
        return relax.op.matmul(_wide(bb, *left), _wide(bb, *right), out_dtype="int32")
    x, y = (_wide(bb, *side, "float32") for side in (left, right))
    sums = None
    for start in range(0, terms, own):
        pieces = [x, y]
        if parts > 1:
            cut = [start], [min(start + own, terms)]
            pieces = [
                bb.emit(relax.op.strided_slice(side, [axis], *cut))
                for side, axis in ((x, len(sizes_of(x)) - 1), (y, len(sizes_of(y)) - (2 if is_matrix else 1)))
            ]
        part = bb.emit(relax.op.astype(bb.emit(relax.op.matmul(*pieces)), "int32"))
        sums = part if sums is None else bb.emit(relax.op.add(sums, part))
    return sums


def _largest(x: relax.Expr, zero: relax.Expr | None) -> int:
    """The largest distance of a byte from its zero point."""
    limits, known = np.iinfo(str(x.ty.dtype)), np.zeros((), np.int64) if zero is None else constant_of(zero)
    if known is None:
        return int(limits.max) - int(limits.min)
    known = known.astype(np.int64)
    return int(max(limits.max - known.min(initial=0), known.max(initial=0) - limits.min))


@converts("ConvInteger")
def conv_integer(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Constant weights are multiplied as they are stored; borders are made of the zero point where it is not 0.

    Raises:
        ModelError: if the data is no image of 1 to 3 axes.
    """
    data, right, zero, right_zero, bias = inputs[:5]
    weight = constant_of(right)
    shape, kernel = sizes_of(data), sizes_of(right)
    rank = len(shape) - 2
    if rank not in (1, 2, 3):
        raise ModelError(f"its data of shape {list(shape)} is no image of 1 to 3 axes")
    strides, dilation = (tuple(attrs.get(name, [1] * rank)) for name in ("strides", "dilations"))
    padding, groups = tuple(attrs.get("pads", [0] * 2 * rank)), int(attrs.get("group", 1))
    if weight is None:
        wide = _wide(bb, right, _by_filter(right_zero, rank))
        padded = _padded(bb, _wide(bb, data, zero), padding, None)
        return _plus(bb, _convolved(padded, wide, (strides, (0,) * 2 * rank, dilation), groups), bias)
    data, zero = _of_type(bb, wanted_type(attrs), data, zero)
    data, padding = _with_border(bb, data, zero, padding)
    geometry = strides, padding, dilation
    form = ByteWeight.of(weight, constant_of(right_zero), 0)
    product = bb.emit(_convolved(data, relax.const(form.values), geometry, groups))
    sums = form.values.sum(tuple(range(1, rank + 2)), dtype=np.int64)
    if form.zero.any():
        ones = relax.const(np.ones((groups, *kernel[1:]), np.int8))
        windows = bb.emit(_convolved(data, ones, geometry, groups))
        if 1 < groups < kernel[0]:
            windows = bb.emit(relax.op.repeat(windows, kernel[0] // groups, axis=1))
        product = _less(bb, product, form.zero.reshape(-1, *[1] * rank), windows)
        sums = sums - math.prod(kernel[1:]) * form.zero
    return _centred(bb, product, zero, sums.reshape(-1, *[1] * rank), bias)


@dataclass(frozen=True)
class ByteWeight:
    """Weights as int8, and what is left of their zero points.

    Attributes:
        values: int8, of the weight's shape.
        zero: int64, one per filter.
    """

    values: Array
    zero: Array

    @classmethod
    def of(cls, weight: Array, zero: Array | None, axis: int) -> ByteWeight:
        """``weight`` of int8 or uint8, its zero points along ``axis``."""
        filters = weight.shape[axis]
        zeros = np.zeros(1, np.int64) if zero is None else zero.reshape(-1).astype(np.int64)
        own = np.broadcast_to(zeros, filters)
        along = own.reshape([-1 if place == axis else 1 for place in range(weight.ndim)])
        centred = weight.astype(np.int16) - along.astype(np.int16)
        if not centred.size or (centred.min() >= -OFFSET and centred.max() < OFFSET):
            return cls(centred.astype(np.int8), np.zeros(filters, np.int64))
        if weight.dtype == np.uint8:
            return cls((weight.astype(np.int16) - OFFSET).astype(np.int8), own - OFFSET)
        return cls(weight, own)


def _convolved(data: relax.Expr, weight: relax.Expr, geometry: tuple[tuple[int, ...], ...], groups: int) -> relax.Expr:
    """Sums in int32; an image of one axis is one of a single row, which instructions know."""
    strides, padding, dilation = geometry
    rank = len(strides)
    if rank == 1:
        data, weight = relax.op.expand_dims(data, 2), relax.op.expand_dims(weight, 2)
        strides, dilation, padding = (1, *strides), (1, *dilation), (0, padding[0], 0, padding[1])
    convolve = relax.op.nn.conv3d if rank == 3 else relax.op.nn.conv2d
    sums = convolve(data, weight, strides, padding, dilation, groups, out_dtype="int32")
    return relax.op.squeeze(sums, [2]) if rank == 1 else sums


def _with_border(
    bb: relax.BlockBuilder, data: relax.Expr, zero: relax.Expr | None, padding: tuple[int, ...]
) -> tuple[relax.Expr, tuple[int, ...]]:
    """``data`` with a border of its zero point, and the padding that is left to do with 0."""
    known = constant_of(zero)
    if not any(padding) or zero is None or (known is not None and not known.any()):
        return data, padding
    return _padded(bb, data, padding, zero), (0,) * len(padding)


def _padded(bb: relax.BlockBuilder, data: relax.Expr, padding: Sequence[int], zero: relax.Expr | None) -> relax.Expr:
    """``data`` with a border of ``zero``, which may be known only when the model runs."""
    rank = len(padding) // 2
    known = np.zeros(()) if zero is None else constant_of(zero)
    pairs = list(zip(padding[:rank], padding[rank:], strict=True))
    if known is not None:
        widths = [0, 0, 0, 0, *(width for pair in pairs for width in pair)]
        return bb.emit(relax.op.nn.pad(data, widths, pad_value=int(known.reshape(()))))

    attrs = {BORDER: [width for pair in pairs for width in pair]}
    return bb.emit_te(with_border, data, zero, pairs, primfunc_name_hint="border", primfunc_attrs=attrs)


def wanted_type(attrs: dict[str, Any]) -> str:
    """The type that a product's activations should have."""
    return text_of(attrs, "activations", "uint8")


def _of_type(
    bb: relax.BlockBuilder, wanted: str, data: relax.Expr, zero: relax.Expr | None
) -> tuple[relax.Expr, relax.Expr | None]:
    """Data of either type of 8 bits and its zero point as ``wanted``."""
    if str(data.ty.dtype) == wanted:
        return data, zero
    more = OFFSET if wanted == "uint8" else -OFFSET

    def shifted(x: relax.Expr) -> relax.Expr:
        wide = relax.op.add(relax.op.astype(x, "int32"), relax.const(more, "int32"))
        return bb.emit(relax.op.astype(wide, wanted))

    known = np.zeros(()) if zero is None else constant_of(zero)
    moved = shifted(zero) if known is None else relax.const((known.astype(np.int32) + more).astype(wanted))
    return shifted(data), moved


def _centred(
    bb: relax.BlockBuilder, product: relax.Expr, zero: relax.Expr | None, sums: Array, bias: relax.Expr | None
) -> relax.Expr:
    """``product`` − zero point · sums of weights + bias, in as few additions as are constant."""
    known, added = np.zeros((), np.int32) if zero is None else constant_of(zero), constant_of(bias)
    constant = np.zeros((), np.int64)
    if added is not None:
        constant, bias = constant + added, None
    if known is not None:
        constant = constant - known.astype(np.int64) * sums
    else:
        part = relax.op.multiply(relax.op.astype(zero, "int32"), relax.const(sums.astype(np.int32)))
        product = bb.emit(relax.op.subtract(product, part))
    if constant.any():
        product = bb.emit(relax.op.add(product, relax.const(constant.astype(np.int32))))
    return _plus(bb, product, bias)


def _plus(bb: relax.BlockBuilder, product: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    product = bb.emit(product)
    return product if bias is None else bb.emit(relax.op.add(product, bias))


def _less(bb: relax.BlockBuilder, product: relax.Expr, zero: Array, sums: relax.Expr) -> relax.Expr:
    """``product`` − zero points of weights · sums of data."""
    part = relax.op.multiply(sums, relax.const(zero.astype(np.int32)))
    return bb.emit(relax.op.subtract(product, part))


def _wide(bb: relax.BlockBuilder, x: relax.Expr, zero: relax.Expr | None, dtype: str = "int32") -> relax.Expr:
    """``x`` less its zero point, in ``dtype``."""
    wide = relax.op.astype(x, dtype)
    return bb.emit(wide if zero is None else relax.op.subtract(wide, relax.op.astype(zero, dtype)))


def _rows(zero: relax.Expr | None, data: relax.Expr) -> relax.Expr | None:
    """The zero points of a matrix's rows, as they broadcast over it."""
    if zero is None or len(sizes_of(zero)) != 1 or len(sizes_of(data)) < 2:
        return zero
    shape = (-1, 1) if sizes_of(zero)[0] > 1 else ()
    known = constant_of(zero)
    return relax.op.reshape(zero, shape) if known is None else relax.const(known.reshape(shape))


def _by_filter(zero: relax.Expr | None, rank: int) -> relax.Expr | None:
    """The zero points of filters, as they broadcast over the weights."""
    return zero if zero is None or not sizes_of(zero) else relax.op.reshape(zero, (-1, 1, *[1] * rank))
