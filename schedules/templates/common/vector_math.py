"""exp, log, pow, erf, tanh and its inverse, sigmoid, circular functions and theirs as arithmetic; roundings too.

Vectors stay vectors then.

LLVM has no vector versions of these: TVM's calls become one call into the C library per element (2.4–7.5 ns instead of
0.2–0.3). The replacements are the classic single precision approximations

    exp      Cephes ``expf``: 2^n · p(x - n·ln 2), p of degree 6                      relative error below 2e-7
    log      Cephes ``logf``: m in [√½, √2), a polynomial of degree 8 in m - 1        relative error below 2e-7
    erf      Eigen's rational function of degree 13 by 8 on [-3.8351, 3.8351]         relative error below 5e-7
    tanh     Eigen's rational function of degree 13 by 6 on [-9.0934, 9.0934]         relative error below 5e-7
    sigmoid  1 / (1 + exp(-x))
    atan     Cephes ``atanf``: an odd polynomial of degree 9 in [-tan π/8, tan π/8]   relative error below 3e-7
    asin     Cephes ``asinf``: an odd polynomial of degree 11 up to ½, of √((1 - |x|)/2) beyond   below 4e-7
    acos     π/2 - asin x up to ½, twice the polynomial of √((1 - |x|)/2) beyond      relative error below 4e-7
    sin, cos an odd polynomial of degree 11 within a quarter of a turn                relative error below 3e-7
    tan      sin / cos                                                                relative error below 5e-7
    asinh    Cephes ``asinhf``: an odd polynomial of degree 9 up to ½, log(|x| + √(x² + 1)) beyond  below 5e-7
    acosh    Cephes ``acoshf``: √(x - 1) times a polynomial up to 3/2, log(x + √(x² - 1)) beyond    below 5e-7
    atanh    Cephes ``atanhf``: an odd polynomial of degree 11 up to ½, half a log beyond           below 5e-7
    pow      exp(y · log |x|), with x's sign for odd y                                relative error |y · log x| · 3e-7

They keep infinities and NaN. Results of exp below the least normal number become 0. The ends of erf and tanh are where
both functions, rounded with and without fused multiply-adds, are exactly 1: a Gelu of -1e30 is 0 then, not 1e30 · 1e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.op import register_op_attr
from tvm.tirx.op import register_intrin_lowering

EXP_LOW, EXP_HIGH = -87.33654475055310, 88.72283905206835  # logarithms of the least normal number and the largest
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # their sum is ln 2; n·LN2_HIGH is exact
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
ASINH = (2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1)
ACOSH = (1.7596881071e-3, -7.5272886713e-3, 2.6454905019e-2, -1.1784741703e-1, 1.4142135263)
ATANH = (1.81740078349e-1, 8.24370301058e-2, 1.46691431730e-1, 1.99782164500e-1, 3.33337300303e-1)
SQUARED_LIMIT = 1500.0
"""Arguments of asinh and acosh beyond which x² ± 1 is x² in fp32: these are log 2x, and x² may be infinite."""

ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
TURNS = tuple(
    map(
        float.fromhex,
        (
            "0x1.45f306dp-3",
            "0x1.9391054p-32",
            "0x1.4fe13abp-61",
            "0x1.d1f534dp-90",
            "0x1.b81b6c5p-119",
            "0x1.5993c43p-150",
        ),
    ),
)
"""1 / 2π, in pieces of 29 bits: the float64 product of a float32 number and a piece is exact."""

SINE = (
    -14.381409853613816,
    42.00780048726992,
    -76.70417046695938,
    81.60522369619244,
    -41.34170209699664,
    6.283185307046926,
)
"""sin 2πt / t within a quarter of a turn, as a polynomial of t²: fitted at Chebyshev's points, relative error 2e-11."""

KEPT = "tune.kept"
"""An operator that returns its operand. TVM's simplifier does not look behind it, as it is not a pure function."""

READS_STATE = 2
"""``CallEffectKind::kReadState`` of TVM: the least kind that is not pure."""

