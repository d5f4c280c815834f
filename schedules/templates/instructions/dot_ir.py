"""Dot products as LLVM functions that are inlined where they are called.

TVM cannot spell the operands of most of these instructions (``<32 x bfloat>``), so a kernel hands integers to a
function of LLVM's own language, and what remains after inlining is the instruction.

    result = symbol(sums <n x S>, x: i32, w: <n x i32>)

``x`` is the 4 bytes that every lane multiplies, ``w`` n times 4 bytes of weights, the 4 bytes of a lane together. Where
every lane has numbers of its own, ``x`` is <n x i32>: 4 times n bytes, those of a lane n apart. The kernel loads both
itself: LLVM then knows from which buffer, and keeps sums in registers that lie in another. The text of one instruction
says what to do with ``%x`` (4 bytes for each of n lanes, as <n x i32>) and ``%w`` and leaves its result in ``%r``.
"""

from __future__ import annotations

FUNCTION = """
{declared}
define linkonce_odr <{n} x {sum}> @{symbol}(<{n} x {sum}> %c, {number} %given, <{n} x i32> %w) alwaysinline {{
{spread}
{body}
  ret <{n} x {sum}> %r
}}
"""


SPREAD = """
  %first = insertelement <{n} x i32> poison, i32 %given, i32 0
  %x = shufflevector <{n} x i32> %first, <{n} x i32> poison, <{n} x i32> zeroinitializer
"""
LANE = """
  %first = insertelement <{n} x i32> poison, i32 %given, i32 0
  %held = call <{n} x i32> asm "", "=w,0"(<{n} x i32> %first) nounwind willreturn memory(none)
  %x = shufflevector <{n} x i32> %held, <{n} x i32> poison, <{n} x i32> zeroinitializer
"""
TURNED = """
  %bytes = bitcast <{n} x i32> %given to <{n4} x i8>
  %together = shufflevector <{n4} x i8> %bytes, <{n4} x i8> poison, <{n4} x i32> <{order}>
  %x = bitcast <{n4} x i8> %together to <{n} x i32>
"""


def function(symbol: str, lanes: int, sum_type: str, body: str, declared: str = "", spread: str = SPREAD) -> str:
    """The definition of one dot product of ``lanes`` sums, with what it calls declared.

    Args:
        spread: how lanes get their numbers. ``LANE``: the instruction takes ``%x`` from one lane of a register. LLVM
            does not see that it may where the lane is loaded: it loads into all lanes, which takes a slot of those that
            multiply. So it does not see the load. ``TURNED``: every lane has its own.
    """
    sizes = {"n": lanes, "n2": 2 * lanes, "n4": 4 * lanes, "bits": 32 * lanes, "sum": sum_type}
    sizes["number"] = f"<{lanes} x i32>" if spread == TURNED else "i32"
    sizes["order"] = ", ".join(f"i32 {byte * lanes + lane}" for lane in range(lanes) for byte in range(4))
    body, spread = (text.strip("\n").format(**sizes) for text in (body, spread))
    return FUNCTION.format(symbol=symbol, declared=declared.format(**sizes), spread=spread, body=body, **sizes)


# One instruction multiplies 4 unsigned by 4 signed bytes and adds their sum: AVX512_VNNI, AVX-VNNI.

VPDPBUSD = """
  %xb = bitcast <{n} x i32> %x to <{n4} x i8>
  %wb = bitcast <{n} x i32> %w to <{n4} x i8>
  %r = call <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32> %c, <{n4} x i8> %xb, <{n4} x i8> %wb)
"""
DECLARED_VPDPBUSD = "declare <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32>, <{n4} x i8>, <{n4} x i8>)"

# Two multiplies of pairs of 16-bit numbers, bytes 0 and 2 and bytes 1 and 3: exact, no pair can saturate.

VPMADDWD = """
  %xw = bitcast <{n} x i32> %x to <{n2} x i16>
  %ww = bitcast <{n} x i32> %w to <{n2} x i16>
  %x0 = and <{n2} x i16> %xw, splat (i16 255)
  %x1 = lshr <{n2} x i16> %xw, splat (i16 8)
  %up = shl <{n2} x i16> %ww, splat (i16 8)
  %w0 = ashr <{n2} x i16> %up, splat (i16 8)
  %w1 = ashr <{n2} x i16> %ww, splat (i16 8)
  %p0 = call <{n} x i32> @llvm.x86.PMADD(<{n2} x i16> %x0, <{n2} x i16> %w0)
  %p1 = call <{n} x i32> @llvm.x86.PMADD(<{n2} x i16> %x1, <{n2} x i16> %w1)
  %s = add <{n} x i32> %c, %p0
  %r = add <{n} x i32> %s, %p1
"""
DECLARED_VPMADDWD = "declare <{n} x i32> @llvm.x86.PMADD(<{n2} x i16>, <{n2} x i16>)"

# AArch64 with I8MM: one instruction multiplies 4 unsigned by 4 signed bytes. LLVM takes the number as one lane of a
# register (``sudot v, v, v.4b[0]``).

