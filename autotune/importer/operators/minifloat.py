"""Narrow number formats: how their bit patterns (*codes*) are laid out, and kernels between them and numbers.

TVM sees the codes only. A tensor of such a type travels as unsigned integers, one byte per element (bfloat16: two),
which is also how NumPy keeps it (``ml_dtypes``). Arithmetic decodes to fp32 first and encodes its result: one rounding
per operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto as T
from tvm import relax, te, tirx

from autotune.importer.rewriting.registry import Inputs, converts
from autotune.importer.rewriting.relax_values import text_of


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


def _int(value: int) -> Any:
    return tirx.const(value, "int32")


@converts("Decode")
def decode(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Codes → fp32, or int32 for integers."""
    kind = text_of(attrs, "format")

    def number(code: Any) -> Any:
        if kind in INTEGERS:
            return _integer(code, INTEGERS[kind])
        return _float(code, FLOATS[kind]) if kind in FLOATS else _scale(code)

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: number(x(*i).astype("int32")), name="decode")

    return bb.emit_te(compute, inputs[0], primfunc_name_hint="decode")


def _integer(code: Any, form: Integer) -> Any:
    sign = 1 << (form.bits - 1)
    code = code & _int((1 << form.bits) - 1)
    return (code ^ _int(sign)) - _int(sign) if form.signed else code


def _float(code: Any, form: Float) -> Any:
    if form.bits == 16:
        return tirx.reinterpret("float32", code << _int(16))
    sign_bit = 1 << (form.bits - 1)
    magnitude = code & _int(sign_bit - 1)
    exponent, fraction = magnitude >> _int(form.mantissa), magnitude & _int((1 << form.mantissa) - 1)
    normal = tirx.reinterpret(
        "float32", ((exponent + _int(127 - form.bias)) << _int(23)) | (fraction << _int(23 - form.mantissa))
    )
    tiny = fraction.astype("float32") * tirx.const(2.0 ** (1 - form.bias - form.mantissa), "float32")
    value = tirx.Select(exponent == _int(0), tiny, normal)
    if form.infinity is not None:
        value = tirx.Select(magnitude == _int(form.infinity), tirx.const(np.inf, "float32"), value)
    if form.nan is not None and form.nan < sign_bit:
        value = tirx.Select(magnitude > _int(form.largest if form.infinity is None else form.infinity), _nan(), value)
    value = tirx.Select((code & _int(sign_bit)) != _int(0), tirx.const(0.0, "float32") - value, value)
    if form.nan is not None and form.nan >= sign_bit:
        value = tirx.Select(code == _int(form.nan), _nan(), value)
    return value


def _nan() -> Any:
    return tirx.reinterpret("float32", _int(0x7FC00000))


def _scale(code: Any) -> Any:
    tiny = tirx.reinterpret("float32", _int(1 << 22))  # 2^-127, below the smallest normal
    value = tirx.Select(code == _int(0), tiny, tirx.reinterpret("float32", code << _int(23)))
    return tirx.Select(code == _int(255), _nan(), value)


@converts("Encode")
def encode(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Numbers → codes, to the nearest, ties to even; beyond the range as ``saturate`` says."""
    kind, saturate = text_of(attrs, "format"), bool(attrs.get("saturate", 1))
    mode = text_of(attrs, "round_mode", "up")
    word = "uint16" if kind == "BFLOAT16" else "uint8"

    def code(x: Any) -> Any:
        if kind in INTEGERS:
            return x & _int((1 << INTEGERS[kind].bits) - 1)
        bits = tirx.reinterpret("int32", x)
        if kind not in FLOATS:
            return _scale_code(bits, mode, saturate)
        return _bfloat_code(bits) if kind == "BFLOAT16" else _float_code(x, FLOATS[kind], saturate)

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: code(x(*i)).astype(word), name="encode")

    return bb.emit_te(compute, inputs[0], primfunc_name_hint="encode")


def _bfloat_code(bits: Any) -> Any:
    rounded = (bits + _int(0x7FFF) + ((bits >> _int(16)) & _int(1))) >> _int(16)
    nan = (bits & _int(0x7FFFFFFF)) > _int(0x7F800000)
    return tirx.Select(nan, _int(0x7FC0), rounded) & _int(0xFFFF)


def _float_code(x: Any, form: Float, saturate: bool) -> Any:
    """Normal results: the code is the number's own bits, rounded at bit 23 − m, with another bias. Tiny ones: adding
    2^(24 − bias − m) leaves |x| in units of the smallest code in the low bits, rounded by the adder.
    """
    bits = tirx.reinterpret("int32", x)
    shift = _int(23 - form.mantissa)
    magnitude = bits & _int(0x7FFFFFFF)
    capped = tirx.min(magnitude, _int(0x7F800000))
    half = _int((1 << (22 - form.mantissa)) - 1) + ((capped >> shift) & _int(1))
    normal = ((capped + half) >> shift) - _int((127 - form.bias) << form.mantissa)
    unit = np.float32(2.0 ** (24 - form.bias - form.mantissa))
    tiny = tirx.reinterpret("int32", tirx.abs(x) + tirx.const(unit, "float32")) - _int(int(unit.view(np.int32)))
    code = tirx.Select(magnitude < _int((128 - form.bias) << 23), tiny, normal)
    nan = _int(form.largest + 1 if form.nan is None else form.nan)
    beyond = _int(form.largest) if saturate or form.nan is None else _int(form.infinity or form.nan or 0)
    code = tirx.Select(code > _int(form.largest), beyond, code)
    code = tirx.Select(magnitude > _int(0x7F800000), nan if form.nan is not None else _int(0), code)
    sign = _int(1 << (form.bits - 1))
    signed = bits < _int(0)
    if not form.signed_zero:  # the code of minus zero is NaN's
        signed = tirx.all(signed, code != _int(0))
    return tirx.Select(signed, code | sign, code)


def _scale_code(bits: Any, mode: str, saturate: bool) -> Any:
    exponent, fraction = (bits >> _int(23)) & _int(255), bits & _int(0x7FFFFF)
    if mode == "up":
        more = fraction > _int(0)
    elif mode == "nearest":
        more = fraction >= _int(1 << 22)
    else:
        more = fraction > _int(0x7FFFFF)
    if mode != "down":  # below 2^-126 numbers have no leading one: 2^-127 is the smallest code
        more = tirx.Select(exponent == _int(0), fraction > _int(1 << 22), more)
    code = exponent + tirx.Select(more, _int(1), _int(0))
    code = tirx.Select(code > _int(254), _int(254 if saturate else 255), code)
    return tirx.Select(exponent == _int(255), _int(255), code)
