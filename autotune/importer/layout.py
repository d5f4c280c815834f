"""Layouts for the whole graph, weights packed for them, in one walk over the Relax program.

Every tensor is *plain* (as ONNX has it) or *blocked* (n, C/b, h, w, b). Convolutions and pools produce blocked
tensors, elementwise operations and joins keep what they get, everything else is served plain. A conversion is
emitted once per tensor and only where a consumer needs the other form, so on a pure CNN the only ones left are at
its ends. Channels that b does not divide are padded with zeros; zero weights keep what is in them from mattering.

Constants are folded and packed here in NumPy, so nothing is repacked at run time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst, IRModule

from autotune.importer.fold import fold
from schedules.templates.concat import concat
from schedules.templates.conv2d import conv2d, group_span
from schedules.templates.depthwise import depthwise
from schedules.templates.matmul import matmul
from schedules.templates.pool import pool2d

Array = NDArray[Any]
Shape = tuple[int, ...]

INLINE_LIMIT = 16  # elements up to which a constant is part of the program
OPAQUE_PATTERN = 8  # TVM's kOpaque: never fused, so that it can be left out
ANCHOR_PATTERN = 4  # TVM's kOutEWiseFusable: what follows elementwise is fused behind it

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


def shape_of(expr: relax.Expr) -> Shape | None:
    """Static shape of a tensor expression, or None if it has none."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    try:
        return tuple(int(extent) for extent in ty.shape)
    except TypeError:
        return None