LARGEST, LEAST_NORMAL = 3.4028234e38, 1.17549435e-38
DENORMAL_BITS = 23
"""Exponents of denormal numbers below the least normal one."""
ERF_LIMIT = 3.8351
ERF_OVER = (
    2.123732201653183437883853912353515625e-06,
    2.861979592125862836837768554687500000e-04,
    3.658048342913389205932617187500000000e-03,
    5.243302136659622192382812500000000000e-02,
    1.874160766601562500000000000000000000e-01,
    1.128379106521606445312500000000000000e00,
)
ERF_UNDER = (
    3.89185734093189239501953125000e-05,
    1.14329601638019084930419921875e-03,
    1.47520881146192550659179687500e-02,
    1.12945675849914550781250000000e-01,
    4.99425798654556274414062500000e-01,
    1.0,
)
TANH_LIMIT = 9.0934
TANH_OVER = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_UNDER = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def vector_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with every float32 call of these functions replaced, and casts to bytes in steps that stay vectors."""
    func = tvm_ffi.structural_map(func, (tirx.Cast, _through_words), order="post")
    return tvm_ffi.structural_map(func, (Call, _replaced), order="post")


def _through_words(cast: tirx.Cast) -> tirx.Expr:
    """float32 → byte by way of int32: LLVM splits a vector that it is to convert at once."""
    if str(cast.ty.dtype) in ("uint8", "int8") and str(cast.value.ty.dtype) == "float32":
        return tirx.Cast(cast.ty.dtype, tirx.Cast("int32", cast.value))
    return cast


def _replaced(call: Call) -> tirx.Expr:
    name = str(getattr(call.op, "name", ""))
    if name == "tirx.isnan" and str(call.args[0].ty.dtype) == "float32":
        return _is_no_number(call.args[0])
    replace = REPLACEMENTS.get(name)
    if replace is None or str(call.ty.dtype) != "float32":
        return call
    if len(call.args) == 2:
        base, exponent = (arg if isinstance(arg, tirx.FloatImm) else _kept(arg) for arg in call.args)
        return _bind("x", base, lambda x: _bind("y", exponent, lambda y: replace(x, y)))
    if replace is nearest:  # mentions x once; TVM vectorises no binding twice, and a rounded stage may be inlined twice
        return nearest(call.args[0])
    return _bind("x", call.args[0], replace)


def _is_no_number(x: tirx.Expr) -> tirx.Expr:
    """A comparison of bits: a call that yields truth values is no vector in TVM."""
    bits = tirx.reinterpret("int32", x) & tirx.const(2**31 - 1, "int32")
    return bits > tirx.const(0x7F800000, "int32")


def exp(x: tirx.Expr) -> tirx.Expr:
    """2^n · exp(f) with n = round(x / ln 2), f = x - n·ln 2 in [-ln 2 / 2, ln 2 / 2].

    n is added to the exponent of exp(f): 2^n itself is infinite for the largest results, whose exp(f) is below 1.
    Where x is too large or too small, or NaN, n is nonsense, and another number takes the result's place.
    """

    def scaled(n: tirx.Expr) -> tirx.Expr:
        def raised(f: tirx.Expr) -> tirx.Expr:
            bits = tirx.reinterpret("int32", _horner(f, EXP) * f * f + f + _float(1))
            return tirx.reinterpret("float32", bits + (tirx.Cast("int32", n) << 23))

        return _bind("f", x - n * _float(LN2_HIGH) - n * _float(LN2_LOW), raised)

    result = _bind("n", tirx.floor(x * _float(1 / math.log(2)) + _float(0.5)), scaled)
    result = tirx.Select(x <= _float(EXP_HIGH), result, x + _float(math.inf))
    return tirx.Select(x < _float(EXP_LOW), _float(0), result)


def log(x: tirx.Expr) -> tirx.Expr:
    """Log m + e·ln 2 with x = m·2^e, m in [√½, √2). Denormal numbers are multiplied by 2^23 first."""

    def split(bits: tirx.Expr) -> tirx.Expr:
        mantissa = tirx.reinterpret("float32", (bits & 0x007FFFFF) | 0x3F000000)
        least = tirx.Select(x < _float(LEAST_NORMAL), _float(126 + DENORMAL_BITS), _float(126))
        exponent = tirx.Cast("float32", bits >> 23) - least
        return _bind("c", mantissa, lambda c: _bind("e", exponent, lambda e: combined(c, e)))

    def combined(c: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        low = c < _float(math.sqrt(0.5))
        power = tirx.Select(low, e - _float(1), e)
        return _bind("m", tirx.Select(low, c + c, c) - _float(1), lambda m: polynomial(m, power))

    def polynomial(m: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        tail = _horner(m, LOG) * m * (m * m) + e * _float(LN2_LOW) - _float(0.5) * (m * m)
        return tail + m + e * _float(LN2_HIGH)

    normal = tirx.Select(x < _float(LEAST_NORMAL), x * _float(2.0**DENORMAL_BITS), x)
    result = _bind("i", tirx.reinterpret("int32", normal), split)
    result = tirx.Select(x <= _float(LARGEST), result, x + x)  # infinity and NaN
    result = tirx.Select(x <= _float(0), _float(-math.inf), result)
    return tirx.Select(x < _float(0), _float(math.nan), result)


def power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """As C's pow: 1 for y = 0 and for x = 1, x's sign for odd y, NaN for a finite negative x and broken y."""
    size = tirx.Select(x < _float(0), _float(0) - x, x)

    def signed(a: tirx.Expr, r: tirx.Expr) -> tirx.Expr:
        half = y * _float(0.5)
        sign = tirx.reinterpret("int32", x) & tirx.const(-(2**31), "int32")
        odd = tirx.reinterpret("float32", tirx.reinterpret("int32", r) | sign)
        broken = tirx.Select(x < _float(0), tirx.Select(a <= _float(LARGEST), _float(math.nan), r), r)
        return tirx.Select(tirx.floor(y) == y, tirx.Select(tirx.floor(half) == half, r, odd), broken)

    def positive(a: tirx.Expr) -> tirx.Expr:
        raised = _bind("p", _kept(log(a)), lambda logarithm: _bind("z", y * logarithm, exp))
        return _bind("r", tirx.Select(a == _float(1), _float(1), raised), lambda r: signed(a, r))

    return tirx.Select(y == _float(0), _float(1), _bind("a", size, positive))


def erf(x: tirx.Expr) -> tirx.Expr:
    """An odd rational function, constant outside of its interval."""
    return _odd_rational(x, ERF_LIMIT, ERF_OVER, ERF_UNDER)


def tanh(x: tirx.Expr) -> tirx.Expr:
    """An odd rational function, constant outside of its interval."""
    return _odd_rational(x, TANH_LIMIT, TANH_OVER, TANH_UNDER)


def sigmoid(x: tirx.Expr) -> tirx.Expr:
    """1 / (1 + exp(-x))."""
    return _float(1) / (_float(1) + _bind("y", _float(0) - x, exp))


def atan(x: tirx.Expr) -> tirx.Expr:
    """π/2 - atan 1/a of a large a = |x|, π/4 + atan((a - 1) / (a + 1)) near 1, else atan a; with the sign of x."""

    def turned(a: tirx.Expr) -> tirx.Expr:
        far, middle = a > _float(math.tan(3 * math.pi / 8)), a > _float(math.tan(math.pi / 8))
        over = tirx.Select(far, _float(-1), tirx.Select(middle, a - _float(1), a))
        under = tirx.Select(far, a, tirx.Select(middle, a + _float(1), _float(1)))
        start = tirx.Select(far, _float(math.pi / 2), tirx.Select(middle, _float(math.pi / 4), _float(0)))

        def summed(q: tirx.Expr) -> tirx.Expr:
            return _signed(start + polynomial(q), x)

        return _bind("q", over / under, summed)

    def polynomial(q: tirx.Expr) -> tirx.Expr:
        return _bind("s", q * q, lambda square: _horner(square, ATAN) * square * q + q)

    return _bind("a", _size(x), turned)


def asin(x: tirx.Expr) -> tirx.Expr:
    """π/2 - 2 asin √((1 - a)/2) of a = |x| above ½, with the sign of x; NaN above 1, where the root has none."""

    def chosen(a: tirx.Expr) -> tirx.Expr:
        far = a > _float(0.5)
        return _asin_part(a, lambda p: _signed(tirx.Select(far, _float(math.pi / 2) - (p + p), p), x))

    return _bind("a", _size(x), chosen)


def acos(x: tirx.Expr) -> tirx.Expr:
    """2 asin √((1 - a)/2) of a = |x| above ½, π less that of a negative x; π/2 - asin x up to ½."""

    def chosen(a: tirx.Expr) -> tirx.Expr:
        return _asin_part(a, lambda p: tirx.Select(a > _float(0.5), beyond(p + p), _float(math.pi / 2) - _signed(p, x)))

    def beyond(twice: tirx.Expr) -> tirx.Expr:
        return tirx.Select(x < _float(0), _float(math.pi) - twice, twice)

    return _bind("a", _size(x), chosen)


def _asin_part(a: tirx.Expr, use: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """``use`` of asin a up to ½, of asin √((1 - a)/2) above."""
    square = tirx.Select(a > _float(0.5), _float(0.5) - _float(0.5) * a, a * a)

    def polynomial(z: tirx.Expr) -> tirx.Expr:
        root = tirx.Select(a > _float(0.5), tirx.sqrt(z), a)
        return _bind("s", root, lambda s: _bind("p", _horner(z, ASIN) * z * s + s, use))

    return _bind("z", square, polynomial)


def asinh(x: tirx.Expr) -> tirx.Expr:
    """An odd polynomial near 0, else ± log(a + √(a² + 1)) with a = |x| and the sign of x."""

    def chosen(a: tirx.Expr) -> tirx.Expr:
        near = _bind("z", a * a, lambda z: _horner(z, ASINH) * z * a + a)
        far = _log_of_sum(a, a * a + _float(1))
        return _signed(tirx.Select(a < _float(0.5), near, far), x)

    return _bind("a", _size(x), chosen)


def acosh(x: tirx.Expr) -> tirx.Expr:
    """√(x - 1) times a polynomial, else the log of x + √((x - 1)(x + 1)); the root of a negative number is NaN."""

    def chosen(z: tirx.Expr) -> tirx.Expr:
        near = _horner(z, ACOSH) * tirx.sqrt(z)
        return tirx.Select(z < _float(0.5), near, _log_of_sum(x, z * (x + _float(1))))

    return _bind("z", x - _float(1), chosen)


def _log_of_sum(a: tirx.Expr, square: tirx.Expr) -> tirx.Expr:
    """Log(a + √square), where the square may be infinite: log 2a of a large a."""
    large = a > _float(SQUARED_LIMIT)
    summed = tirx.Select(large, a, a + tirx.sqrt(square))
    return _bind("q", summed, log) + tirx.Select(large, _float(math.log(2)), _float(0))


def atanh(x: tirx.Expr) -> tirx.Expr:
    """An odd polynomial, else half the log of (1 + x)/(1 - x): infinite at ±1, NaN beyond."""
    near = _bind("z", x * x, lambda z: _horner(z, ATANH) * z * x + x)
    far = _float(0.5) * _bind("q", (_float(1) + x) / (_float(1) - x), log)
    return tirx.Select(_size(x) < _float(0.5), near, far)


def _size(x: tirx.Expr) -> tirx.Expr:
    return tirx.Select(x < _float(0), _float(0) - x, x)


def _signed(value: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """``value``, not negative, with the sign of ``x``."""
    sign = tirx.reinterpret("int32", x) & tirx.const(-(2**31), "int32")
    return tirx.reinterpret("float32", tirx.reinterpret("int32", value) | sign)


def sin(x: tirx.Expr) -> tirx.Expr:
    """Sine of x's turns, after Payne and Hanek: whole turns are left out of every product of x with a piece."""
    return _bind("t", _turns(x), _sine)


