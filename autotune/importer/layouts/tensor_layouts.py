"""The program being rebuilt: which forms of every tensor exist in it, and the weights it has collected.

A conversion is emitted once per tensor and only where somebody asks for the form that is missing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst, GlobalVar

from autotune.importer.layouts.packing import Array, Shape, block_te, unblock_te

INLINE_LIMIT = 16  # elements up to which a constant is part of the program
OPAQUE_PATTERN = 8  # TVM's kOpaque: never fused, so that it can be left out
ANCHOR_PATTERN = 4  # TVM's kOutEWiseFusable: what follows elementwise is fused behind it


def shape_of(expr: relax.Expr) -> Shape | None:
    """Static shape of a tensor expression, or None if it has none."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    try:
        return tuple(int(extent) for extent in ty.shape)
    except TypeError:
        return None


class Value:
    """One tensor of the old program and the forms of it that exist in the new one.

    Attributes:
        view: a plain tensor and the order in which its axes make this one: a transpose not yet emitted.
        matrix: the tensor with all axes but the last as one, as dense layers make it and what follows them keeps it.
    """

    def __init__(
        self,
        shape: Shape,
        plain: relax.Expr | None = None,
        blocked: relax.Expr | None = None,
        view: tuple[relax.Expr, tuple[int, ...]] | None = None,
        matrix: relax.Expr | None = None,
    ) -> None:
        self.shape = shape
        self.plain = plain
        self.blocked = blocked
        self.view = view
        self.matrix = matrix

    @property
    def channels(self) -> int:
        """Logical channels of a rank-4 tensor."""
        return self.shape[1]


class Forms:
    """Values and constants of the old program as the new one has them.

    Attributes:
        block: channels of a blocked tensor's innermost axis.
        builder: receives the new program.
        weights, parameters: arrays that became parameters of ``main``, and those.
        kernels: name of a kernel of the old program → its name in the new one.
        consumers: variable of the old program → the calls that read it.
        current: the variable being rebuilt.
        rules: operation → how it is rebuilt.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.builder = relax.BlockBuilder()
        self.weights: list[Array] = []
        self.parameters: list[relax.Var] = []
        self.values: dict[relax.Var, Value | relax.Expr] = {}
        self.constants: dict[relax.Var, Array] = {}
        self.consumers: dict[relax.Var, list[relax.Call]] = {}
        self.current: relax.Var | None = None
        self.rules: Mapping[str, Callable[..., Value | None]] = {}
        self.kernels: dict[GlobalVar, GlobalVar] = {}
        self._known: dict[tuple[Any, ...], relax.Var] = {}

    def array(self, expr: relax.Expr) -> Array | None:
        """The array of a constant expression of the old program, else None."""
        if isinstance(expr, GenericConst):
            return np.asarray(expr.value.numpy())
        if isinstance(expr, relax.Var):
            return self.constants.get(expr)
        return None

    def value(self, expr: relax.Expr) -> Value | None:
        """The tensor that a variable of the old program names, else None."""
        known = self.values.get(expr) if isinstance(expr, relax.Var) else None
        return known if isinstance(known, Value) else None

    def constant(self, array: Array) -> relax.Expr:
        """A weight becomes a parameter of ``main``, kept beside the program; a small constant stays in it."""
        if array.ndim:  # NumPy makes a scalar an array of one axis otherwise
            array = np.ascontiguousarray(array)
        if array.size <= INLINE_LIMIT:
            return relax.const(array, str(array.dtype))
        key = (array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).digest())
        if key not in self._known:
            name = f"weight_{len(self.weights)}"
            self._known[key] = relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            self.parameters.append(self._known[key])
            self.weights.append(array)
        return self._known[key]

    def plain(self, value: Value) -> relax.Expr:
        """``value`` as ONNX has it."""
        if value.plain is None and value.view is not None:
            source, axes = value.view
            value.plain = self.builder.emit(relax.op.permute_dims(source, list(axes)))
        elif value.plain is None and value.matrix is not None:
            value.plain = self.builder.emit(relax.op.reshape(value.matrix, value.shape))
        elif value.plain is None:
            assert value.blocked is not None
            value.plain = self.builder.emit_te(unblock_te, value.blocked, value.channels, primfunc_name_hint="unblock")
        return value.plain

    def blocked(self, value: Value) -> relax.Expr:
        """``value`` blocked."""
        if value.blocked is None:
            value.blocked = self.builder.emit_te(block_te, self.plain(value), self.block, primfunc_name_hint="block")
        return value.blocked

    def matrix(self, value: Value) -> relax.Expr:
        """``value`` as a matrix whose columns are its last axis."""
        if value.matrix is None:
            rows, columns = math.prod(value.shape[:-1]), value.shape[-1]
            flat = len(value.shape) == 2
            value.matrix = self.plain(value)
            if not flat:
                value.matrix = self.builder.emit(relax.op.reshape(value.matrix, (rows, columns)))
        return value.matrix

    def plain_expr(self, expr: relax.Expr) -> relax.Expr:
        """Any expression of the old program, all its tensors plain."""
        array = self.array(expr)
        if array is not None:
            return self.constant(array)
        if isinstance(expr, relax.Var):
            known = self.values[expr]
            return self.plain(known) if isinstance(known, Value) else known
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.plain_expr(field) for field in expr.fields])
        return self.kernels.get(expr, expr) if isinstance(expr, GlobalVar) else expr

    def is_blocked(self, expr: relax.Expr) -> bool:
        """Whether ``expr`` is a tensor that exists in blocked form."""
        value = self.value(expr)
        return value is not None and value.blocked is not None

    def emit_anchor(
        self, name: str, compute: Callable[..., Any], *args: Any, attrs: dict[str, Any] | None = None
    ) -> relax.Expr:
        """A call of ``compute`` as a kernel that what follows elementwise is fused into."""
        extra = {"op_pattern": ANCHOR_PATTERN, **(attrs or {})}
        return self.builder.emit_te(compute, *args, primfunc_name_hint=name, primfunc_attrs=extra)
