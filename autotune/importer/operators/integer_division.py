"""Division and remainder of integers, for every divisor.

A processor's division stops the process for a divisor of 0 and for the least integer divided by −1. Here both have a
value, as in NumPy:

    x ÷ 0 = 0        x mod 0 = 0        least ÷ −1 = least        least mod −1 = 0
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autotune.importer.conversion.registry import Inputs, converts
from schedules.errors import ModelError


@converts("Div", "Mod")
def divide(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Quotients truncate; remainders have the divisor's sign, or the dividend's with ``fmod``.

    Raises:
        ModelError: if the divisor is a constant with a zero, which ONNX Runtime does not load either.
    """
    kind = str(attrs["tvm_custom"]["kind"])
    a, b = inputs[0], inputs[1]
    dtypes = {_dtype(each) for each in (a, b)}
    if any(dtype is None or dtype.kind not in "iu" for dtype in dtypes):
        native = onnx_frontend._get_convert_map()[kind].get_converter(opset)
        return native(bb, onnx_frontend.onnx_input(inputs[:2]), attrs, [{}, {}])
    (dtype,) = dtypes
    assert dtype is not None

    def number(value: int) -> relax.Expr:
        return relax.const(np.array(value, dtype), dtype.name)

    zero = bb.normalize(relax.op.equal(b, number(0)))
    divisor = b if _divides_all(b, dtype) else bb.normalize(relax.op.where(_unsafe(bb, a, b, zero), number(1), b))
    if kind == "Mod" and not attrs.get("fmod", 0):
        return relax.op.floor_mod(a, divisor)
    quotient = bb.normalize(relax.op.divide(a, divisor))
    if kind == "Mod":  # Relax's own ``mod`` goes by way of doubles, which do not hold every integer of 64 bits
        return relax.op.subtract(a, bb.normalize(relax.op.multiply(quotient, divisor)))
    return quotient if isinstance(b, GenericConst) else relax.op.where(zero, number(0), quotient)


def _dtype(value: relax.Expr | None) -> np.dtype[Any] | None:
    """Element type of a tensor; None for shapes and numbers of Relax's importer."""
    kind = getattr(getattr(value, "ty", None), "dtype", None)
    return None if kind is None or isinstance(value, relax.ShapeExpr) else np.dtype(str(kind))


def _divides_all(divisor: relax.Expr, dtype: np.dtype[Any]) -> bool:
    """Whether ``divisor`` is a constant that no dividend is unsafe with.

    Raises:
        ModelError: if it has a zero.
    """
    if not isinstance(divisor, GenericConst):
        return False
    values = divisor.value.numpy()
    if not values.all():
        raise ModelError("its divisor is a constant with a zero")
    return dtype.kind == "u" or not (values == -1).any()


def _unsafe(bb: relax.BlockBuilder, a: relax.Expr, b: relax.Expr, zero: relax.Expr) -> relax.Expr:
    """Where ``a`` must not be divided by ``b``. Divided by 1 instead, the least integer is its own quotient."""
    dtype = np.dtype(str(b.ty.dtype))
    if dtype.kind == "u":
        return zero
    least, minus_one = (relax.const(np.array(value, dtype), dtype.name) for value in (np.iinfo(dtype).min, -1))
    overflow = relax.op.logical_and(bb.normalize(relax.op.equal(a, least)), bb.normalize(relax.op.equal(b, minus_one)))
    return bb.normalize(relax.op.logical_or(zero, bb.normalize(overflow)))