def cos(x: tirx.Expr) -> tirx.Expr:
    """Sine of a quarter of a turn more, which float64 adds without loss."""
    return _bind("t", _turns(x) + _double(0.25), _sine)


def tan(x: tirx.Expr) -> tirx.Expr:
    """Sine by cosine; of the turns in fp64 both are exact near their zeros."""
    return _bind("t", _turns(x), lambda t: _sine(t) / _bind("t", t + _double(0.25), _sine))


def _turns(x: tirx.Expr) -> tirx.Expr:
    """x / 2π without most of its whole turns: -3 to 3, to 50 bits behind the point."""

    def reduced(wide: tirx.Expr) -> tirx.Expr:
        parts = [_bind("p", wide * _double(piece), lambda p: p - nearest(p)) for piece in reversed(TURNS)]
        return sum(parts[1:], parts[0])

    return _bind("w", tirx.Cast("float64", x), reduced)


def _sine(t: tirx.Expr) -> tirx.Expr:
    """sin 2πt: t within half a turn, and what is beyond a quarter turned back to the other side."""

    def folded(half: tirx.Expr) -> tirx.Expr:
        beyond = tirx.Select(half < _double(-0.25), _double(-0.5) - half, half)
        return tirx.Select(half > _double(0.25), _double(0.5) - half, beyond)

    def polynomial(u: tirx.Expr) -> tirx.Expr:
        return _bind("s", u * u, lambda square: _horner(square, SINE) * u)

    return _bind("h", t - nearest(t), lambda half: _bind("u", tirx.Cast("float32", folded(half)), polynomial))


