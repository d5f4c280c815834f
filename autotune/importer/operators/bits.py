"""BitShift with counts that no machine instruction defines: negative, or as wide as the number."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from autotune.importer.conversion.frontend import Inputs, converts


@converts("BitShift")
def bit_shift(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """All bits are shifted out then, as in NumPy: 0 is left, or -1 of a negative number shifted right."""
    x, count = inputs[0], inputs[1]
    assert x is not None
    assert count is not None
    left = "LEFT" in str(attrs["direction"])
    dtype = np.dtype(str(x.ty.dtype))
    width = 8 * dtype.itemsize

    def number(value: int) -> relax.Expr:
        return relax.const(np.array(value, dtype), dtype.name)

    inside = relax.op.logical_and(
        relax.op.greater_equal(count, number(0)), relax.op.less_equal(count, number(width - 1))
    )
    inside = bb.normalize(inside)
    limited = bb.normalize(relax.op.where(inside, count, number(width - 1)))
    shifted = bb.normalize((relax.op.left_shift if left else relax.op.right_shift)(x, limited))
    if not left and dtype.kind == "i":
        return shifted
    return bb.normalize(relax.op.where(inside, shifted, number(0)))
