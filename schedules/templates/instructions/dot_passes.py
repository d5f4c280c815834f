"""Passes over kernels with dot products: operands as one load, and numbers rounded by instructions."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, PrimType
from tvm.ir.expr import TensorLoad

from schedules.templates.instructions.dots import FORMS, ROUNDED, SYMBOL, is_extern
from schedules.templates.instructions.llvm_target import cpu_features

ROUNDING = ({"avx512bf16", "avx512vl"}, {"neon", "bf16"})
"""LLVM's names of the processors that round vectors in one instruction (``vcvtneps2bf16``, ``bfcvtn``)."""


def operands_loaded(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, its buffers flat, with dot products of what it loads in place of pointers; weights of few bits stay.

    ``tensorize`` needs pointers: weights of a vector lie along two axes.
    """

    def loaded(call: Call) -> tirx.Expr:
        match = SYMBOL.fullmatch(str(call.args[0].value)) if is_extern(call) else None
        if match is None or FORMS[match[1]].bits:
            return call
        sums, form = tvm.DataType(str(call.ty.dtype)).lanes, FORMS[match[1]]
        *numbers, weights = (pointer.args[0] for pointer in call.args[2:])
        count = sums if form.turned else form.rows * form.rows
        words = [_bits(number, count // len(numbers)) for number in numbers]
        read = tirx.Shuffle(words, list(range(count))) if len(words) > 1 else words[0]
        return tirx.call_pure_extern(str(call.ty.dtype), call.args[0], call.args[1], read, _bits(weights, sums))

    return tvm_ffi.structural_map(func, (Call, loaded), order="pre")


def _bits(first: TensorLoad, count: int) -> tirx.Expr:
    """``count`` times 4 bytes from an element of a flat buffer on, as int32."""
    (index,) = first.indices
    elements = 4 * count * 8 // tvm.DataType(str(first.source.dtype)).bits
    together = tirx.BufferLoad(first.source, [tirx.Ramp(index, tirx.const(1, index.ty.dtype), elements)])
    return tirx.reinterpret("int32" if count == 1 else f"int32x{count}", together)


def rounded_in_hardware(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with vectors rounded to bfloat16 by the processor's instruction, if its target has one.

    TVM adds and shifts integers. LLVM would call a library for processors without the instruction.
    """
    target = func.attrs.get("target") if func.attrs else None
    if target is None or not any(features <= cpu_features(target) for features in ROUNDING):
        return func

    def rounded(call: Call) -> tirx.Expr:
        number = _rounded_number(call)
        lanes = 0 if number is None else tvm.DataType(str(call.ty.dtype)).lanes
        if number is None or lanes not in ROUNDED:
            return call
        words = tirx.call_pure_extern(f"uint16x{lanes}", f"tune_round_bf16_{lanes}", number)
        return tirx.reinterpret(f"bfloat16x{lanes}", words)

    return tvm_ffi.structural_map(func, (Call, rounded), order="pre")


def _rounded_number(call: Call) -> tirx.Expr | None:
    """x where ``call`` is what TVM's ``BF16ComputeLegalize`` makes of a cast of a float32 x to bfloat16.

    reinterpret(bfloat16, uint16((reinterpret(uint32, x) + …) >> 16))
    """
    if not _is(call, "reinterpret", "bfloat16") or not isinstance(call.args[0], tirx.Cast):
        return None
    shifted = call.args[0].value
    added = shifted.a if isinstance(shifted, tirx.RShift) else None
    bits = added.a if isinstance(added, tirx.Add) else None
    return bits.args[0] if isinstance(bits, Call) and _is(bits, "reinterpret", "uint32") else None


def _is(value: object, name: str, dtype: str) -> bool:
    """Return whether ``value`` is a call of one of TVM's operations with a result of ``dtype`` or vectors of it."""
    if not isinstance(value, Call) or str(getattr(value.op, "name", "")) != f"tirx.{name}":
        return False
    return isinstance(value.ty, PrimType) and str(value.ty.dtype).partition("x")[0] == dtype
