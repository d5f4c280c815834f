"""A GPU's layouts: images are channels-last (n, h, w, c), and every product becomes ``cuda_computes``' GEMM.

Nothing is padded, so the block is one channel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from tvm import relax

from autotune.importer.layouts import low_bit_layouts
from autotune.importer.layouts.layout_agnostic import BINARY, SHARED_RULES, STRICT, convolution_of, native_binary
from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.layouts.tensor_layouts import Rule, TensorLayouts, Value
from autotune.importer.layouts.views import product
from autotune.options import TF32
from schedules.templates.common.windows import Window
from schedules.templates.cuda.cuda_computes import convolution as conv_te
from schedules.templates.cuda.cuda_computes import dense as dense_te
from schedules.templates.cuda.cuda_computes import depthwise as depthwise_te
from schedules.templates.cuda.cuda_computes import pool2d
from schedules.templates.cuda.cuda_computes import product as product_te

TO_PLAIN, TO_NATIVE = (0, 3, 1, 2), (0, 2, 3, 1)
"""Orders of axes: (n, h, w, c) → (n, c, h, w), and back."""

FLOATS = ("float32", "float16", "bfloat16")
BYTES = ("uint8", "int8")


def _operands(layouts: TensorLayouts, call: relax.Call) -> str:
    """Return ``tf32`` where the operands of ``call`` are rounded to it; else nothing: they are what their type says."""
    return TF32 if isinstance(layouts, ChannelsLast) and call in layouts.rounded else ""


def convolution(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Depthwise where every group is one channel; else an implicit GEMM per group."""
    bytes_ = str(call.args[0].ty.dtype) in BYTES
    conv = convolution_of(layouts, call, BYTES if bytes_ else FLOATS)
    if conv is None:
        return None
    weight, groups = conv.weight, conv.groups
    image = layouts.native(conv.value)
    if conv.is_depthwise:
        packed = layouts.constant(weight[:, 0].transpose(1, 2, 0))
        result = layouts.emit_anchor("depthwise", depthwise_te, image, packed, *conv.geometry, str(call.ty.dtype))
        return Value(shape, native=result)
    out_channels, per_group, kh, kw = weight.shape
    grouped = weight.reshape(groups, out_channels // groups, per_group, kh, kw).transpose(0, 3, 4, 2, 1)
    columns = grouped.reshape(groups, kh * kw * per_group, out_channels // groups)
    packed = layouts.constant(columns.transpose(0, 2, 1) if bytes_ else columns)
    operands = _operands(layouts, call)
    out = layouts.emit_anchor(
        "conv2d", conv_te, image, packed, Window((kh, kw), *conv.geometry), groups, str(call.ty.dtype), operands
    )
    return Value(shape, native=out)


def matrix_product(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """With a weight a dense layer over all rows; of two activations batched, transposes absorbed."""
    left, weight = layouts.value(call.args[0]), layouts.array(call.args[1])
    kinds = {str(arg.ty.dtype) for arg in call.args}
    bytes_ = kinds <= set(BYTES) and weight is not None and weight.ndim == 2
    if left is None or not (bytes_ or kinds <= {"int32"} or kinds <= set(FLOATS)):
        return None
    operands = _operands(layouts, call)
    if weight is not None and weight.ndim == 2 and len(left.shape) >= 2:
        out = layouts.emit_anchor(
            "dense",
            dense_te,
            layouts.plain(left),
            layouts.constant(weight.T if bytes_ else weight),
            str(call.ty.dtype),
            operands,
        )
        return Value(shape, plain=out)
    dtype = str(call.ty.dtype)
    return product(
        layouts, call, shape, lambda *pair: layouts.emit_anchor("product", product_te, *pair, dtype, operands)
    )


def reshape(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """(n, C, 1, 1) → (n, C) is free in either layout."""
    value = layouts.value(call.args[0])
    if value is None or value.native is None or value.shape[2:] != (1, 1) or shape != value.shape[:2]:
        return None
    return Value(shape, plain=layouts.builder.emit(relax.op.reshape(value.native, shape)))


class ChannelsLast(TensorLayouts):
    """Native images are channels-last."""

    pool = staticmethod(pool2d)
    image_axes = (1, 2)
    rules: ClassVar[Mapping[str, Rule]] = {
        **SHARED_RULES,
        "relax.nn.conv2d": convolution,
        "relax.matmul": matrix_product,
        low_bit_layouts.CALL: low_bit_layouts.for_floats,
        "relax.reshape": reshape,
        **dict.fromkeys(BINARY | STRICT, native_binary),
    }

    def __init__(self, rounded: Collection[relax.Call] = ()) -> None:
        """Begin an empty program.

        Args:
            rounded: products of the old program whose fp32 operands are rounded to TF32.
        """
        super().__init__(1)
        self.rounded = rounded

    def from_native(self, value: Value) -> relax.Expr:
        """Channels before height and width."""
        return self.builder.emit(relax.op.permute_dims(value.native, list(TO_PLAIN)))

    def to_native(self, plain: relax.Expr) -> relax.Expr:
        """Channels behind height and width."""
        return self.builder.emit(relax.op.permute_dims(plain, list(TO_NATIVE)))

    def native_constant(self, array: Array, fill: float) -> relax.Expr:
        """In the same order of axes; no channel is padded."""
        return self.constant(array.transpose(TO_NATIVE))

    def joined(self, parts: list[relax.Expr]) -> relax.Expr:
        """Along the last axis."""
        return self.builder.emit(relax.op.concat(parts, axis=3))
