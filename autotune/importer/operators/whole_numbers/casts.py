"""Casts of floats to integers and booleans. What the target cannot hold, and NaN, become what they are on x86.

With w the width of the target, h = 2^(w − 1), and int(x) = trunc(x) if |x| < h, else −h:

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
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.rewriting.registry import Inputs, converts
from autotune.importer.rewriting.relax_values import native

WORD_BITS = 32
"""Width of the integer that shorter ones are cut from."""


@converts("Cast")
def cast(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Floats become integers and booleans as above; every other cast is Relax's own."""
    x = inputs[0]
    to = np.dtype(helper.tensor_dtype_to_np_dtype(attrs["to"]))
    source = str(getattr(getattr(x, "ty", None), "dtype", ""))
    if isinstance(x, GenericConst | relax.ShapeExpr) or "float" not in source or to.kind not in "iub":
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