def nearest(x: tirx.Expr) -> tirx.Expr:
    """x rounded, halves to even: LLVM's own call, because TVM makes a loop over scalars of its own."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.nearbyint", x)


ROUNDINGS = ("tirx.nearbyint",)
"""Those of ``REPLACEMENTS`` that are one instruction."""

REPLACEMENTS: dict[str, Callable[..., tirx.Expr]] = {
    "tirx.exp": exp,
    "tirx.log": log,
    "tirx.pow": power,
    "tirx.erf": erf,
    "tirx.tanh": tanh,
    "tirx.sigmoid": sigmoid,
    "tirx.atan": atan,
    "tirx.sin": sin,
    "tirx.cos": cos,
    "tirx.tan": tan,
    "tirx.asin": asin,
    "tirx.acos": acos,
    "tirx.asinh": asinh,
    "tirx.acosh": acosh,
    "tirx.atanh": atanh,
    "tirx.nearbyint": nearest,
}


def _float(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def _double(value: float) -> tirx.Expr:
    return tirx.const(value, "float64")


def _horner(x: tirx.Expr, coefficients: Sequence[float]) -> tirx.Expr:
    """The polynomial with these coefficients, highest degree first."""
    total = _float(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + _float(coefficient)
    return total


def _odd_rational(x: tirx.Expr, limit: float, over: Sequence[float], under: Sequence[float]) -> tirx.Expr:
    """x · over(x²) / under(x²) within ±``limit``, its value there beyond."""

    def rational(y: tirx.Expr) -> tirx.Expr:
        return _bind("s", y * y, lambda square: y * _horner(square, over) / _horner(square, under))

    return _bind("y", _inside(x, limit), rational)


def _kept(x: tirx.Expr) -> tirx.Expr:
    """Hide ``x`` from TVM's simplifier; the call becomes no instruction.

    The simplifier replaces every mention of a bound name by its value. The exp of a log would grow to tens of thousands
    of terms, and took eight seconds to compile.
    """
    return tirx.call_intrin("float32", KEPT, x)


def _fenced(call: Call) -> tirx.Expr:
    """Lower ``KEPT``, after vectorisation, to LLVM's fence for floating point numbers, which emits no code."""
    return tirx.call_llvm_intrin(call.ty.dtype, "llvm.arithmetic.fence", call.args[0])


