"""Operations with a template of their own: convolution, pooling, dense layers, joins.

Each rule rebuilds one call: the new value, or None if it is to be served plain tensors as it stands.
"""

from __future__ import annotations

import math

from tvm import relax, topi

from autotune.importer.layouts.packing import Shape, block_array, pack_conv, pack_matmul
from autotune.importer.layouts.tensor_layouts import OPAQUE_PATTERN, Forms, Value
from schedules.templates.common.concat import concat
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.depthwise import depthwise
from schedules.templates.cpu.matmul import matmul
from schedules.templates.cpu.pooling import pool2d


def convolution(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Depthwise where every group is one channel; few input channels are read plain, as images come."""
    value, weight = forms.value(call.args[0]), forms.array(call.args[1])
    attrs = call.attrs
    if value is None or weight is None or str(attrs.data_layout) != "NCHW" or str(weight.dtype) != "float32":
        return None
    block = forms.block
    out_channels, per_group, kh, kw = weight.shape
    groups = int(attrs.groups)
    geometry = (
        tuple(int(s) for s in attrs.strides),
        tuple(int(p) for p in attrs.padding),
        tuple(int(d) for d in attrs.dilation),
    )
    if groups == value.channels == out_channels and groups > 1:
        packed = block_array(weight.transpose(1, 0, 2, 3), block)[0]
        out = forms.emit_anchor("depthwise", depthwise, forms.blocked(value), forms.constant(packed), *geometry)
        return Value(shape, blocked=out)
    plain = value.blocked is None and value.channels < block
    inner = 1 if plain else math.gcd(per_group, block)
    packed = pack_conv(weight, block, inner, groups)
    source = forms.plain(value) if plain else forms.blocked(value)
    out = forms.emit_anchor(
        "conv2d", conv2d, source, forms.constant(packed), *geometry, groups, out_channels if groups > 1 else 0
    )
    return Value(shape, blocked=out)


def pooling(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Blocked unless there are fewer channels than a block holds."""
    value = forms.value(call.args[0])
    attrs = call.attrs
    if value is None or len(shape) != 4 or str(attrs.layout) != "NCHW" or value.channels < forms.block:
        return None
    kind = "max" if str(call.op.name) == "relax.nn.max_pool2d" else "avg"
    out = forms.emit_anchor(
        "pool",
        pool2d,
        forms.blocked(value),
        kind,
        tuple(int(s) for s in attrs.pool_size),
        tuple(int(s) for s in attrs.strides),
        tuple(int(p) for p in attrs.padding),
        tuple(int(d) for d in attrs.dilation),
        shape[2:],
        bool(attrs.count_include_pad),
    )
    return Value(shape, blocked=out)


def dense(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """``x @ weight`` for all rows at once, the weight in panels of columns."""
    value, weight = forms.value(call.args[0]), forms.array(call.args[1])
    if value is None or weight is None or weight.ndim != 2 or str(weight.dtype) != "float32" or len(value.shape) < 2:
        return None
    depth, columns = weight.shape
    packed = pack_matmul(weight, forms.block)
    padded = packed.shape[0] * packed.shape[2]
    rows = math.prod(value.shape[:-1])
    out = forms.emit_anchor("matmul", matmul, forms.matrix(value), forms.constant(packed))
    if padded != columns:
        out = forms.builder.emit_te(
            lambda t: topi.strided_slice(t, [0, 0], [rows, columns]), out, primfunc_name_hint="crop"
        )
    return Value(shape, plain=out) if len(shape) == 2 else Value(shape, matrix=out)


def joined(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Joined along whole blocks if any part is blocked already."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    values = [forms.value(field) for field in fields]
    axis = int(call.attrs.axis) % len(shape)
    if not fields or len(shape) != 4 or axis != 1 or not any(v is not None and v.blocked is not None for v in values):
        return None
    known = [v for v in values if v is not None]
    if len(known) != len(values) or any(v.channels % forms.block for v in known):
        return None
    parts = [forms.blocked(v) for v in known]
    attrs = {"op_pattern": OPAQUE_PATTERN}
    out = forms.builder.emit_te(concat, parts, 1, primfunc_name_hint="concat", primfunc_attrs=attrs)
    return Value(shape, blocked=out)
