"""Quantised operators as arithmetic on what they stand for.

Integer products are summed exactly, in int32; what is between two quantisations is computed in fp32. Quantisers to and
from 8 and 16 bits become kernels of few operations; those of other types are rewritten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tvm import relax

from autotune.importer.onnx_model.shapes import MICROSOFT
from autotune.importer.operators.minifloat import INTEGERS, NARROW
from autotune.importer.rewriting.emit import FLOAT, Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of

INT32 = TensorProto.INT32
BYTES = (TensorProto.UINT8, TensorProto.INT8)
WORDS = (TensorProto.UINT16, TensorProto.INT16)

AXIS_OPSET = 13
"""First opset whose quantisers have an axis."""
WORD_OPSET = 21
"""First opset whose quantisers have 16 bits."""


def _per_axis(node: Node, e: Emit, name: str, index: int, axis: int, block: int = 0, data: int = 0) -> str:
    """A scale or zero point (input ``index``, by now called ``name``) in a shape that goes with input ``data``."""
    shape, target = node.shape(index), node.shape(data)
    if not shape or (shape == (1,) and len(target) != 1):
        return e.reshape(name) if shape else name
    axis %= len(target)
    if block:
        groups = shape[axis]
        wide = e.unsqueeze(name, axis + 1)
        wide = e.op("Expand", wide, e.ints(*shape[: axis + 1], block, *shape[axis + 1 :]))
        wide = e.reshape(wide, *shape[:axis], groups * block, *shape[axis + 1 :])
        return e.slice(wide, axis, 0, target[axis]) if groups * block != target[axis] else wide
    if len(shape) == 1:
        return e.reshape(name, *(shape[0] if i == axis else 1 for i in range(len(target))))
    return name


def _converted(node: Node) -> tuple[int, ...]:
    """Types to and from which quantisers of the model's opset have a converter."""
    return BYTES if node.scope.opset < WORD_OPSET else (*BYTES, *WORDS)


def _placement(node: Node) -> tuple[int, int]:
    return int(node.attr("axis", 1)), int(node.attr("block_size", 0))


@rewrites("DequantizeLinear", "QuantizeLinear", domain=MICROSOFT)
def standard(node: Node, e: Emit) -> list[str] | None:
    """The standard operator, where it takes the types; else arithmetic."""
    integers = node.type(0 if node.kind == "DequantizeLinear" else 2) or TensorProto.UINT8
    if integers not in _converted(node) or (node.shape(1) and e.opset < AXIS_OPSET):
        return dequantize(node, e) if node.kind == "DequantizeLinear" else quantize(node, e)
    attributes = {"axis": node.attr("axis", 1)} if node.shape(1) else {}
    return [e.op(node.kind, *node.proto.input, **attributes)]


@rewrites("DequantizeLinear")
def dequantize(node: Node, e: Emit) -> list[str] | None:
    """(x − zero point) · scale; that of 8 and 16 bits has a converter."""
    axis, block = _placement(node)
    if _has_converter(node, node.type(0)):
        return None
    out = int(node.attr("output_dtype", 0)) or node.type(1)
    exact = node.type(0) in (TensorProto.INT32,)
    wide = TensorProto.DOUBLE if exact else FLOAT
    x = e.cast(node.input(0), wide)
    if node.input(2):
        zero = e.cast(node.input(2), wide)
        x = e.op("Sub", x, _per_axis(node, e, zero, 2, axis, block))
    scale = e.cast(node.input(1), wide)
    return [e.cast(e.op("Mul", x, _per_axis(node, e, scale, 1, axis, block)), out)]


