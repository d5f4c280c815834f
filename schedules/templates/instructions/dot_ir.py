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


HALVES = """
{half}
define linkonce_odr <{n} x {sum}> @{symbol}(<{n} x {sum}> %c, i32 %one, <{n} x i32> %w) alwaysinline {{
  %cl = shufflevector <{n} x {sum}> %c, <{n} x {sum}> poison, <{m} x i32> <{low}>
  %ch = shufflevector <{n} x {sum}> %c, <{n} x {sum}> poison, <{m} x i32> <{high}>
  %wl = shufflevector <{n} x i32> %w, <{n} x i32> poison, <{m} x i32> <{low}>
  %wh = shufflevector <{n} x i32> %w, <{n} x i32> poison, <{m} x i32> <{high}>
  %l = call <{m} x {sum}> @{symbol}_half(<{m} x {sum}> %cl, i32 %one, <{m} x i32> %wl)
  %h = call <{m} x {sum}> @{symbol}_half(<{m} x {sum}> %ch, i32 %one, <{m} x i32> %wh)
  %r = shufflevector <{m} x {sum}> %l, <{m} x {sum}> %h, <{n} x i32> <{low}, {high}>
  ret <{n} x {sum}> %r
}}
"""


def function_in_halves(symbol: str, lanes: int, sum_type: str, body: str, declared: str, spread: str) -> str:
    """``function`` by two instructions of half of ``lanes`` each."""
    return in_halves(symbol, lanes, sum_type, function(f"{symbol}_half", lanes // 2, sum_type, body, declared, spread))


def in_halves(symbol: str, lanes: int, sum_type: str, half: str) -> str:
    """The definition of one dot product by two of half of ``lanes``, which ``half`` defines as ``{symbol}_half``."""
    m = lanes // 2
    low, high = (", ".join(f"i32 {at}" for at in range(first, first + m)) for first in (0, m))
    return HALVES.format(half=half, n=lanes, m=m, sum=sum_type, symbol=symbol, low=low, high=high)


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

# AArch64 without I8MM multiplies 4 signed by 4 signed bytes, the number again as one lane.

SDOT = """
  %xb = bitcast <{n} x i32> %x to <{n4} x i8>
  %wb = bitcast <{n} x i32> %w to <{n4} x i8>
  %r = call <{n} x i32> @llvm.aarch64.neon.sdot.v{n}i32.v{n4}i8(<{n} x i32> %c, <{n4} x i8> %wb, <{n4} x i8> %xb)
"""

# The same for unsigned numbers: (x - 128) · w + 128 · Σ w, for weights of few bits, which stand for %x here.

SDOT_UNSIGNED = """
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


def portable_bytes(signed: bool) -> str:
    """Four multiply-adds of 32-bit numbers, for any processor; ``signed`` says whether those of %x are."""
    sums = ["%c", "%s0", "%s1", "%s2", "%r"]
    return "".join(
        f"""
  %a{byte} = shl <{{n}} x i32> %x, splat (i32 {24 - 8 * byte})
  %x{byte} = {"ashr" if signed else "lshr"} <{{n}} x i32> %a{byte}, splat (i32 24)
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

# AArch64 multiplies two rows of 8 bytes by two columns, and adds to 2 × 2 sums: [x0·w0, x0·w1, x1·w0, x1·w1].

PAIR = """
declare <4 x {sum}> @llvm.aarch64.neon.{intrinsic}(<4 x {sum}>, {operand}, {operand})
define linkonce_odr <{n2} x {sum}> @{symbol}(<{n2} x {sum}> %c, <4 x i32> %x, <{n2} x i32> %w) alwaysinline {{
  %xb = bitcast <4 x i32> %x to {operand}
{steps}
  ret <{n2} x {sum}> {last}
}}
"""
PAIR_STEP = """
  %w{at} = shufflevector <{n2} x i32> %w, <{n2} x i32> poison, <4 x i32> <{taken}>
  %wb{at} = bitcast <4 x i32> %w{at} to {operand}
  %c{at} = shufflevector <{n2} x {sum}> %c, <{n2} x {sum}> poison, <4 x i32> <{taken}>
  %s{at} = call <4 x {sum}> @llvm.aarch64.neon.{intrinsic}(<4 x {sum}> %c{at}, {operand} %xb, {operand} %wb{at})
"""


def pair_function(symbol: str, lanes: int, sum_ir: str, name: str, types: tuple[str, str]) -> str:
    """Two rows by ``lanes`` columns: 2 · ``lanes`` sums, those of two columns together as the instruction has them.

    Args:
        types: the end of the intrinsic's name, and the type of its operands.
    """
    end, operand = types
    names = {"n2": 2 * lanes, "sum": sum_ir, "operand": operand, "intrinsic": f"{name}.{end}" if end else name}
    steps, count = "", lanes // 2
    for at in range(count):
        taken = ", ".join(f"i32 {4 * at + number}" for number in range(4))
        steps += PAIR_STEP.format(at=at, taken=taken, **names)
    joined, size, at = [f"%s{at}" for at in range(count)], 4, 0
    while len(joined) > 1:
        both = ", ".join(f"i32 {number}" for number in range(2 * size))
        for left in range(len(joined) // 2):
            kind = f"<{size} x {sum_ir}>"
            steps += f"  %j{at} = shufflevector {kind} {joined[2 * left]}, {kind} {joined[2 * left + 1]}, "
            steps += f"<{2 * size} x i32> <{both}>\n"
            joined[2 * left] = f"%j{at}"
            at += 1
        joined, size = joined[::2], 2 * size
    return PAIR.format(symbol=symbol, steps=steps.strip("\n"), last=joined[0], **names)


APART = """
define linkonce_odr <{n2} x {sum}> @{symbol}(<{n2} x {sum}> %c) alwaysinline {{
  %r = shufflevector <{n2} x {sum}> %c, <{n2} x {sum}> poison, <{n2} x i32> <{order}>
  ret <{n2} x {sum}> %r
}}
"""


def apart_function(symbol: str, lanes: int, sum_ir: str) -> str:
    """The sums of ``pair_function`` in two rows of ``lanes``."""
    order = (4 * (lane // 2) + 2 * row + lane % 2 for row in range(2) for lane in range(lanes))
    return APART.format(symbol=symbol, n2=2 * lanes, sum=sum_ir, order=", ".join(f"i32 {number}" for number in order))
