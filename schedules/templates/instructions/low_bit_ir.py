"""Dot products of weights of few bits, which are unpacked in registers, as LLVM functions that are inlined.

    result = symbol(sums <n x S>, x: ptr to the numbers, w: ptr to the weights)

``x`` points at the numbers that every lane multiplies, ``w`` at n times 4 bytes of weights, the 4 bytes of a lane
together: 4 numbers of 8 bits or 8 of 4, byte q the numbers q (its lower half) and 4 + q. Weights are unsigned, so in
an instruction of unsigned by signed bytes (``dot_ir.py``) they take the place of ``%x``, activations that of ``%w``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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


WIDENED = "tune_widen_u{bits}_{pair}{zero}"
"""Symbol of what makes one row of an AMX tile in bfloat16 of 64 bytes of weights: ``zero`` is ``_zero`` or empty."""

WIDENED_SYMBOL = re.compile(r"tune_widen_u(4|8)_([0-3])(_zero)?")

FLOATS = "tune_floats_u{bits}_{number}_{lanes}{zero}"
"""Symbol of what makes one number of every lane of a vector of weights float32."""

FLOATS_SYMBOL = re.compile(r"tune_floats_u(4|8)_([0-7])_(\d+)(_zero)?")

WIDENING = {"avx512f", "avx512bw", "avx512bf16"}
"""As LLVM calls what the processor needs for it."""

DECLARED_WIDENED = """
declare <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float>, <16 x i32>)
declare <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float>, <16 x float>)
"""
WIDENED_FUNCTION = """
define linkonce_odr <32 x i16> @{symbol}({parameters}) alwaysinline {{
  %w = load <16 x i32>, ptr %levels, align 1
  %s = load <16 x float>, ptr %scale, align 4
{lines}
  %short = call <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float> %f1, <16 x float> %f0)
  %pairs = shufflevector <32 x bfloat> %short, <32 x bfloat> poison, <32 x i32> <{order}>
  %r = bitcast <32 x bfloat> %pairs to <32 x i16>
  ret <32 x i16> %r
}}
"""
FLOATS_FUNCTION = """
define linkonce_odr <{n} x float> @{symbol}({parameters}) alwaysinline {{
  %w = load <{n} x i32>, ptr %levels, align 1
  %s = load <{n} x float>, ptr %scale, align 4
{zeros}
  %bits = lshr <{n} x i32> %w, splat (i32 {shift})
  %low = and <{n} x i32> %bits, splat (i32 {mask})
  %u = sitofp <{n} x i32> %low to <{n} x float>
  %c = fsub <{n} x float> %u, {half}
  %r = fmul <{n} x float> %c, %s
  ret <{n} x float> %r
}}
"""
WIDENED_ZERO = """
  %z8 = load <{n} x i8>, ptr %zero, align 1
  %z32 = zext <{n} x i8> %z8 to <{n} x i32>
  %first = insertelement <{n} x i32> poison, i32 %shift, i32 0
  %shifts = shufflevector <{n} x i32> %first, <{n} x i32> poison, <{n} x i32> zeroinitializer
  %zs = lshr <{n} x i32> %z32, %shifts
  %zl = and <{n} x i32> %zs, splat (i32 {mask})
  %z = sitofp <{n} x i32> %zl to <{n} x float>
"""
PARAMETERS = "ptr %levels, ptr %scale", "ptr %levels, ptr %scale, ptr %zero, i32 %shift"
"""Parameters of a function, where weights have no zero points and where they have."""


def widened_symbol(bits: int, pair: int, zero: bool) -> str:
    """Return the function of one row of an AMX tile."""
    return WIDENED.format(bits=bits, pair=pair, zero="_zero" if zero else "")


def floats_symbol(bits: int, lanes: int, number: int, zero: bool) -> str:
    """Return the function of one number of every lane."""
    return FLOATS.format(bits=bits, lanes=lanes, number=number, zero="_zero" if zero else "")


def definitions(called: Iterable[str]) -> list[str]:
    """Texts in LLVM's language for those of the ``called`` functions that widen weights."""
    names = sorted(set(called))
    rows = [match for match in map(WIDENED_SYMBOL.fullmatch, names) if match]
    texts = [widened_function(int(match[1]), int(match[2]), bool(match[3])) for match in rows]
    floats = [match for match in map(FLOATS_SYMBOL.fullmatch, names) if match]
    numbers = [floats_function(int(match[1]), int(match[3]), int(match[2]), bool(match[4])) for match in floats]
    return [*([DECLARED_WIDENED] if texts else []), *texts, *numbers]


def floats_function(bits: int, lanes: int, number: int, zero: bool) -> str:
    """(levels, scale[, zero points, shift]) → (number - zero) · scale of ``lanes`` columns, for any processor.

    Number ``number`` of the 8 of 4 bits or 4 of 8 that one vector of weights has of every column; zero points as
    ``widened_function`` has them.
    """
    mask = (1 << bits) - 1
    return FLOATS_FUNCTION.format(
        n=lanes,
        symbol=floats_symbol(bits, lanes, number, zero),
        parameters=PARAMETERS[zero],
        zeros=WIDENED_ZERO.format(n=lanes, mask=mask).strip("\n") if zero else "",
        shift=8 * (number % 4) + 4 * (number // 4),
        mask=mask,
        half="%z" if zero else f"splat (float {1 << (bits - 1)}.0)",
    )


def widened_function(bits: int, pair: int, zero: bool) -> str:
    """(levels, scale[, zero points, shift]) → (number - zero) · scale of 16 columns, rounded to pairs of bfloat16.

    Numbers 2 · ``pair`` and the next of the 8 of 4 bits or 4 of 8 that 64 bytes of weights have of every column: a row
    of a tile. Zero points are 16 bytes, shifted by ``shift`` bits; without them they are half of the range.
    """
    mask, half = (1 << bits) - 1, 0 if zero else 1 << (bits - 1)
    lines = WIDENED_ZERO.format(n=16, mask=mask).strip("\n").splitlines() if zero else []
    table = ", ".join(f"float {number - half}.0" for number in range(16))
    for i in range(2):
        number = 2 * pair + i
        lines.append(f"  %bits{i} = lshr <16 x i32> %w, splat (i32 {8 * (number % 4) + 4 * (number // 4)})")
        if bits == 4:
            looked_up = f"@llvm.x86.avx512.permvar.sf.512(<16 x float> <{table}>, <16 x i32> %bits{i})"
            lines.append(f"  %c{i} = call <16 x float> {looked_up}")
        else:
            lines.append(f"  %low{i} = and <16 x i32> %bits{i}, splat (i32 {mask})")
            lines.append(f"  %u{i} = sitofp <16 x i32> %low{i} to <16 x float>")
            lines.append(f"  %c{i} = fsub <16 x float> %u{i}, splat (float {half}.0)")
        if zero:
            lines.append(f"  %n{i} = fsub <16 x float> %c{i}, %z")
        lines.append(f"  %f{i} = fmul <16 x float> %{'n' if zero else 'c'}{i}, %s")
    return WIDENED_FUNCTION.format(
        symbol=widened_symbol(bits, pair, zero),
        parameters=PARAMETERS[zero],
        lines="\n".join(lines),
        order=", ".join(f"i32 {lane}, i32 {lane + 16}" for lane in range(16)),
    )