@rewrites("QuantizeLinear")
def quantize(node: Node, e: Emit) -> list[str] | None:
    """Round(x ÷ scale) + zero point, within the range of the type; that to 8 and 16 bits has a converter."""
    axis, block = _placement(node)
    out = node.type(2) or int(node.attr("output_dtype", 0)) or int(TensorProto.UINT8)
    if _has_converter(node, out):
        return None
    scale = _per_axis(node, e, e.cast(node.input(1), FLOAT), 1, axis, block)
    ratio = e.op("Div", e.cast(node.input(0), FLOAT), scale)
    zero = _per_axis(node, e, e.cast(node.input(2), FLOAT), 2, axis, block) if node.input(2) else ""
    if out in NARROW and NARROW[out] not in INTEGERS:
        ratio = e.op("Add", ratio, zero) if zero else ratio
        return [e.op("Cast", ratio, to=out, saturate=int(node.attr("saturate", 1)))]
    if out not in NARROW and helper.tensor_dtype_to_np_dtype(out).kind not in "iu":
        raise node.refused("its zero point is no integer")
    return [saturated(e, e.op("Round", ratio), zero, out)]


def _has_converter(node: Node, integers: int) -> bool:
    """Return whether a quantiser is between fp32 and 8 or 16 bits, its scales one number or a vector."""
    others = (node.type(1), node.type(0) if node.kind == "QuantizeLinear" else FLOAT)
    output = int(node.attr("output_dtype", 0))
    return (
        integers in _converted(node)
        and set(others) == {FLOAT}
        and not int(node.attr("block_size", 0))
        and output in (0, FLOAT if node.kind == "DequantizeLinear" else integers)
        and len(node.shape(1)) < 2
    )


