"""Roundings to bytes in few instructions: a sum in fp32 leaves the integer in its bits.

For |x| < 2²², x + M with M = 1.5·2²³ is a float32 whose unit is 1: the addition rounds x to the nearest integer, halves
to even, and the bits of the result are those of M plus that integer. LLVM makes one multiply-add of it and of the
scale before it. Numbers that are larger still order as they should, so what clips them may come behind. With z the zero
point, floored, and l and h the ends of the type:

    byte(clip(round(x) + z, l, h))         =  byte(min(bits(max(x + M, M + l − z)) − bits(M) + z, h))
    float(byte(clip(round(x) + z, l, h)))  =  min(max(x + M, M + l − z), M + h − z) + (z − M)

A NaN becomes l, as in ONNX Runtime: the maximum of floats is its second operand then.

In place of ``vrndscaleps`` (two operations), an addition, two comparisons, a conversion and a ``vpmovdb``, a vector of
sums takes a multiply-add, a comparison, a subtraction and a saturating ``vpmovusdb``; and what is quantised only to be
read again never becomes an integer. z may be floored: round(x) is whole, and what is cut off behind the sum is the
fraction of z, or all of a negative sum, which l = 0 would have clipped. For int8 this holds for whole z only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.target import codegen

MAGIC = 12582912.0
"""M."""
MAGIC_BITS = 0x4B400000
"""M's bits."""

NARROW = {"uint8": (0, 255), "int8": (-128, 127)}

FLOAT, WORD = "float32", "int32"


@dataclass(frozen=True)
class _Rounded:
    """byte(clip(round(x) + z, low, high)).

    Attributes:
        zero: z, None where nothing is added.
    """

    x: tirx.Expr
    zero: tirx.Expr | None
    dtype: str

    @property
    def shift(self) -> tirx.Expr:
        """Z as a whole float32."""
        if self.zero is None:
            return _float(0)
        if isinstance(self.zero, tirx.FloatImm):
            return _float(math.floor(self.zero.value))
        return tirx.call_llvm_pure_intrin(FLOAT, "llvm.floor", self.zero)

    def byte(self) -> tirx.Expr:
        """The byte itself."""
        low, high = NARROW[self.dtype]
        zero = self.shift
        whole = _word(int(zero.value)) if isinstance(zero, tirx.FloatImm) else tirx.Cast(WORD, zero)
        clipped = tirx.max(self.x + _float(MAGIC), _float(MAGIC + low) - zero)
        level = tirx.reinterpret(WORD, clipped) - (_word(MAGIC_BITS) - whole)
        if low == 0:
            return tirx.Cast(self.dtype, tirx.min(tirx.Cast("uint32", level), tirx.const(high, "uint32")))
        return tirx.Cast(self.dtype, tirx.min(level, _word(high)))

    def number(self, less: tirx.Expr | None = None) -> tirx.Expr:
        """The byte as a float32, ``less`` subtracted."""
        low, high = NARROW[self.dtype]
        clipped = tirx.max(self.x + _float(MAGIC), _float(MAGIC + low) - self.shift)
        clipped = tirx.min(clipped, _float(MAGIC + high) - self.shift)
        if less is None or (_is_whole(less) and isinstance(self.shift, tirx.FloatImm)):
            return clipped + (self.shift - _float(MAGIC) - (_float(0) if less is None else less))
        return (clipped - _float(MAGIC)) + (self.shift - less)


Code = TypeVar("Code", tirx.PrimFunc, tirx.Expr)


def rounded_in_bits(func: Code) -> Code:
    """``func``, its expressions still of single numbers, with roundings to bytes as above."""

    def rewritten(node: tirx.Sub | tirx.Cast) -> tirx.Expr:
        if isinstance(node, tirx.Sub):
            form = _read_again(node.a)
            return node if form is None else form.number(node.b)
        if (form := _read_again(node)) is not None:
            return form.number()
        form = _rounded(node)
        return node if form is None else form.byte()

    # Before what is inside: a byte that is read again would be one already.
    mapped: Code = tvm_ffi.structural_map(func, ((tirx.Sub, tirx.Cast), rewritten), order="pre")
    return mapped


def _read_again(expr: tirx.Expr) -> _Rounded | None:
    """Return the rounded byte of which ``expr`` is the float32, perhaps by way of int32; None for anything else."""
    if not isinstance(expr, tirx.Cast) or str(expr.ty.dtype) != FLOAT:
        return None
    value = expr.value
    if isinstance(value, tirx.Cast) and str(value.ty.dtype) == WORD:
        value = value.value
    return _rounded(value)


def _rounded(expr: tirx.Expr) -> _Rounded | None:
    """Parts of byte(int32(max(min(round(x) + z, high), low))), None where ``expr`` is something else."""
    dtype = str(expr.ty.dtype)
    if not isinstance(expr, tirx.Cast) or dtype not in NARROW or not isinstance(expr.value, tirx.Cast):
        return None
    low, high = NARROW[dtype]
    above = _limited(expr.value.value, tirx.Max, low)
    whole = None if above is None else _limited(above, tirx.Min, high)
    if whole is None:
        return None
    zero = None
    if isinstance(whole, tirx.Add):
        whole, zero = (whole.a, whole.b) if _is_nearest(whole.a) else (whole.b, whole.a)
    if not _is_nearest(whole) or (low < 0 and zero is not None and not _is_whole(zero)):
        return None
    return _Rounded(whole.args[1], zero, dtype)


def _limited(expr: tirx.Expr, kind: type[tirx.Max | tirx.Min], limit: int) -> tirx.Expr | None:
    """Return the expression that a Max or Min of ``limit`` limits."""
    if not isinstance(expr, kind) or str(expr.ty.dtype) != FLOAT:
        return None
    sides = [(expr.a, expr.b), (expr.b, expr.a)]
    return next((x for x, end in sides if isinstance(end, tirx.FloatImm) and end.value == limit), None)


def _is_nearest(expr: tirx.Expr) -> bool:
    """Return whether ``expr`` is ``vector_math.nearest`` of something."""
    if not isinstance(expr, Call) or str(getattr(expr.op, "name", "")) != "tirx.call_llvm_pure_intrin":
        return False
    return int(expr.args[0]) == _nearbyint()


@cache
def _nearbyint() -> int:
    return int(codegen.llvm_lookup_intrinsic_id("llvm.nearbyint"))


def _is_whole(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.FloatImm) and float(expr.value).is_integer()


def _float(value: float) -> tirx.Expr:
    return tirx.const(value, FLOAT)


def _word(value: int) -> tirx.Expr:
    return tirx.const(value, WORD)
