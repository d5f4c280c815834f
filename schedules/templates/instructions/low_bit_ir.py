"""Dot products of weights of few bits, which are unpacked in registers, as LLVM functions that are inlined.

    result = symbol(sums <n x S>, x: ptr to the numbers, w: ptr to the weights)

``x`` points at the numbers that every lane multiplies, ``w`` at n times 4 bytes of weights, the 4 bytes of a lane
together: 4 numbers of 8 bits or 8 of 4, byte q the numbers q (its lower half) and 4 + q. Weights are unsigned, so in
an instruction of unsigned by signed bytes (``dot_ir.py``) they take the place of ``%x``, activations that of ``%w``.
"""

from __future__ import annotations

LOADED = """
  %from{part} = getelementptr i8, ptr %from, i64 {offset}
  %one{part} = load i32, ptr %from{part}, align 1
  %first{part} = insertelement <{n} x i32> poison, i32 %one{part}, i32 0
  %x{part} = shufflevector <{n} x i32> %first{part}, <{n} x i32> poison, <{n} x i32> zeroinitializer
"""
BYTES_OF_WEIGHTS = """
{declared}
define linkonce_odr <{n} x i32> @{symbol}_step(<{n} x i32> %c, <{n} x i32> %x, <{n} x i32> %w) alwaysinline {{
{body}
  ret <{n} x i32> %r
}}
define linkonce_odr <{n} x i32> @{symbol}(<{n} x i32> %c, ptr %from, ptr %weights) alwaysinline {{
  %w = load <{n} x i32>, ptr %weights, align 1
{steps}
  ret <{n} x i32> %r
}}
"""
WHOLE_BYTES = """
  %r = call <{n} x i32> @{symbol}_step(<{n} x i32> %c, <{n} x i32> %w, <{n} x i32> %x0)
"""
HALF_BYTES = """
  %w0 = and <{n} x i32> %w, splat (i32 252645135)
  %up = lshr <{n} x i32> %w, splat (i32 4)
  %w1 = and <{n} x i32> %up, splat (i32 252645135)
  %s = call <{n} x i32> @{symbol}_step(<{n} x i32> %c, <{n} x i32> %w0, <{n} x i32> %x0)
  %r = call <{n} x i32> @{symbol}_step(<{n} x i32> %s, <{n} x i32> %w1, <{n} x i32> %x1)
"""


def low_bit_function(symbol: str, lanes: int, bits: int, body: str, declared: str = "") -> str:
    """A dot product of int8 activations and unsigned weights of 4 or 8 ``bits``, by an instruction for bytes."""
    sizes = {"n": lanes, "n2": 2 * lanes, "n4": 4 * lanes, "bits": 32 * lanes, "symbol": symbol}
    steps = "".join(LOADED.format(part=part, offset=4 * part, **sizes) for part in range(8 // bits))
    steps += (HALF_BYTES if bits == 4 else WHOLE_BYTES).format(**sizes)
    body, declared = body.strip("\n").format(**sizes), declared.format(**sizes)
    return BYTES_OF_WEIGHTS.format(body=body, declared=declared, steps=steps, **sizes)


FLOATS_OF_WEIGHTS = """
declare <{n} x float> @llvm.fmuladd.v{n}f32(<{n} x float>, <{n} x float>, <{n} x float>)
{declared}
define linkonce_odr <{n} x float> @{symbol}(<{n} x float> %c, ptr %from, ptr %weights) alwaysinline {{
  %w = load <{n} x i32>, ptr %weights, align 1
{steps}
  ret <{n} x float> %r
}}
"""
FLOAT_STEP = """
  %at{i} = getelementptr float, ptr %from, i64 {i}
  %one{i} = load float, ptr %at{i}, align 4
  %first{i} = insertelement <{n} x float> poison, float %one{i}, i32 0
  %x{i} = shufflevector <{n} x float> %first{i}, <{n} x float> poison, <{n} x i32> zeroinitializer
  %bits{i} = lshr <{n} x i32> %w, splat (i32 {shift})
{number}
  {to} = call <{n} x float> @llvm.fmuladd.v{n}f32(<{n} x float> %x{i}, <{n} x float> %w{i}, <{n} x float> {c})
"""
CONVERTED = """
  %low{i} = and <{n} x i32> %bits{i}, splat (i32 {mask})
  %w{i} = sitofp <{n} x i32> %low{i} to <{n} x float>
"""

# A permutation of 16 floats takes the lower 4 bits of each lane: one instruction where masking and converting are two.

LOOKED_UP = (
    "  %w{i} = call <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float> <"
    + ", ".join(f"float {number}.0" for number in range(16))
    + ">, <16 x i32> %bits{i})"
)
DECLARED_LOOKED_UP = "declare <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float>, <16 x i32>)"


def low_bit_float_function(symbol: str, lanes: int, bits: int, number: str = CONVERTED, declared: str = "") -> str:
    """A dot product of float32 activations and unsigned weights of 4 or 8 ``bits``; ``number`` makes a float of one."""
    count = 32 // bits
    steps = ""
    for i in range(count):
        shift = 8 * (i % 4) + 4 * (i // 4)
        names = {"i": i, "n": lanes, "mask": (1 << bits) - 1}
        sums = {"c": f"%s{i - 1}" if i else "%c", "to": f"%s{i}" if i + 1 < count else "%r"}
        steps += FLOAT_STEP.format(number=number.format(**names).strip("\n"), shift=shift, **names, **sums)
    return FLOATS_OF_WEIGHTS.format(n=lanes, symbol=symbol, declared=declared, steps=steps)