@converts("DequantizeLinear")
def dequantized(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """(x − zero point) · scale of 8 or 16 bits."""
    data, scale, zero = inputs[:3]
    centred = bb.emit(relax.op.astype(data, "float32"))
    if not _is_all(zero, 0):
        centred = bb.emit(relax.op.subtract(centred, _along(bb, zero, data, attrs)))
    return relax.op.multiply(centred, _along(bb, scale, data, attrs))


@converts("QuantizeLinear")
def quantized(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Round(x ÷ scale) + zero point within 8 or 16 bits."""
    data, scale, zero = inputs[:3]
    kind = int(attrs.get("output_dtype", 0)) or TensorProto.UINT8
    dtype = helper.tensor_dtype_to_np_dtype(kind).name if zero is None else str(zero.ty.dtype)
    if _is_all(scale, 0):  # TVM refuses to divide by zero; every float times infinity is the same
        levels = bb.emit(relax.op.multiply(data, relax.const(np.float32(np.inf))))
    else:
        levels = data if _is_all(scale, 1) else bb.emit(relax.op.divide(data, _along(bb, scale, data, attrs)))
    levels = bb.emit(relax.op.round(levels))
    if not _is_all(zero, 0):
        levels = bb.emit(relax.op.add(levels, _along(bb, zero, data, attrs)))
    limits = np.iinfo(dtype)
    return relax.op.astype(bb.emit(relax.op.clip(levels, float(limits.min), float(limits.max))), dtype)


@converts("ByteTable")
def byte_table(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """The bytes of a table at those of a tensor."""
    data, table = inputs[:2]
    assert data is not None
    bits = data if str(data.ty.dtype) == "uint8" else bb.emit(relax.op.astype(data, "uint8"))
    return relax.op.take(table, bb.emit(relax.op.astype(bits, "int32")), axis=0, mode="fast")


def _along(bb: relax.BlockBuilder, expr: relax.Expr, data: relax.Expr, attrs: dict[str, Any]) -> relax.Expr:
    """A scale or zero point as fp32, in a shape that broadcasts over ``data``."""
    rank, shape = len(data.ty.shape), [int(size) for size in expr.ty.shape]
    places = [-1 if place == int(attrs.get("axis", 1)) % max(rank, 1) else 1 for place in range(rank)]
    places = places if math.prod(shape) > 1 else []
    array = constant_of(expr)
    if array is not None:
        return relax.const(array.reshape(places).astype(np.float32))
    wide = expr if str(expr.ty.dtype) == "float32" else bb.emit(relax.op.astype(expr, "float32"))
    return wide if len(shape) == len(places) else bb.emit(relax.op.reshape(wide, places))


def _is_all(expr: relax.Expr | None, value: float) -> bool:
    """Return whether a scale or zero point is known to be ``value`` everywhere; one that is left out is 0."""
    if expr is None:
        return value == 0
    array = constant_of(expr)
    return array is not None and bool((array == value).all())


def bounds(kind: int) -> tuple[int, int]:
    """Least and greatest value of an integer element type."""
    if kind in NARROW:
        form = INTEGERS[NARROW[kind]]
        return (-(1 << (form.bits - 1)), (1 << (form.bits - 1)) - 1) if form.signed else (0, (1 << form.bits) - 1)
    info = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    return int(info.min), int(info.max)


def saturated(e: Emit, rounded: str, zero: str, kind: int) -> str:
    """Whole numbers in fp32 plus ``zero``, held within the range of ``kind``, as that type."""
    low, high = bounds(kind)
    shifted = e.op("Add", rounded, zero) if zero else rounded
    return e.cast(e.op("Clip", shifted, e.const(np.float32(low)), e.const(np.float32(high))), kind)


@rewrites("QLinearMatMul")
def qlinear_matmul(node: Node, e: Emit) -> list[str] | None:
    """Product of (a − zero point) and (b − zero point) in int32, scaled and quantised."""
    product = e.op("MatMulInteger", node.input(0), node.input(3), node.input(2), node.input(5))
    scale_a = _per_axis(node, e, e.cast(node.input(1), FLOAT), 1, -2)
    scale_b = _per_axis(node, e, e.cast(node.input(4), FLOAT), 4, -1, data=3)
    return [_requantised(node, e, product, e.op("Mul", scale_a, scale_b))]


GEOMETRY = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@rewrites("QLinearConv")
def qlinear_conv(node: Node, e: Emit) -> list[str] | None:
    """ConvInteger and a bias in int32, scaled and quantised."""
    rank = len(node.shape(0))

    def by_channel(name: str, index: int) -> str:
        size = int(np.prod(node.shape(index)))
        return e.reshape(name, 1, size, *[1] * (rank - 2)) if size > 1 else e.reshape(name)

    zero_w = node.array(5)  # ONNX Runtime's ConvInteger takes one per tensor only
    zeros = [node.input(2), node.input(5) if zero_w is None or zero_w.any() else ""]
    product = e.op("ConvInteger", node.input(0), node.input(3), *zeros, **node.given(*GEOMETRY))
    if node.input(8):
        product = e.op("Add", product, by_channel(node.input(8), 8))
    scale_w = by_channel(e.cast(node.input(4), FLOAT), 4)
    return [_requantised(node, e, product, e.op("Mul", e.cast(node.input(1), FLOAT), scale_w))]


@rewrites("QLinearConv", domain=MICROSOFT)
def qlinear_conv_of_any_order(node: Node, e: Emit) -> list[str] | None:
    """Write the standard operator; channels may be the last axis of the image."""
    others, attributes = [str(name) for name in node.proto.input[1:]], node.given(*GEOMETRY)
    if not node.attr("channels_last", 0):
        return [e.op("QLinearConv", node.input(0), *others, **attributes)]
    rank = node.rank(0)
    image = e.transpose(node.input(0), 0, rank - 1, *range(1, rank - 1))
    return [e.transpose(e.op("QLinearConv", image, *others, **attributes), 0, *range(2, rank), 1)]


def _requantised(node: Node, e: Emit, sums: str, scale: str) -> str:
    """Sums in int32 times ``scale`` over that of the result (input 6), by the zero point behind it."""
    factor = e.op("Div", scale, e.cast(node.input(6), FLOAT))
    ratio = e.op("Mul", e.cast(sums, FLOAT), factor)
    return e.op("QuantizeLinear", ratio, e.const(np.float32(1)), e.reshape(node.input(7)))


def _value(node: Node, e: Emit, index: int) -> str:
    """Return the numbers that a quantised input stands for; its scale and zero point follow it."""
    scale, zero = e.reshape(node.input(index + 1)), node.input(index + 2)
    return e.op("DequantizeLinear", node.input(index), scale, *([e.reshape(zero)] if zero else []))


def _quantised(node: Node, e: Emit, x: str, scale: int, like: int) -> str:
    """``x`` by the scale of input ``scale`` and the zero point behind it, which has the type of input ``like``."""
    zero_point = node.input(scale + 1)
    zero = e.reshape(zero_point) if zero_point else e.const(np.zeros((), node.dtype(like)))
    return e.op("QuantizeLinear", x, e.reshape(node.input(scale)), zero)


@rewrites("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(node: Node, e: Emit) -> list[str] | None:
    """Sum or product of what two quantised tensors stand for."""
    result = e.op(node.kind.removeprefix("QLinear"), _value(node, e, 0), _value(node, e, 3))
    return [_quantised(node, e, result, 6, 0)]


@rewrites("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: Node, e: Emit) -> list[str] | None:
    """Quantised tensors one after the other, on the scale of the result (inputs 0 and 1)."""
    parts = [_value(node, e, index) for index in range(2, len(node.proto.input), 3)]
    return [_quantised(node, e, e.op("Concat", *parts, axis=int(node.attr("axis", 0))), 0, 2)]


@rewrites("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: Node, e: Emit) -> list[str] | None:
    """One quantised tensor or the other, on the scale of the result."""
    return [_quantised(node, e, e.op("Where", node.input(0), _value(node, e, 1), _value(node, e, 4)), 7, 1)]


POOLED = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
"""Attributes of average pools."""


@rewrites(
    *("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearSoftmax"),
    domain=MICROSOFT,
)
def qlinear_unary(node: Node, e: Emit) -> list[str] | None:
    """An activation, a pool or a softmax of what a quantised tensor stands for.

    Channels of a pool are in place 1 or last. A softmax up to opset 12 is over all axes from ``axis`` on.
    """
    shape, kind, x = node.shape(0), node.kind.removeprefix("QLinear"), _value(node, e, 0)
    rank, attributes = len(shape), node.given("alpha", *POOLED)
    if kind == "Softmax":
        axis, attributes = int(node.attr("axis", -1)) % rank, {"axis": -1}
        if int(node.attr("opset", 13)) < 13:
            flat = e.reshape(x, int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
            return [_quantised(node, e, e.reshape(e.op(kind, flat, axis=-1), *shape), 3, 0)]
        order = [*(place for place in range(rank) if place != axis), axis]
    else:
        order = [0, rank - 1, *range(1, rank - 1)] if node.attr("channels_last", 0) else list(range(rank))
    if order != sorted(order):
        x = e.transpose(x, *order)
    result = e.op(kind, x, **attributes)
    if order != sorted(order):
        result = e.transpose(result, *(order.index(place) for place in range(rank)))
    return [_quantised(node, e, result, 3, 0)]


@rewrites("QGemm", domain=MICROSOFT)
def qgemm(node: Node, e: Emit) -> list[str] | None:
    """((A − zero point)·(B − zero point) + C) · alpha · both scales, as fp32 or quantised; sums are in int32."""
    a = e.transpose(node.input(0), 1, 0) if node.attr("transA", 0) else node.input(0)
    b = e.transpose(node.input(3), 1, 0) if node.attr("transB", 0) else node.input(3)
    product = e.op("MatMulInteger", a, b, e.reshape(node.input(2)), node.input(5))
    product = e.cast(e.op("Add", product, node.input(6)) if node.input(6) else product, FLOAT)
    scale = e.op(
        "Mul", e.op("Mul", e.reshape(node.input(1)), node.input(4)), e.const(np.float32(node.attr("alpha", 1)))
    )
    scaled = e.op("Mul", product, scale)
    return [_quantised(node, e, scaled, 7, 0) if node.input(7) else scaled]