def block_array(array: Array, block: int, fill: float = 0.0) -> Array:
    """(n, C, h, w) → (n, ceil(C/b), h, w, b), padded channels set to ``fill``."""
    n, channels, height, width = array.shape
    missing = -channels % block
    if missing:
        array = np.pad(array, ((0, 0), (0, missing), (0, 0), (0, 0)), constant_values=fill)
    split = array.reshape(n, -1, block, height, width)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def block_te(x: Any, block: int) -> Any:
    """``block_array`` as a compute."""
    n, channels, height, width = x.shape
    blocks = -(-int(channels) // block)

    def element(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, b: tirx.Var) -> tirx.Expr:
        value = x[n, c * block + b, h, w]
        if int(channels) % block == 0:
            return value
        return tirx.if_then_else(c * block + b < channels, value, tirx.const(0, x.dtype))

    return te.compute((n, blocks, height, width, block), element, name="block")


def unblock_te(x: Any, channels: int) -> Any:
    """(n, C/b, h, w, b) → (n, C, h, w), dropping padded channels."""
    n, _, height, width, block = x.shape
    return te.compute(
        (n, channels, height, width), lambda n, c, h, w: x[n, c // block, h, w, c % block], name="unblock"
    )


class Value:
    """One tensor of the old program and the forms of it that exist in the new one."""

    def __init__(self, shape: Shape, plain: relax.Expr | None = None, blocked: relax.Expr | None = None) -> None:
        self.shape = shape
        self.plain = plain
        self.blocked = blocked

    @property
    def channels(self) -> int:
        """Logical channels of a rank-4 tensor."""
        return self.shape[1]


class LayoutRewriter:
    """Rebuilds ``main`` of a Relax module with blocked layouts and packed weights."""

    def __init__(self, module: IRModule, block: int) -> None:
        self._function = module["main"]
        self._block = block
        self._builder = relax.BlockBuilder()
        self._values: dict[relax.Var, Value | relax.Expr] = {}
        self._constants: dict[relax.Var, Array] = {}
        self.weights: list[Array] = []
        self._parameters: list[relax.Var] = []
        self._known: dict[tuple[Any, ...], relax.Var] = {}
        self._handlers: dict[str, Callable[[relax.Call, Shape], bool]] = {
            "relax.nn.conv2d": self._conv2d,
            "relax.nn.max_pool2d": self._pool,
            "relax.nn.avg_pool2d": self._pool,
            "relax.mean": self._mean,
            "relax.concat": self._concat,
            "relax.matmul": self._matmul,
            "relax.nn.batch_norm": self._batch_norm,
            "relax.reshape": self._reshape,
            **dict.fromkeys(UNARY, self._unary),
            **dict.fromkeys(BINARY | STRICT, self._binary),
        }

    def run(self) -> IRModule:
        """The rewritten module; its functions besides ``main`` are the emitted kernels."""
        function = self._function
        builder = self._builder
        params = [relax.Var(param.name, param.ty) for param in function.params]
        for old, new in zip(function.params, params, strict=True):
            self._values[old] = Value(shape_of(old) or (), plain=new)
        with builder.function("main", attrs={"num_input": len(params)}):
            with builder.dataflow():
                for block in function.body.blocks:
                    for binding in block.bindings:
                        self._binding(binding)
                result = builder.emit_output(self._plain_expr(function.body.body))
            builder.emit_func_output(result, [*params, *self._parameters])
        return builder.finalize()

    # -- values -------------------------------------------------------------------------------------------------

    def _array(self, expr: relax.Expr) -> Array | None:
        if isinstance(expr, GenericConst):
            return np.asarray(expr.value.numpy())
        if isinstance(expr, relax.Var):
            return self._constants.get(expr)
        return None

    def _value(self, expr: relax.Expr) -> Value | None:
        known = self._values.get(expr) if isinstance(expr, relax.Var) else None
        return known if isinstance(known, Value) else None

    def _constant(self, array: Array) -> relax.Expr:
        """A weight becomes a parameter of ``main``, kept beside the program; a small constant stays in it."""
        array = np.ascontiguousarray(array)
        if array.size <= INLINE_LIMIT:
            return relax.const(array, str(array.dtype))
        key = (array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).digest())
        if key not in self._known:
            name = f"weight_{len(self.weights)}"
            self._known[key] = relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            self._parameters.append(self._known[key])
            self.weights.append(array)
        return self._known[key]

    def _plain(self, value: Value) -> relax.Expr:
        if value.plain is None:
            assert value.blocked is not None
            value.plain = self._builder.emit_te(unblock_te, value.blocked, value.channels, primfunc_name_hint="unblock")
        return value.plain

    def _blocked(self, value: Value) -> relax.Expr:
        if value.blocked is None:
            value.blocked = self._builder.emit_te(block_te, value.plain, self._block, primfunc_name_hint="block")
        return value.blocked

    def _plain_expr(self, expr: relax.Expr) -> relax.Expr:
        array = self._array(expr)
        if array is not None:
            return self._constant(array)
        if isinstance(expr, relax.Var):
            known = self._values[expr]
            return self._plain(known) if isinstance(known, Value) else known
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._plain_expr(field) for field in expr.fields])
        return expr

    def _is_blocked(self, expr: relax.Expr) -> bool:
        value = self._value(expr)
        return value is not None and value.blocked is not None

    # -- bindings -----------------------------------------------------------------------------------------------

    def _binding(self, binding: relax.VarBinding) -> None:
        self._current = binding.var
        expr = binding.value
        shape = shape_of(binding.var)
        if isinstance(expr, relax.Var):
            if expr in self._constants:
                self._constants[binding.var] = self._constants[expr]
            else:
                self._values[binding.var] = self._values[expr]
            return
        if isinstance(expr, GenericConst):
            self._constants[binding.var] = np.asarray(expr.value.numpy())
            return
        if isinstance(expr, relax.TupleGetItem):
            known = self._values.get(expr.tuple_value)
            if isinstance(known, Value):  # a batch norm, of which only the first result is ever used at inference
                self._values[binding.var] = known
                return
        if isinstance(expr, relax.Call):
            if shape is not None and self._folded(expr, shape):
                return
            handler = self._handlers.get(str(getattr(expr.op, "name", "")))
            if handler is not None and handler(expr, shape or ()):
                return
        self._keep_plain(expr, shape)

    def _folded(self, call: relax.Call, shape: Shape) -> bool:
        arrays = [self._array(arg) for arg in call.args]
        if not any(array is not None for array in arrays):
            return False
        if any(a is None and not isinstance(arg, relax.ShapeExpr) for a, arg in zip(arrays, call.args, strict=True)):
            return False
        result = fold(call, arrays, shape, str(self._current.ty.dtype))
        if result is None:
            return False
        self._constants[self._current] = result
        return True

    def _keep_plain(self, expr: relax.Expr, shape: Shape | None) -> None:
        if isinstance(expr, relax.Call):
            expr = relax.Call(
                expr.op,
                [self._plain_expr(arg) for arg in expr.args],
                expr.attrs,
                expr.sinfo_args if hasattr(expr, "sinfo_args") else expr.ty_args,
            )
        elif isinstance(expr, relax.TupleGetItem):
            expr = relax.TupleGetItem(self._plain_expr(expr.tuple_value), expr.index)
        elif isinstance(expr, relax.Tuple):
            expr = self._plain_expr(expr)
        emitted = self._builder.emit(expr)
        self._values[self._current] = emitted if shape is None else Value(shape, plain=emitted)

    def _set_blocked(self, shape: Shape, expr: relax.Expr) -> bool:
        self._values[self._current] = Value(shape, blocked=expr)
        return True

    # -- operations ---------------------------------------------------------------------------------------------

    def _conv2d(self, call: relax.Call, shape: Shape) -> bool:
        value, weight = self._value(call.args[0]), self._array(call.args[1])
        attrs = call.attrs
        if value is None or weight is None or str(attrs.data_layout) != "NCHW" or str(weight.dtype) != "float32":
            return False
        block = self._block
        out_channels, per_group, kh, kw = weight.shape
        groups = int(attrs.groups)
        geometry = (
            tuple(int(s) for s in attrs.strides),
            tuple(int(p) for p in attrs.padding),
            tuple(int(d) for d in attrs.dilation),
        )
        if groups == value.channels == out_channels and groups > 1:
            packed = block_array(weight.transpose(1, 0, 2, 3), block)[0]
            out = self._emit_anchor("depthwise", depthwise, self._blocked(value), self._constant(packed), *geometry)
            return self._set_blocked(shape, out)
        plain = value.blocked is None and value.channels < block
        inner = 1 if plain else math.gcd(per_group, block)
        packed = pack_conv(weight, block, inner, groups)
        source = self._plain(value) if plain else self._blocked(value)
        out = self._emit_anchor(
            "conv2d", conv2d, source, self._constant(packed), *geometry, groups, out_channels if groups > 1 else 0
        )
        return self._set_blocked(shape, out)

    def _emit_anchor(
        self, name: str, compute: Callable[..., Any], *args: Any, attrs: dict[str, Any] | None = None
    ) -> relax.Expr:
        extra = {"op_pattern": ANCHOR_PATTERN, **(attrs or {})}
        return self._builder.emit_te(compute, *args, primfunc_name_hint=name, primfunc_attrs=extra)

    def _pool(self, call: relax.Call, shape: Shape) -> bool:
        value = self._value(call.args[0])
        attrs = call.attrs
        if value is None or len(shape) != 4 or str(attrs.layout) != "NCHW" or value.channels < self._block:
            return False
        kind = "max" if str(call.op.name) == "relax.nn.max_pool2d" else "avg"
        out = self._emit_anchor(
            "pool",
            pool2d,
            self._blocked(value),
            kind,
            tuple(int(s) for s in attrs.pool_size),
            tuple(int(s) for s in attrs.strides),
            tuple(int(p) for p in attrs.padding),
            tuple(int(d) for d in attrs.dilation),
            shape[2:],
            bool(attrs.count_include_pad),
        )
        return self._set_blocked(shape, out)

    def _mean(self, call: relax.Call, shape: Shape) -> bool:
        value = self._value(call.args[0])
        axes = tuple(int(axis) % 4 for axis in call.attrs.axis or ())
        if value is None or value.blocked is None or axes != (2, 3) or not call.attrs.keepdims:
            return False
        return self._set_blocked(shape, self._builder.emit(relax.op.mean(value.blocked, [2, 3], keepdims=True)))

    def _concat(self, call: relax.Call, shape: Shape) -> bool:
        fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
        values = [self._value(field) for field in fields]
        axis = int(call.attrs.axis) % len(shape)
        if (
            not fields
            or len(shape) != 4
            or axis != 1
            or not any(v is not None and v.blocked is not None for v in values)
        ):
            return False
        known = [v for v in values if v is not None]
        if len(known) != len(values) or any(v.channels % self._block for v in known):
            return False
        parts = [self._blocked(v) for v in known]
        attrs = {"op_pattern": OPAQUE_PATTERN}
        out = self._builder.emit_te(concat, parts, 1, primfunc_name_hint="concat", primfunc_attrs=attrs)
        return self._set_blocked(shape, out)

    def _unary(self, call: relax.Call, shape: Shape) -> bool:
        if not self._is_blocked(call.args[0]) or len(shape) != 4:
            return False
        value = self._value(call.args[0])
        assert value is not None
        args = [self._blocked(value), *(self._plain_expr(arg) for arg in call.args[1:])]
        return self._set_blocked(shape, self._builder.emit(relax.Call(call.op, args, call.attrs)))

    def _binary(self, call: relax.Call, shape: Shape) -> bool:
        name = str(call.op.name)
        if len(shape) != 4 or not any(self._is_blocked(arg) for arg in call.args):
            return False
        if name in STRICT and shape[1] % self._block and self._array(call.args[1]) is None:
            return False
        operands = [self._blocked_operand(arg, shape, fill=1.0 if name in STRICT else 0.0) for arg in call.args]
        if any(operand is None for operand in operands):
            return False
        return self._set_blocked(shape, self._builder.emit(relax.Call(call.op, operands, call.attrs)))

    def _blocked_operand(self, expr: relax.Expr, shape: Shape, fill: float) -> relax.Expr | None:
        """``expr`` in a form that broadcasts against a blocked tensor of logical ``shape``."""
        array = self._array(expr)
        if array is not None:
            if array.size == 1:
                return self._constant(array.reshape(()))
            wide = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim <= 4 else None
            if wide is None or wide.shape[1] not in (1, shape[1]):
                return None
            if wide.shape[1] == 1:
                return self._constant(wide[..., None])
            return self._constant(block_array(wide, self._block, fill))
        value = self._value(expr)
        if value is None or len(value.shape) != 4 or value.channels != shape[1]:
            return None
        return self._blocked(value)

    def _batch_norm(self, call: relax.Call, shape: Shape) -> bool:
        """x·scale + shift with both folded: at inference the statistics are weights."""
        gamma, beta, mean, variance = (self._array(arg) for arg in call.args[1:5])
        value = self._value(call.args[0])
        if (
            value is None
            or gamma is None
            or beta is None
            or mean is None
            or variance is None
            or int(call.attrs.axis) != 1
        ):
            return False
        scale = (gamma / np.sqrt(variance + float(call.attrs.epsilon))).astype(np.float32)
        shift = (beta - mean * scale).astype(np.float32)
        wide = (1, -1) + (1,) * (len(value.shape) - 2)
        blocked = len(value.shape) == 4 and value.blocked is not None
        data = self._blocked(value) if blocked else self._plain(value)
        for op, array in ((relax.op.multiply, scale.reshape(wide)), (relax.op.add, shift.reshape(wide))):
            operand = self._constant(block_array(array, self._block) if blocked else array)
            data = self._builder.emit(op(data, operand))
        result = Value(value.shape, blocked=data) if blocked else Value(value.shape, plain=data)
        self._values[self._current] = result
        return True

    def _reshape(self, call: relax.Call, shape: Shape) -> bool:
        """(n, C, 1, 1) → (n, C) is free in blocked layout when no channel is padded."""
        value = self._value(call.args[0])
        if value is None or value.blocked is None or value.plain is not None or value.channels % self._block:
            return False
        if value.shape[2:] != (1, 1) or shape != value.shape[:2]:
            return False
        self._values[self._current] = Value(shape, plain=self._builder.emit(relax.op.reshape(value.blocked, shape)))
        return True

    def _matmul(self, call: relax.Call, shape: Shape) -> bool:
        value, weight = self._value(call.args[0]), self._array(call.args[1])
        if (
            value is None
            or weight is None
            or weight.ndim != 2
            or str(weight.dtype) != "float32"
            or len(value.shape) < 2
        ):
            return False
        depth, columns = weight.shape
        lanes = next((n for n in (self._block, self._block // 2) if columns % n == 0), self._block)
        padded = -(-columns // lanes) * lanes
        packed = (
            np.pad(weight, ((0, 0), (0, padded - columns))).reshape(depth, padded // lanes, lanes).transpose(1, 0, 2)
        )
        rows = math.prod(value.shape[:-1])
        x = self._plain(value)
        if len(value.shape) != 2:
            x = self._builder.emit(relax.op.reshape(x, (rows, depth)))
        out = self._emit_anchor("matmul", matmul, x, self._constant(packed))
        if padded != columns:
            out = self._builder.emit_te(
                lambda t: topi.strided_slice(t, [0, 0], [rows, columns]), out, primfunc_name_hint="crop"
            )
        if len(shape) != 2:
            out = self._builder.emit(relax.op.reshape(out, shape))
        self._values[self._current] = Value(shape, plain=out)
        return True


def pack_conv(weight: Array, block: int, inner: int, groups: int = 1) -> Array:
    """(O, C', kh, kw) → (ceil(O/b), C''/i, kh, kw, i, b), output channels padded with zero filters.

    C'' = C' unless a block of output channels touches several groups: then it spans the inputs of all of them, with
    zeros where an output channel does not belong.
    """
    out_channels, per_group, kh, kw = weight.shape
    outputs = out_channels // groups
    span = group_span(outputs, groups, block)
    if span > 1:
        wide = np.zeros((out_channels, span * per_group, kh, kw), weight.dtype)
        for channel in range(out_channels):
            first = min(channel // block * block // outputs, groups - span)
            start = (channel // outputs - first) * per_group
            wide[channel, start : start + per_group] = weight[channel]
        weight, per_group = wide, span * per_group
    weight = np.pad(weight, ((0, -out_channels % block), (0, 0), (0, 0), (0, 0)))
    split = weight.reshape(-1, block, per_group // inner, inner, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def assign_layouts(module: IRModule, block: int) -> tuple[IRModule, list[Array]]:
    """Rewrite ``main`` for vectors of ``block`` channels.

    Returns:
        The module, whose ``main`` takes the model's inputs and then the weights, and those weights.
    """
    rewriter = LayoutRewriter(module, block)
    return rewriter.run(), rewriter.weights
