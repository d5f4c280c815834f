"""Functions of a byte as tables of 256 bytes, which lie in registers where a processor permutes bytes (AVX512_VBMI).

    vectors of 16 lanes:  load(table, i)  →  bytes of low or high half of the table, two ``vpermi2b`` and a choice

Elsewhere TVM loads lane by lane. A sigmoid or an erf takes some 30 operations of a vector, a division among them.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir.expr import TensorLoad

SIZE = 256
PART = 64
"""Bytes of a vector that is permuted."""

FEATURE = "avx512vbmi"
"""LLVM's name of what a processor needs."""

LANES = (16, 32, 64)

SYMBOL = "tune_table_{n}"

TABLE = """
declare <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8>, <64 x i8>, <64 x i8>)
define linkonce_odr <{n} x i8> @{symbol}(
    <{n} x i32> %i, <64 x i8> %t0, <64 x i8> %t1, <64 x i8> %t2, <64 x i8> %t3) alwaysinline {{
{spread}
  %low = call <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8> %t0, <64 x i8> %b, <64 x i8> %t1)
  %high = call <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8> %t2, <64 x i8> %b, <64 x i8> %t3)
  %top = icmp slt <64 x i8> %b, zeroinitializer
  %found = select <64 x i1> %top, <64 x i8> %high, <64 x i8> %low
{gather}
  ret <{n} x i8> %r
}}
"""
IN_LANES = (
    "  %b = bitcast <16 x i32> %i to <64 x i8>",
    "  %w = bitcast <64 x i8> %found to <16 x i32>\n  %r = trunc <16 x i32> %w to <16 x i8>",
)
"""An index and what is found for it lie in the lowest byte of a lane."""
TOGETHER = (
    """  %s = trunc <{n} x i32> %i to <{n} x i8>
  %b = shufflevector <{n} x i8> %s, <{n} x i8> poison, <64 x i32> <{widened}>""",
    "  %r = shufflevector <64 x i8> %found, <64 x i8> poison, <{n} x i32> <{kept}>",
)


def looked_up(x: te.Tensor, table: te.Tensor) -> te.Tensor:
    """The bytes of ``table`` (256,) at the bits of x, whose type may be any integer, in x's shape."""
    return te.compute(x.shape, lambda *at: table[x(*at).astype("uint8").astype("int32")], name="table")


def tables_in_registers(func: tirx.PrimFunc, features: frozenset[str]) -> tirx.PrimFunc:
    """``func``, its buffers flat, with vectors of loads from tables as calls."""
    if FEATURE not in features:
        return func

    def looked(load: TensorLoad) -> tirx.Expr:
        shape = load.source.shape if hasattr(load.source, "shape") else load.source.ty.shape
        (index, *more), lanes = load.indices, tvm.DataType(str(load.ty.dtype)).lanes
        is_table = [int(size) for size in shape if isinstance(size, tirx.IntImm)] == [SIZE]
        is_byte = str(load.source.dtype) in ("uint8", "int8")
        is_vector = lanes in LANES and str(index.ty.dtype) == f"int32x{lanes}"
        if more or not is_table or not is_byte or not is_vector or isinstance(index, tirx.Ramp | tirx.Broadcast):
            return load
        parts = [
            tirx.BufferLoad(load.source, [tirx.Ramp(tirx.const(first, "int32"), tirx.const(1, "int32"), PART)])
            for first in range(0, SIZE, PART)
        ]
        return tirx.call_pure_extern(str(load.ty.dtype), SYMBOL.format(n=lanes), index, *parts)

    return tvm_ffi.structural_map(func, (TensorLoad, looked), order="post")


def table_definition(lanes: int) -> str:
    """The function of that name, in LLVM's language."""
    spread, gather = IN_LANES if lanes == LANES[0] else TOGETHER
    widened = ", ".join(f"i32 {at if at < lanes else 'poison'}" for at in range(PART))
    kept = ", ".join(f"i32 {at}" for at in range(lanes))
    texts = [text.format(n=lanes, widened=widened, kept=kept) for text in (spread, gather)]
    return TABLE.format(n=lanes, symbol=SYMBOL.format(n=lanes), spread=texts[0], gather=texts[1])
