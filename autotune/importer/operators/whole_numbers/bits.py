"""Operators on the bits of numbers: shifts, casts that keep the bits, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from autotune.importer.rewriting.registry import Inputs, converts
from autotune.importer.rewriting.relax_values import dtype_of, text_of


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

    def number(value: int) -> relax.Expr:
        return relax.const(np.array(value, dtype), dtype.name)

    def where(hit: relax.Expr, value: relax.Expr, otherwise: relax.Expr) -> relax.Expr:
        return bb.normalize(relax.op.where(bb.normalize(hit), value, otherwise))

    def beyond(value: relax.Expr, otherwise: relax.Expr) -> relax.Expr:
        """One comparison a choice: TVM loads booleans as bytes, and LLVM refuses to mix them with comparisons."""
        if dtype.kind == "i":
            otherwise = where(relax.op.less(count, number(0)), value, otherwise)
        return where(relax.op.greater(count, number(width - 1)), value, otherwise)

    limited = beyond(number(width - 1), count)
    shifted = bb.normalize((relax.op.left_shift if left else relax.op.right_shift)(x, limited))
    return shifted if not left and dtype.kind == "i" else beyond(number(0), shifted)


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

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i), name="copy")

    return bb.emit_te(compute, inputs[0], primfunc_name_hint="copy")
