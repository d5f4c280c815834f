"""Differences of floats that are rounded as they are written.

TVM's simplifier cancels floats as if they were real numbers:

    (x + c) − c    →  x                 a sum of large c rounds x: exporters round to integers with it
    x − x          →  0                 infinity and NaN give NaN
    x − (x + y)    →  0 − y             the error of a sum, by which pairs of floats have twice the digits

So a difference whose operands have something in common becomes a sum, x − y → x + (−1 · y), which has the same bits.
TVM leaves it alone, and LLVM makes one instruction of it. The program of a task, and so its key, does not change:
this is a step of lowering.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import nodes_below


def differences_kept(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, which is scheduled, without differences that TVM could cancel."""

    def kept(node: tirx.Sub) -> tirx.Expr:
        if "float" not in str(node.ty.dtype) or not _has_common_part(node.a, node.b):
            return node
        if isinstance(node.b, tirx.FloatImm):
            return tirx.Add(node.a, tirx.const(-node.b.value, node.ty.dtype))
        return tirx.Add(node.a, tirx.Mul(node.b, tirx.const(-1.0, node.ty.dtype)))

    return tvm_ffi.structural_map(func, (tirx.Sub, kept), order="post")


def _has_common_part(a: tirx.Expr, b: tirx.Expr) -> bool:
    """Return whether both sides read one tensor or one number, or a side reads a value that is bound to a name."""
    if any("float" in str(name.ty) for side in (a, b) for name in nodes_below(side, tirx.Var)):
        return True
    tensors, others = ([load.source for load in nodes_below(side, TensorLoad)] for side in (a, b))
    if any(mine.same_as(other) for mine in tensors for other in others):
        return True
    numbers, rest = ({float(number.value) for number in nodes_below(side, tirx.FloatImm)} for side in (a, b))
    return not numbers.isdisjoint(rest)
