"""The GPU's layouts: images are channels-last (b, h, w, c), and every product becomes ``cuda_computes``' GEMM.

The walk is ``layout.assign_layouts``; only the rules differ. In ``Forms``' words a tensor's ``blocked`` form is the
channels-last one here. Nothing is padded, so a rule never asks whether channels divide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from autotune.importer.layouts.layout_agnostic import folded_norm, image_mean
from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.layouts.products import batches_agree, in_any_order, transposed
from autotune.importer.layouts.tensor_layouts import Forms, Value
from schedules.templates.cuda.cuda_computes import convolution as conv_te
from schedules.templates.cuda.cuda_computes import dense as dense_te
from schedules.templates.cuda.cuda_computes import depthwise as depthwise_te
from schedules.templates.cuda.cuda_computes import pool as pool_te
from schedules.templates.cuda.cuda_computes import product as product_te

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # permutations: channels-last → as ONNX has it, and back
FLOATS = ("float32", "float16", "bfloat16")


class ChannelsLast(Forms):
    """``Forms`` whose second form is channels-last."""

    def __init__(self) -> None:
        super().__init__(1)

    def plain(self, value: Value) -> relax.Expr:
        """``value`` as ONNX has it."""
        if value.plain is None and value.view is None:
            assert value.blocked is not None
            value.plain = self.builder.emit(relax.op.permute_dims(value.blocked, list(FIRST)))
        return super().plain(value)

    def blocked(self, value: Value) -> relax.Expr:
        """``value`` channels-last."""
        if value.blocked is None:
            value.blocked = self.builder.emit(relax.op.permute_dims(self.plain(value), list(LAST)))
        return value.blocked


def convolution(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Depthwise where every group is one channel; else an implicit GEMM per group."""
    value, weight = forms.value(call.args[0]), forms.array(call.args[1])
    attrs = call.attrs
    if value is None or weight is None or str(attrs.data_layout) != "NCHW" or str(weight.dtype) not in FLOATS:
        return None
    out_channels, per_group, kh, kw = weight.shape
    groups = int(attrs.groups)
    strides, padding, dilation = (
        tuple(int(x) for x in axis) for axis in (attrs.strides, attrs.padding, attrs.dilation)
    )
    data = forms.blocked(value)
    if groups == value.channels == out_channels and groups > 1:
        packed = np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))
        out = forms.emit_anchor("depthwise", depthwise_te, data, _weight(forms, packed), strides, padding, dilation)
        return Value(shape, blocked=out)
    grouped = weight.reshape(groups, out_channels // groups, per_group, kh, kw).transpose(0, 3, 4, 2, 1)
    packed = np.ascontiguousarray(grouped).reshape(groups, kh * kw * per_group, out_channels // groups)
    out = forms.emit_anchor(
        "conv2d", conv_te, data, _weight(forms, packed), (kh, kw), strides, padding, dilation, groups
    )
    return Value(shape, blocked=out)


def pooling(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Windows of a channels-last image."""
    value, attrs = forms.value(call.args[0]), call.attrs
    if value is None or len(shape) != 4 or str(attrs.layout) != "NCHW":
        return None
    kind = "max" if str(call.op.name) == "relax.nn.max_pool2d" else "avg"
    geometry = (tuple(int(x) for x in axis) for axis in (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation))
    count = bool(attrs.count_include_pad)
    out = forms.emit_anchor("pool", pool_te, forms.blocked(value), kind, *geometry, shape[2:], count)
    return Value(shape, blocked=out)


def product(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """With a weight a dense layer over all rows; of two activations batched, transposes absorbed."""
    left, right, weight = forms.value(call.args[0]), forms.value(call.args[1]), forms.array(call.args[1])
    if str(call.ty.dtype) not in FLOATS or left is None:
        return None
    if weight is not None and weight.ndim == 2 and len(left.shape) >= 2:
        return Value(shape, plain=forms.emit_anchor("dense", dense_te, forms.plain(left), _weight(forms, weight)))
    if right is None or not batches_agree(left.shape, right.shape, shape):
        return None
    for value in (left, right):
        if value.view is None:
            forms.plain(value)
    return in_any_order(forms, left, right, shape, lambda *given: forms.emit_anchor("product", product_te, *given))


def joined(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Joined along the last axis if any part is channels-last already."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    values = [forms.value(field) for field in fields]
    known = [value for value in values if value is not None]
    if not fields or len(shape) != 4 or len(known) != len(values):
        return None
    if int(call.attrs.axis) % 4 != 1 or not any(value.blocked is not None for value in known):
        return None
    return Value(shape, blocked=forms.builder.emit(relax.op.concat([forms.blocked(v) for v in known], axis=3)))


def unary(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """In the form its tensor has."""
    value = forms.value(call.args[0])
    if value is None or value.blocked is None or len(shape) != 4:
        return None
    args = [forms.blocked(value), *(forms.plain_expr(arg) for arg in call.args[1:])]
    return Value(shape, blocked=forms.builder.emit(relax.Call(call.op, args, call.attrs)))


def binary(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Channels-last if either operand is, and the other can be."""
    if len(shape) != 4 or not any(forms.is_blocked(arg) for arg in call.args):
        return None
    operands = [_broadcast(forms, arg) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return Value(shape, blocked=forms.builder.emit(relax.Call(call.op, operands, call.attrs)))


def _broadcast(forms: Forms, expr: relax.Expr) -> relax.Expr | None:
    """``expr`` in a form that broadcasts against a channels-last tensor."""
    array = forms.array(expr)
    if array is not None:
        if array.size == 1:
            return forms.constant(array.reshape(()))
        if array.ndim > 4:
            return None
        return forms.constant(array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(LAST))
    value = forms.value(expr)
    return forms.blocked(value) if value is not None and len(value.shape) == 4 else None


def batch_norm(forms: Forms, call: relax.Call, _: Shape) -> Value | None:
    """x·scale + shift, in the form that x has."""
    folded = folded_norm(forms, call)
    if folded is None:
        return None
    value, scale, shift = folded
    last = len(value.shape) == 4 and value.blocked is not None
    wide = (1, 1, 1, -1) if last else (1, -1) + (1,) * (len(value.shape) - 2)
    data = forms.blocked(value) if last else forms.plain(value)
    for op, array in ((relax.op.multiply, scale.reshape(wide)), (relax.op.add, shift.reshape(wide))):
        data = forms.builder.emit(op(data, forms.constant(array)))
    return Value(value.shape, blocked=data) if last else Value(value.shape, plain=data)


def mean(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Over a whole channels-last image."""
    return image_mean(forms, call, shape, [1, 2])


def reshape(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """(b, C, 1, 1) → (b, C) is free in either layout."""
    value = forms.value(call.args[0])
    if value is None or value.blocked is None or value.shape[2:] != (1, 1) or shape != value.shape[:2]:
        return None
    return Value(shape, plain=forms.builder.emit(relax.op.reshape(value.blocked, shape)))


def _weight(forms: Forms, array: Array) -> relax.Expr:
    return forms.constant(array)


ANCHORS: dict[str, Callable[[Forms, relax.Call, Shape], Value | None]] = {
    "relax.nn.conv2d": convolution,
    "relax.nn.max_pool2d": pooling,
    "relax.nn.avg_pool2d": pooling,
    "relax.mean": mean,
    "relax.concat": joined,
    "relax.matmul": product,
    "relax.permute_dims": transposed,
    "relax.nn.batch_norm": batch_norm,
    "relax.reshape": reshape,
}
"""Rules that are the GPU's own; elementwise operations follow with ``unary`` and ``binary``."""