tvm_ffi.get_global_func("ir.RegisterOp")(KEPT, "the operand as it is")
register_op_attr(KEPT, "TCallEffectKind", READS_STATE)
register_op_attr(KEPT, "TVectorizable", True)
register_op_attr(KEPT, "TScriptPrinterName", KEPT)
register_intrin_lowering(KEPT, "default", f=_fenced)


def _inside(x: tirx.Expr, limit: float) -> tirx.Expr:
    """x within ±``limit``; NaN fails both comparisons."""
    below = tirx.Select(x > _float(limit), _float(limit), x)
    return tirx.Select(x < _float(-limit), _float(-limit), below)


def tanh_inside(x: tirx.Expr) -> tirx.Expr:
    """x within the interval where tanh is not 1: what ``tanh_over`` and ``tanh_under`` take."""
    return _inside(x, TANH_LIMIT)


def tanh_over(x: tirx.Expr) -> tirx.Expr:
    """The numerator of ``tanh``, for those who divide a product of several once."""
    return x * _horner(x * x, TANH_OVER)


def tanh_under(x: tirx.Expr) -> tirx.Expr:
    """The denominator of ``tanh``: 0.005 to 1.7."""
    return _horner(x * x, TANH_UNDER)


def _bind(name: str, value: tirx.Expr, use: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """``use(value)`` with ``value`` computed once: TIR copies an expression as often as it is mentioned."""
    variable = tirx.Var(name, value.ty.dtype)
    return tirx.Let(variable, value, use(variable))
