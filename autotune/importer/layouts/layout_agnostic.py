"""Operations that follow the layout of what they get: elementwise ones, and what is as simple blocked as plain.

Each rule rebuilds one call: the new value, or None if it is to be served plain tensors as it stands.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from autotune.importer.layouts.packing import Array, Shape, block_array
from autotune.importer.layouts.tensor_layouts import Forms, Value

# f(0) is finite for these, so padded channels stay harmless whatever is in them.
UNARY = frozenset(
    f"relax.{name}"
    for name in [
        "nn.relu",
        "nn.gelu",
        "nn.gelu_tanh",
        "nn.silu",
        "nn.leakyrelu",
        "sigmoid",
        "tanh",
        "clip",
        "negative",
        "abs",
        "exp",
        "erf",
        "floor",
        "ceil",
        "square",
        "sign",
    ]
)
BINARY = frozenset(f"relax.{name}" for name in ["add", "subtract", "multiply", "maximum", "minimum"])
# These can make NaN from a padded zero, and NaN times a zero weight is NaN: blocked only without padding.
STRICT = frozenset(f"relax.{name}" for name in ["divide", "power", "log", "sqrt", "rsqrt"])


def unary(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """In the form its tensor has."""
    value = forms.value(call.args[0])
    if value is not None and _is_matrix(value):
        args = [value.matrix, *(forms.plain_expr(arg) for arg in call.args[1:])]
        return Value(shape, matrix=forms.builder.emit(relax.Call(call.op, args, call.attrs)))
    if not forms.is_blocked(call.args[0]) or len(shape) != 4:
        return None
    assert value is not None
    args = [forms.blocked(value), *(forms.plain_expr(arg) for arg in call.args[1:])]
    return Value(shape, blocked=forms.builder.emit(relax.Call(call.op, args, call.attrs)))


def binary(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Blocked if either operand is, and the other can be."""
    name = str(call.op.name)
    values = [forms.value(arg) for arg in call.args]
    if any(value is not None and _is_matrix(value) for value in values):
        return _binary_of_matrices(forms, call, shape)
    if len(shape) != 4 or not any(forms.is_blocked(arg) for arg in call.args):
        return _binary_with_scalar(forms, call, shape)
    if name in STRICT and shape[1] % forms.block and (len(call.args) < 2 or forms.array(call.args[1]) is None):
        return None
    operands = [_blocked_operand(forms, arg, shape, fill=1.0 if name in STRICT else 0.0) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return Value(shape, blocked=forms.builder.emit(relax.Call(call.op, operands, call.attrs)))


def _is_matrix(value: Value) -> bool:
    """Whether nobody has asked for the tensor in another form yet."""
    return value.matrix is not None and value.plain is None


def _binary_of_matrices(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Without a reshape between a dense layer and what follows it, so that they can be one kernel."""
    operands = [_matrix_operand(forms, arg, shape) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return Value(shape, matrix=forms.builder.emit(relax.Call(call.op, operands, call.attrs)))


def _matrix_operand(forms: Forms, expr: relax.Expr, shape: Shape) -> relax.Expr | None:
    """``expr`` in a form that broadcasts against the matrix of a tensor of ``shape``."""
    array = forms.array(expr)
    if array is not None:
        if array.size == 1:
            return forms.constant(array.reshape(()))
        return forms.constant(array.reshape(-1)) if array.size == array.shape[-1] == shape[-1] else None
    value = forms.value(expr)
    if value is None or value.shape[:-1] != shape[:-1] or value.shape[-1] not in (1, shape[-1]):
        return None
    return forms.matrix(value)


def _binary_with_scalar(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """A constant of one element becomes part of the kernel, which then knows, say, which power to take."""
    arrays = [forms.array(arg) for arg in call.args]
    ranks = [0 if array is not None and array.size == 1 else None for array in arrays]
    if ranks.count(0) != 1:
        return None
    value = forms.value(call.args[ranks.index(None)])
    view = value.view if value is not None and value.blocked is None else None
    if value is None or value.shape != shape:
        return None
    other = view[0] if view is not None else forms.plain(value)
    operands = [
        forms.constant(array.reshape(())) if array is not None and array.size == 1 else other for array in arrays
    ]
    emitted = forms.builder.emit(relax.Call(call.op, operands, call.attrs))
    return Value(shape, plain=emitted) if view is None else Value(shape, view=(emitted, view[1]))


def _blocked_operand(forms: Forms, expr: relax.Expr, shape: Shape, fill: float) -> relax.Expr | None:
    """``expr`` in a form that broadcasts against a blocked tensor of logical ``shape``."""
    array = forms.array(expr)
    if array is not None:
        if array.size == 1:
            return forms.constant(array.reshape(()))
        wide = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim <= 4 else None
        if wide is None or wide.shape[1] not in (1, shape[1]):
            return None
        if wide.shape[1] == 1:
            return forms.constant(wide[..., None])
        return forms.constant(block_array(wide, forms.block, fill))
    value = forms.value(expr)
    if value is None or len(value.shape) != 4 or value.channels != shape[1]:
        return None
    return forms.blocked(value)


def _keeps_columns(value: Value, shape: Shape) -> bool:
    """Whether a reshape to ``shape`` only splits or joins the rows of a matrix."""
    if value.blocked is not None or value.view is not None or min(len(value.shape), len(shape)) < 2:
        return False
    return value.shape[-1] == shape[-1] and (value.matrix is not None or 2 in (len(value.shape), len(shape)))


def folded_norm(forms: Forms, call: relax.Call) -> tuple[Value, Array, Array] | None:
    """What a batch normalisation over axis 1 normalises, its scale (c,) and its shift (c,): statistics are weights."""
    gamma, beta, mean, variance = (forms.array(arg) for arg in call.args[1:5])
    value = forms.value(call.args[0])
    if value is None or gamma is None or beta is None or mean is None or variance is None or int(call.attrs.axis) != 1:
        return None
    scale = (gamma / np.sqrt(variance + float(call.attrs.epsilon))).astype(gamma.dtype)
    return value, scale, (beta - mean * scale).astype(gamma.dtype)


def batch_norm(forms: Forms, call: relax.Call, _: Shape) -> Value | None:
    """x·scale + shift, in the form that x has."""
    folded = folded_norm(forms, call)
    if folded is None:
        return None
    value, scale, shift = folded
    wide = (1, -1) + (1,) * (len(value.shape) - 2)
    blocked = len(value.shape) == 4 and value.blocked is not None
    data = forms.blocked(value) if blocked else forms.plain(value)
    for op, array in ((relax.op.multiply, scale.reshape(wide)), (relax.op.add, shift.reshape(wide))):
        operand = forms.constant(block_array(array, forms.block) if blocked else array)
        data = forms.builder.emit(op(data, operand))
    return Value(value.shape, blocked=data) if blocked else Value(value.shape, plain=data)


def image_mean(forms: Forms, call: relax.Call, shape: Shape, axes: list[int]) -> Value | None:
    """Over a whole image, channel by channel; ``axes`` are the image's in the form that is not plain."""
    value = forms.value(call.args[0])
    over = tuple(int(axis) % 4 for axis in call.attrs.axis or ())
    if value is None or value.blocked is None or over != (2, 3) or not call.attrs.keepdims:
        return None
    return Value(shape, blocked=forms.builder.emit(relax.op.mean(value.blocked, axes, keepdims=True)))


def mean(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """Over a whole blocked image, or row by row of a matrix."""
    value = forms.value(call.args[0])
    if value is not None and _is_matrix(value):
        over = tuple(int(axis) % len(value.shape) for axis in call.attrs.axis or ())
        if over != (len(value.shape) - 1,) or not call.attrs.keepdims:
            return None
        return Value(shape, matrix=forms.builder.emit(relax.op.mean(value.matrix, [1], keepdims=True)))
    return image_mean(forms, call, shape, [2, 3])


def reshape(forms: Forms, call: relax.Call, shape: Shape) -> Value | None:
    """(n, C, 1, 1) → (n, C) is free in blocked layout when no channel is padded; (…, c) → (m, c) and back always."""
    value = forms.value(call.args[0])
    if value is not None and _keeps_columns(value, shape):
        matrix = forms.matrix(value)
        return Value(shape, plain=matrix) if len(shape) == 2 else Value(shape, matrix=matrix)
    if value is None or value.blocked is None or value.plain is not None or value.channels % forms.block:
        return None
    if value.shape[2:] != (1, 1) or shape != value.shape[:2]:
        return None
    return Value(shape, plain=forms.builder.emit(relax.op.reshape(value.blocked, shape)))
