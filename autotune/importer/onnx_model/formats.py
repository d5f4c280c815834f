"""Narrow number formats: how their bit patterns (*codes*) are laid out. TVM sees the codes only.

A tensor of such a type travels as unsigned integers, one byte per element (bfloat16: two), which is also how NumPy
keeps it (``ml_dtypes``). Arithmetic decodes to fp32 first and encodes its result: one rounding per operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import TensorProto as T


@dataclass(frozen=True)
class Float:
    """A binary floating point format with a sign.

    Attributes:
        mantissa, bias: bits after the point, and what is added to the exponent.
        largest: code of the largest finite value.
        nan: code of NaN; None where there is none.
        infinity: code of infinity; None where there is none.
        bits: of the whole code.
        signed_zero: whether minus zero has a code.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int | None
    infinity: int | None = None
    bits: int = 8
    signed_zero: bool = True


@dataclass(frozen=True)
class Integer:
    """An integer of ``bits`` bits in the low end of a byte."""

    bits: int
    signed: bool


FLOATS: Mapping[str, Float] = {
    "BFLOAT16": Float(7, 127, 0x7F7F, 0x7FC0, 0x7F80, 16),
    "FLOAT8E4M3FN": Float(3, 7, 0x7E, 0x7F),
    "FLOAT8E4M3FNUZ": Float(3, 8, 0x7F, 0x80, signed_zero=False),
    "FLOAT8E5M2": Float(2, 15, 0x7B, 0x7E, 0x7C),
    "FLOAT8E5M2FNUZ": Float(2, 16, 0x7F, 0x80, signed_zero=False),
    "FLOAT4E2M1": Float(1, 1, 0x7, None, bits=4),
}
SCALES = ("FLOAT8E8M0",)
"""A power of two, code − 127; 0xFF is NaN."""
INTEGERS: Mapping[str, Integer] = {
    "INT4": Integer(4, True),
    "UINT4": Integer(4, False),
    "INT2": Integer(2, True),
    "UINT2": Integer(2, False),
}
NARROW: Mapping[int, str] = {int(T.DataType.Value(name)): name for name in (*FLOATS, *SCALES, *INTEGERS)}
"""ONNX element type → name."""

STORAGE: Mapping[int, int] = {number: T.UINT16 if name == "BFLOAT16" else T.UINT8 for number, name in NARROW.items()}
"""ONNX element type → the unsigned type that its codes are stored as."""
