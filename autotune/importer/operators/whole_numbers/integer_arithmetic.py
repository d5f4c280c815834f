"""Arithmetic of integers: division by every divisor, and reductions that Relax has for floats only.

A processor's division stops the process for a divisor of 0 and for the least integer divided by −1. Here both have a
value, as in NumPy:

    x ÷ 0 = 0        x mod 0 = 0        least ÷ −1 = least        least mod −1 = 0
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, native
from schedules.vocabulary.errors import ModelError


@converts("Div", "Mod")
def divide(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Quotients truncate; remainders have the divisor's sign, or the dividend's with ``fmod``.

    Raises:
        ModelError: if the divisor is a constant with a zero, which ONNX Runtime does not load either.
    """
    kind = str(attrs["tvm_custom"]["kind"])
    a, b = inputs[0], inputs[1]
    dtypes = {_dtype(operand) for operand in (a, b)}
    if any(dtype is None or dtype.kind not in "iu" for dtype in dtypes):
        return native(kind, bb, inputs[:2], attrs, opset)
    (dtype,) = dtypes
    assert dtype is not None
    divisor = b if _divides_all(b, dtype) else _safe(bb, a, b)
    if kind == "Mod":
        return (relax.op.mod if attrs.get("fmod", 0) else relax.op.floor_mod)(a, divisor)
    quotient = bb.normalize(relax.op.divide(a, divisor))
    if isinstance(b, GenericConst):
        return quotient
    zero = _number(0, dtype)
    return relax.op.where(bb.normalize(relax.op.equal(b, zero)), zero, quotient)


def _dtype(value: relax.Expr | None) -> np.dtype[Any] | None:
    """Element type of a tensor; None for shapes and numbers of Relax's importer."""
    kind = getattr(getattr(value, "ty", None), "dtype", None)
    return None if kind is None or isinstance(value, relax.ShapeExpr) else np.dtype(str(kind))


def _divides_all(divisor: relax.Expr, dtype: np.dtype[Any]) -> bool:
    """Return whether ``divisor`` is a constant that no dividend is unsafe with.

    Raises:
        ModelError: if it has a zero.
    """
    values = constant_of(divisor)
    if values is not None and not values.all():
        raise ModelError("its divisor is a constant with a zero")
    return values is not None and (dtype.kind == "u" or not (values == -1).any())


def _safe(bb: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """``b``, or 1 where ``a`` must not be divided by it: divided by 1, the least integer is its own quotient.

    One comparison a choice: TVM loads booleans as bytes and compares into bits, and LLVM refuses to mix the two.
    """
    dtype = np.dtype(str(b.ty.dtype))
    one = _number(1, dtype)

    def where(hit: relax.Expr, value: relax.Expr, otherwise: relax.Expr) -> relax.Expr:
        return bb.normalize(relax.op.where(bb.normalize(hit), value, otherwise))

    if dtype.kind == "i":
        is_least = relax.op.less(a, _number(int(np.iinfo(dtype).min) + 1, dtype))  # TVM takes ``==`` for never true
        b = where(relax.op.equal(b, _number(-1, dtype)), where(is_least, one, b), b)
    return where(relax.op.equal(b, _number(0, dtype)), one, b)


def _number(value: int, dtype: np.dtype[Any]) -> relax.Expr:
    return relax.const(np.array(value, dtype), dtype.name)


@rewrites("Sign")
def sign(node: Node, e: Emit) -> list[str] | None:
    """Return the sign of unsigned integers, for which TVM has no −1."""
    return [e.op("Min", node.input(0), e.like(1))] if node.dtype(0).kind == "u" else None