USDOT = """
  %xb = bitcast <{n} x i32> %x to <{n4} x i8>
  %wb = bitcast <{n} x i32> %w to <{n4} x i8>
  %r = call <{n} x i32> @llvm.aarch64.neon.usdot.v{n}i32.v{n4}i8(<{n} x i32> %c, <{n4} x i8> %xb, <{n4} x i8> %wb)
"""
DECLARED_USDOT = "declare <{n} x i32> @llvm.aarch64.neon.usdot.v{n}i32.v{n4}i8(<{n} x i32>, <{n4} x i8>, <{n4} x i8>)"

# AArch64 with only signed by signed: (x - 128) · w + 128 · Σ w. Where tiles share weights, so they do Σ w.

SDOT = """
  %low = xor <{n} x i32> %x, splat (i32 -2139062144)
  %xb = bitcast <{n} x i32> %low to <{n4} x i8>
  %wb = bitcast <{n} x i32> %w to <{n4} x i8>
  %of = call <{n} x i32> @llvm.aarch64.neon.sdot.v{n}i32.v{n4}i8(
    <{n} x i32> zeroinitializer, <{n4} x i8> %wb, <{n4} x i8> splat (i8 1))
  %back = shl <{n} x i32> %of, splat (i32 7)
  %s = call <{n} x i32> @llvm.aarch64.neon.sdot.v{n}i32.v{n4}i8(<{n} x i32> %c, <{n4} x i8> %wb, <{n4} x i8> %xb)
  %r = add <{n} x i32> %s, %back
"""
DECLARED_SDOT = "declare <{n} x i32> @llvm.aarch64.neon.sdot.v{n}i32.v{n4}i8(<{n} x i32>, <{n4} x i8>, <{n4} x i8>)"


def portable_u8s8() -> str:
    """Four multiply-adds of 32-bit numbers, for any processor."""
    sums = ["%c", "%s0", "%s1", "%s2", "%r"]
    return "".join(
        f"""
  %a{byte} = lshr <{{n}} x i32> %x, splat (i32 {8 * byte})
  %x{byte} = and <{{n}} x i32> %a{byte}, splat (i32 255)
  %b{byte} = shl <{{n}} x i32> %w, splat (i32 {24 - 8 * byte})
  %w{byte} = ashr <{{n}} x i32> %b{byte}, splat (i32 24)
  %p{byte} = mul <{{n}} x i32> %x{byte}, %w{byte}
  {sums[byte + 1]} = add <{{n}} x i32> {sums[byte]}, %p{byte}"""
        for byte in range(4)
    )


# One instruction multiplies 2 by 2 bfloat16 and adds their sum in float32: AVX512_BF16.

VDPBF16PS = """
  %xb = bitcast <{n} x i32> %x to <{n2} x bfloat>
  %wb = bitcast <{n} x i32> %w to <{n2} x bfloat>
  %r = call <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{n} x float> %c, <{n2} x bfloat> %xb, <{n2} x bfloat> %wb)
"""
DECLARED_VDPBF16PS = (
    "declare <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{n} x float>, <{n2} x bfloat>, <{n2} x bfloat>)"
)

# The same of AArch64.

BFDOT = """
  %xb = bitcast <{n} x i32> %x to <{n2} x bfloat>
  %wb = bitcast <{n} x i32> %w to <{n2} x bfloat>
  %r = call <{n} x float> @llvm.aarch64.neon.bfdot.v{n}f32.v{n2}bf16(
    <{n} x float> %c, <{n2} x bfloat> %wb, <{n2} x bfloat> %xb)
"""
DECLARED_BFDOT = (
    "declare <{n} x float> @llvm.aarch64.neon.bfdot.v{n}f32.v{n2}bf16(<{n} x float>, <{n2} x bfloat>, <{n2} x bfloat>)"
)

# A bfloat16 is the upper half of a float32.

PORTABLE_BF16 = """
  %xl = shl <{n} x i32> %x, splat (i32 16)
  %xh = and <{n} x i32> %x, splat (i32 -65536)
  %wl = shl <{n} x i32> %w, splat (i32 16)
  %wh = and <{n} x i32> %w, splat (i32 -65536)
  %x0 = bitcast <{n} x i32> %xl to <{n} x float>
  %x1 = bitcast <{n} x i32> %xh to <{n} x float>
  %w0 = bitcast <{n} x i32> %wl to <{n} x float>
  %w1 = bitcast <{n} x i32> %wh to <{n} x float>
  %s = call <{n} x float> @llvm.fmuladd.v{n}f32(<{n} x float> %x0, <{n} x float> %w0, <{n} x float> %c)
  %r = call <{n} x float> @llvm.fmuladd.v{n}f32(<{n} x float> %x1, <{n} x float> %w1, <{n} x float> %s)
"""
ROUND_BF16 = """
define linkonce_odr <{n} x i16> @{symbol}(<{n} x float> %x) alwaysinline {{
  %y = fptrunc <{n} x float> %x to <{n} x bfloat>
  %r = bitcast <{n} x bfloat> %y to <{n} x i16>
  ret <{n} x i16> %r
}}
"""

DECLARED_FMULADD = "declare <{n} x float> @llvm.fmuladd.v{n}f32(<{n} x float>, <{n} x float>, <{n} x float>)"
