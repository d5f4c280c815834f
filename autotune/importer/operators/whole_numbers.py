"""Whole numbers: division by every divisor, reductions that Relax has for floats only, casts to them, and their bits.

A processor's division stops the process for a divisor of 0 and for the least integer divided by −1. Here both have a
value, as in NumPy:

    x ÷ 0 = 0        x mod 0 = 0        least ÷ −1 = least        least mod −1 = 0

Casts of floats make what x86 makes of what the target cannot hold, and of NaN. With w the width of the target,
h = 2^(w − 1), and int(x) = trunc(x) if |x| < h, else −h:

    int32, int64       int(x)
    8 and 16 bits      the low bits of the int32
    uint32, uint64     int(x) modulo 2h; from h on, int(x − h) + h, which is 0 from 2h on
    fp16 to uint32     the low bits of the int64
    bool               x ≠ 0, so true of NaN

This is what ONNX Runtime's vectorised loops compute. Without the comparison, LLVM calls the conversion undefined and
drops checks behind it, such as those that hold an index within its axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from autotune.host.dtypes import numpy_type
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import constant_of, copied, dtype_of, native, text_of
from schedules.vocabulary.errors import ModelError


@converts("Div", "Mod")
def divide(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Quotients truncate; remainders have the divisor's sign, or the dividend's with ``fmod``.

    Raises:
        ModelError: if the divisor is a constant with a zero, which ONNX Runtime does not load either.
    """
    kind = str(attrs["tvm_custom"]["kind"])
    a, b = inputs[0], inputs[1]
    dtype = numpy_type(dtype_of(b))
    if dtype.kind not in "iu":
        return native(kind, bb, inputs[:2], attrs, opset)
    divisor = b if _divides_all(b, dtype) else _safe(bb, a, b)
    if kind == "Mod":
        return (relax.op.mod if attrs.get("fmod", 0) else relax.op.floor_mod)(a, divisor)
    quotient = bb.normalize(relax.op.divide(a, divisor))
    if isinstance(b, GenericConst):
        return quotient
    zero = _number(0, dtype)
    return relax.op.where(bb.normalize(relax.op.equal(b, zero)), zero, quotient)


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
    if dtype.kind == "i":
        is_least = relax.op.less(a, _number(int(np.iinfo(dtype).min) + 1, dtype))  # TVM takes ``==`` for never true
        b = _where(bb, relax.op.equal(b, _number(-1, dtype)), _where(bb, is_least, one, b), b)
    return _where(bb, relax.op.equal(b, _number(0, dtype)), one, b)


def _where(bb: relax.BlockBuilder, hit: relax.Expr, value: relax.Expr, otherwise: relax.Expr) -> relax.Expr:
    return bb.normalize(relax.op.where(bb.normalize(hit), value, otherwise))


def _number(value: int, dtype: np.dtype[Any]) -> relax.Expr:
    return relax.const(np.array(value, dtype), dtype.name)


@rewrites("Sign")
def sign(node: Node, e: Emit) -> list[str] | None:
    """Return the sign of unsigned integers, for which TVM has no −1."""
    return [e.op("Min", node.input(0), e.like(1))] if node.dtype(0).kind == "u" else None


WORD_BITS = 32
"""Width of the integer that shorter ones are cut from."""


@converts("Cast")
def cast(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Floats become integers and booleans as above; every other cast is Relax's own."""
    x = inputs[0]
    to = np.dtype(helper.tensor_dtype_to_np_dtype(attrs["to"]))
    source = dtype_of(x)
    if isinstance(x, GenericConst) or "float" not in source or to.kind not in "iub":
        return native("Cast", bb, inputs[:1], attrs, opset)
    if source == "float16":
        x = bb.normalize(relax.op.astype(x, "float32"))
        if to == np.uint32:
            return relax.op.astype(_signed(bb, x, 2 * WORD_BITS), to.name)
    if to.kind == "b":  # TVM's ``!=`` is false of NaN
        number = bb.normalize(relax.op.where(relax.op.isnan(x), _like(x, 1.0), x))
        return relax.op.not_equal(number, _like(number, 0.0))
    return _to_integer(bb, x, to)


def _like(x: relax.Expr, value: float) -> relax.Expr:
    """A scalar of the type of ``x``."""
    return relax.const(value, str(x.ty.dtype))


def _to_integer(bb: relax.BlockBuilder, x: relax.Expr, to: np.dtype[Any]) -> relax.Expr:
    width = 8 * to.itemsize
    if width < WORD_BITS:
        return relax.op.astype(_signed(bb, x, WORD_BITS), to.name)
    if to.kind == "i":
        return _signed(bb, x, width)
    half = 1 << (width - 1)
    high = bb.normalize(relax.op.greater_equal(x, _like(x, float(half))))
    below = bb.normalize(relax.op.where(high, bb.normalize(relax.op.subtract(x, _like(x, float(half)))), x))
    bits = bb.normalize(relax.op.astype(_signed(bb, below, width), to.name))
    back, nothing = (relax.const(np.array(number, to), to.name) for number in (half, 0))
    return relax.op.add(bits, bb.normalize(relax.op.where(high, back, nothing)))


def _signed(bb: relax.BlockBuilder, x: relax.Expr, width: int) -> relax.Expr:
    """int(x) of the module's docstring."""
    kind = f"int{width}"
    within = bb.normalize(relax.op.less(bb.normalize(relax.op.abs(x)), _like(x, 2.0 ** (width - 1))))
    least = relax.const(np.array(np.iinfo(kind).min, kind), kind)
    return bb.normalize(relax.op.where(within, bb.normalize(relax.op.astype(x, kind)), least))


@converts("BitShift")
def bit_shift(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """A count that is negative or as wide as the number shifts all bits out, as in NumPy.

    0 is left then, or -1 of a negative number shifted right. Machine instructions define no such counts.
    """
    x, count = inputs[0], inputs[1]
    assert x is not None
    left = text_of(attrs, "direction") == "LEFT"
    dtype = np.dtype(str(x.ty.dtype))
    width = 8 * dtype.itemsize

    def beyond(value: relax.Expr, otherwise: relax.Expr) -> relax.Expr:
        """One comparison a choice: TVM loads booleans as bytes, and LLVM refuses to mix them with comparisons."""
        if dtype.kind == "i":
            otherwise = _where(bb, relax.op.less(count, _number(0, dtype)), value, otherwise)
        return _where(bb, relax.op.greater(count, _number(width - 1, dtype)), value, otherwise)

    limited = beyond(_number(width - 1, dtype), count)
    shifted = bb.normalize((relax.op.left_shift if left else relax.op.right_shift)(x, limited))
    return shifted if not left and dtype.kind == "i" else beyond(_number(0, dtype), shifted)


@converts("BitCast")
def bit_cast(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """The same bits as another type of the same width."""
    to = str(np.dtype(helper.tensor_dtype_to_np_dtype(attrs["to"])))

    def compute(x: te.Tensor) -> te.Tensor:
        if "bool" in (to, x.dtype):
            return te.compute(x.shape, lambda *i: x(*i).astype(to), name="bits")
        return te.compute(x.shape, lambda *i: tirx.reinterpret(to, x(*i)), name="bits")

    if dtype_of(inputs[0]) == to:
        return inputs[0]
    return bb.emit_te(compute, inputs[0], primfunc_name_hint="bits")


@converts("Copy")
def copy(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """The same values in memory of their own."""
    return copied(bb, inputs[0])
