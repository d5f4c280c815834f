"""Dot products that processors have as instructions, by name: what they multiply, in which layout, and who has them.

A *form* says what is multiplied and how weights lie in memory, and is part of a kernel's computation; a *dot* is one
instruction for it, chosen by what the target has when a config is applied:

    for b in range(n):                            sums[0:n] = dot(sums[0:n], x[0:q], w[0:n, 0:q])
        for q in range(Q):                   →
            sums[b] += x[q] * w[b, q]

The Q numbers that one lane adds up lie together, in weights (…, b, q) as in activations (…, q), and fill 4 bytes:

    form   numbers · weights → sums        Q   instructions, best first
    u8s8   uint8 · int8 → int32            4   vpdpbusd; vpmaddwd (exact: of single bytes); usdot; any processor
    taps   the same, of n · Q numbers      4   the same, the numbers turned before
    s8s8   int8 · int8 → int32             4   sdot; any processor
    u8s8m  uint8 · int8 → int32            8   usmmla
    bf16   bfloat16 · bfloat16 → float32   2   vdpbf16ps; bfdot; any processor, by float32
    bf16m  bfloat16 · bfloat16 → float32   4   bfmmla

A *pair form* (those with an m) multiplies two rows of numbers by the weights at once, in 2 × 2 sums of Q products, and
is only for targets that have it. The Q numbers fill 8 bytes. Sums lie as the instruction has them, and ``apart`` puts
them in rows.

In ``taps`` every lane has numbers of its own, as channels of a depthwise convolution have: x[q, b], those of one q
together.

float32 has no form here: its multiply-add is what LLVM makes of a vectorised loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import Call
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.target import Target
from schedules.templates import scripted
from schedules.templates.amx import amx_ir
from schedules.templates.instructions import byte_lookup, dot_ir, low_bit_ir, wrapped
from schedules.templates.instructions.llvm_target import cpu_features, features_of


@dataclass(frozen=True)
class DotForm:
    """The types that a dot product multiplies.

    Attributes:
        data, weight, sum: types of the numbers, the weights and the sums.
        sum_ir: LLVM's name of the type of the sums.
        depth: numbers that one lane adds up, Q.
        bits: of a weight that is packed with others into bytes; 0 for weights of a type of their own.
        turned: whether every lane has numbers of its own.
        rows: of numbers that one instruction multiplies.
    """

    name: str
    data: str
    weight: str
    sum: str
    sum_ir: str
    depth: int
    bits: int = 0
    turned: bool = False
    rows: int = 1


U8S8 = DotForm("u8s8", "uint8", "int8", "int32", "i32", 4)
TAPS = DotForm("taps", "uint8", "int8", "int32", "i32", 4, turned=True)
S8S8 = DotForm("s8s8", "int8", "int8", "int32", "i32", 4)
BF16 = DotForm("bf16", "bfloat16", "bfloat16", "float32", "float", 2)
PAIRS = (
    DotForm("u8s8m", "uint8", "int8", "int32", "i32", 8, rows=2),
    DotForm("bf16m", "bfloat16", "bfloat16", "float32", "float", 4, rows=2),
)
"""Two rows of numbers at once."""

LOW_BITS = tuple(
    DotForm(f"{name}u{bits}", data, "uint8", sums, ir, 32 // bits, bits)
    for name, data, sums, ir in (("s8", "int8", "int32", "i32"), ("f32", "float32", "float32", "float"))
    for bits in (4, 8)
)
"""Weights of few bits with activations in int8 or float32."""

FORMS = {form.name: form for form in (U8S8, TAPS, S8S8, BF16, *PAIRS, *LOW_BITS)}


def form_of(data: str, weight: str, depth: int = 0) -> DotForm | None:
    """The form of a product of these types, None where they have none; with ``depth`` Q, that of so many a lane."""
    forms = (form for form in (U8S8, S8S8, BF16, *PAIRS) if (form.data, form.weight) == (data, weight))
    return next((form for form in forms if depth in (0, form.depth)), None)


def pair_form(form: DotForm, target: Target) -> DotForm | None:
    """The form that multiplies two rows at once where ``target`` has an instruction for it."""
    paired = next((pair for pair in PAIRS if (pair.data, pair.weight) == (form.data, form.weight)), None)
    features = features_of(target)
    return paired if any(dot.form is paired and dot.features <= features for dot in CATALOG) else None


def multiplied(number: tirx.Expr, weight: tirx.Expr, form: DotForm | None) -> tirx.Expr:
    """One product as computes write it, in the type of the sums; ``number`` may be the bits of a bfloat16."""
    if form is None:
        return number * weight
    if str(number.dtype) == "uint16":
        return tirx.reinterpret("float32", number.astype("uint32") << 16) * weight.astype(form.sum)
    return number.astype(form.sum) * weight.astype(form.sum)


def depth_axes(form: DotForm | None) -> list[te.IterVar]:
    """The innermost reduction axis of a compute over ``form``; none for float32."""
    return [] if form is None else [te.reduce_axis((0, form.depth), "q")]


@dataclass(frozen=True)
class Dot:
    """One way to compute a form.

    Attributes:
        lanes: sums of one instruction; 0 for any number.
        features: as LLVM calls what the processor needs.
        ir: (symbol, lanes) → its definition in LLVM's language.
    """

    name: str
    form: DotForm
    lanes: int
    features: frozenset[str]
    ir: Callable[[str, int], str]


def _dot(
    name: str, form: DotForm, lanes: int, features: str, body: str, declared: str = "", halves: bool = False
) -> Dot:
    spread = dot_ir.TURNED if form.turned else dot_ir.LANE if name in ("usdot", "sdot") else dot_ir.SPREAD
    text = dot_ir.function_in_halves if halves else dot_ir.function
    writer = partial(text, sum_type=form.sum_ir, body=body, declared=declared, spread=spread)
    return Dot(name, form, lanes, frozenset(features.split()), writer)


def _of_bytes(name: str, lanes: int, features: str, body: str, declared: str = "") -> list[Dot]:
    """An instruction of unsigned by signed bytes serves weights of few bits, too."""
    dots = [_dot(name, form, lanes, features, body, declared) for form in (U8S8, TAPS)]
    return [*dots, *_of_low_bits(name, lanes, features, body, declared)]


def _of_low_bits(name: str, lanes: int, features: str, body: str, declared: str = "") -> list[Dot]:
    dots = []
    for form in LOW_BITS:
        if form.data == "int8":
            writer = partial(low_bit_ir.low_bit_function, bits=form.bits, body=body, declared=declared)
            dots.append(Dot(name, form, lanes, frozenset(features.split()), writer))
    return dots


def _pairs(name: str, form: DotForm, features: str, types: tuple[str, str]) -> list[Dot]:
    writer = partial(dot_ir.pair_function, sum_ir=form.sum_ir, name=name, types=types)
    return [Dot(name, form, lanes, frozenset(features.split()), writer) for lanes in (4, 8)]


def _vpmaddwd(lanes: int, feature: str, intrinsic: str) -> list[Dot]:
    texts = [text.replace("PMADD", intrinsic) for text in (dot_ir.VPMADDWD, dot_ir.DECLARED_VPMADDWD)]
    return _of_bytes("vpmaddwd", lanes, feature, *texts)


def _of_floats() -> list[Dot]:
    dots = []
    for form in LOW_BITS:
        if form.data == "float32":
            if form.bits == 4:
                writer = partial(
                    low_bit_ir.low_bit_float_function,
                    bits=form.bits,
                    number=low_bit_ir.LOOKED_UP,
                    declared=low_bit_ir.DECLARED_LOOKED_UP,
                )
                dots.append(Dot("vpermps", form, 16, frozenset({"avx512f"}), writer))
            dots.append(
                Dot("portable", form, 0, frozenset(), partial(low_bit_ir.low_bit_float_function, bits=form.bits))
            )
    return dots


CATALOG: tuple[Dot, ...] = (
    *_of_bytes("vpdpbusd", 16, "avx512vnni", dot_ir.VPDPBUSD, dot_ir.DECLARED_VPDPBUSD),
    *_of_bytes("vpdpbusd", 8, "avxvnni", dot_ir.VPDPBUSD, dot_ir.DECLARED_VPDPBUSD),
    *_of_bytes("vpdpbusd", 8, "avx512vnni avx512vl", dot_ir.VPDPBUSD, dot_ir.DECLARED_VPDPBUSD),
    *_vpmaddwd(16, "avx512bw", "avx512.pmaddw.d.512"),
    *_vpmaddwd(8, "avx2", "avx2.pmadd.wd"),
    *_of_bytes("usdot", 4, "i8mm", dot_ir.USDOT, dot_ir.DECLARED_USDOT),
    _dot("usdot", U8S8, 8, "i8mm", dot_ir.USDOT, dot_ir.DECLARED_USDOT, halves=True),
    _dot("sdot", S8S8, 4, "dotprod", dot_ir.SDOT, dot_ir.DECLARED_SDOT),
    *_of_low_bits("sdot", 4, "dotprod", dot_ir.SDOT_UNSIGNED, dot_ir.DECLARED_SDOT),
    *_of_bytes("portable", 0, "", dot_ir.portable_bytes(signed=False)),
    _dot("portable", S8S8, 0, "", dot_ir.portable_bytes(signed=True)),
    *_of_floats(),
    _dot("vdpbf16ps", BF16, 16, "avx512bf16", dot_ir.VDPBF16PS, dot_ir.DECLARED_VDPBF16PS),
    _dot("vdpbf16ps", BF16, 8, "avx512bf16 avx512vl", dot_ir.VDPBF16PS, dot_ir.DECLARED_VDPBF16PS),
    _dot("bfdot", BF16, 4, "bf16", dot_ir.BFDOT, dot_ir.DECLARED_BFDOT),
    _dot("bfdot", BF16, 8, "bf16", dot_ir.BFDOT, dot_ir.DECLARED_BFDOT, halves=True),
    _dot("portable", BF16, 0, "", dot_ir.PORTABLE_BF16, dot_ir.DECLARED_FMULADD),
    *_pairs("usmmla", PAIRS[0], "i8mm", ("v4i32.v16i8", "<16 x i8>")),
    *_pairs("bfmmla", PAIRS[1], "bf16", ("", "<8 x bfloat>")),
)
"""The first form of these that a target has is used."""


def best_dot(form: DotForm, lanes: int, features: frozenset[str]) -> Dot:
    """The fastest way to compute ``lanes`` sums of ``form`` with what a processor has."""
    return next(dot for dot in CATALOG if dot.form is form and dot.lanes in (0, lanes) and dot.features <= features)


BEST = "best"
"""Stands for the name of a dot in the symbol of a call that is scheduled before its target is known."""


def best_symbol(form: DotForm, lanes: int) -> str:
    """The function that computes ``form`` by the best dot of the target that it is compiled for."""
    return f"tune_dot_{form.name}_{BEST}_{lanes}"


def is_slow(form: DotForm, lanes: int, target: Target) -> bool:
    """Return whether the best that ``target`` has for ``lanes`` sums of ``form`` does no more products than float32's
    multiply-adds: two instructions of 16 products for four of 8, or no instruction at all, of bytes.
    """
    return form.data in ("uint8", "int8") and best_dot(form, lanes, features_of(target)).name in (
        "vpmaddwd",
        "portable",
    )


def byte_form(target: Target) -> DotForm:
    """Return the form of activations of 8 bits for ``target``: signed where only signed bytes have an instruction."""
    features = features_of(target)
    return next((form for form in (U8S8, S8S8) if best_dot(form, target.lanes(), features).features), U8S8)


def use_dot(sch: s_tir.Schedule, lane: LoopRV, form: DotForm, target: Target) -> None:
    """Compute the loops over lanes and Q below ``lane`` with the target's dot product. The last step of a schedule."""
    lanes = int(sch.get(lane).extent)
    data = str(sch.get(sch.get_child_blocks(lane)[0]).reads[1].source.dtype)
    block = sch.blockize(lane)
    _guard(sch, block)
    sch.tensorize(block, _registered(best_dot(form, lanes, features_of(target)), lanes, data))


def _guard(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """The condition of ``block``, of a ragged tile's, as a branch around it: ``tensorize`` takes blocks without one."""
    loop_rv = sch.get_loops(block)[-1]
    loop = sch.get(loop_rv)
    realize = loop.body
    if tvm_ffi.structural_equal(realize.predicate, tirx.const(True, realize.predicate.ty.dtype)):
        return
    always = s_tir.SBlockRealize(realize.iter_values, tirx.const(True, realize.predicate.ty.dtype), realize.block)
    body = tirx.IfThenElse(realize.predicate, always, None)
    guarded = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations)
    sch.state.replace(sch.get_sref(loop_rv), guarded, {})


# -- as TVM wants it -------------------------------------------------------------------------------------------------


ROUNDED = (4, 8, 16, 32, 64)
"""Lanes of vectors that are rounded to bfloat16 at once."""

SYMBOL = re.compile(r"tune_dot_([a-z0-9]+)_([a-z0-9]+)_(\d+)")
APART = re.compile(r"tune_apart_(int32|float32)_(\d+)")
BITS_AS_FLOAT = 'T.reinterpret("float32", T.shift_left(T.Cast("uint32", {}), T.uint32(16)))'

FRAME = """
@scripted.prim_func(s_tir=True)
def main(x: T.handle, w: T.handle, sums: T.handle):
    X = T.match_buffer(x, ({numbers}), "{data}", offset_factor=1)
    W = T.match_buffer(w, ({n}, {q}), "{weight}", offset_factor=1)
    S = T.match_buffer(sums, ({n},), "{sum}", offset_factor=1)
    with T.sblock("root"):
        T.reads(S[0:{n}], X[{read}], W[0:{n}, 0:{q}])
        T.writes(S[0:{n}])
"""
DESCRIPTION = """
        for i, j in T.grid({n}, {q}):
            with T.sblock("dot"):
                b, q = T.axis.remap("SR", [i, j])
                S[b] = S[b] + {number} * T.Cast("{sum}", W[b, q])
"""
HALVES = """
        for i, h, j in T.grid({n}, 2, {q}):
            with T.sblock("dot"):
                b, p, q = T.axis.remap("SRR", [i, h, j])
                S[b] = S[b] + {number} * T.Cast("{sum}", T.Select(p == 0, W[b, q] & T.uint8(15), W[b, q] >> T.uint8(4)))
"""
CALL = """
        S[T.ramp(0, 1, {n})] = T.call_pure_extern(
            "{sum}x{n}", "{symbol}", S[T.ramp(0, 1, {n})], T.address_of(X[{first}]), T.address_of(W[0, 0])
        )
"""


@cache
def _registered(dot: Dot, lanes: int, data: str) -> str:
    """The name to tensorize with, for numbers that lie in memory as ``data``."""
    form = dot.form
    symbol = f"tune_dot_{form.name}_{dot.name}_{lanes}"
    number = "X[p * 4 + q]" if form.bits == 4 else "X[q, b]" if form.turned else "X[q]"
    if data != form.data:
        number = BITS_AS_FLOAT.format("X[q]")
    elif form.data != form.sum:
        number = f'T.Cast("{form.sum}", {number})'
    per_lane = 4 if form.bits else form.depth
    names = {"data": data, "weight": form.weight, "sum": form.sum, "q": per_lane, "n": lanes}
    sizes = (form.depth, lanes) if form.turned else (form.depth,)
    names["numbers"] = "".join(f"{size}, " for size in sizes)
    names["read"] = ", ".join(f"0:{size}" for size in sizes)
    names["first"] = ", ".join("0" for _ in sizes)
    described, done = (
        (FRAME + body).format(**names, symbol=symbol, number=number)
        for body in (HALVES if form.bits == 4 else DESCRIPTION, CALL)
    )
    return scripted.register_intrinsic(f"{symbol}_{data}", described, done)


def is_extern(call: Call) -> bool:
    """Return whether ``call`` is of a function outside of the kernel, as dots are."""
    return str(getattr(call.op, "name", "")) in ("tirx.call_pure_extern", "tirx.call_extern")


def definitions(func: tirx.PrimFunc) -> str:
    """The functions that ``func`` calls in place of instructions, in LLVM's language; empty where it calls none."""
    called: set[str] = set()

    def note(call: Call) -> None:
        if is_extern(call):
            called.add(str(call.args[0].value))

    tvm_ffi.structural_walk(func, (Call, note))
    called_dots = [match.groups() for match in map(SYMBOL.fullmatch, sorted(called)) if match]
    target = func.attrs.get("target") if func.attrs else None
    features = frozenset[str]() if target is None else frozenset(cpu_features(target))
    rounds = (dot_ir.ROUND_BF16.format(n=n, symbol=f"tune_round_bf16_{n}") for n in ROUNDED)
    texts = [text for n, text in zip(ROUNDED, rounds, strict=True) if f"tune_round_bf16_{n}" in called]
    texts += [byte_lookup.table_definition(n) for n in byte_lookup.LANES if byte_lookup.SYMBOL.format(n=n) in called]
    for kind, lanes in (match.groups() for match in map(APART.fullmatch, sorted(called)) if match):
        ir = {"int32": "i32", "float32": "float"}[kind]
        texts.append(dot_ir.apart_function(f"tune_apart_{kind}_{lanes}", int(lanes), ir))
    texts += amx_ir.definitions(called)
    texts += low_bit_ir.definitions(called)
    texts += wrapped.definitions(called)
    return "\n".join([*texts, *(_definition(*groups, features) for groups in called_dots)])


@cache
def _definition(form: str, name: str, lanes: str, features: frozenset[str]) -> str:
    """The definition of one dot, by name or the best that a processor with ``features`` has."""
    symbol, count = f"tune_dot_{form}_{name}_{lanes}", int(lanes)
    if name == BEST:
        return _best_definition(symbol, FORMS[form], count, features)
    dot = next(dot for dot in CATALOG if (dot.form.name, dot.name) == (form, name) and dot.lanes in (0, count))
    return dot.ir(symbol, count)


def _best_definition(symbol: str, form: DotForm, lanes: int, features: frozenset[str]) -> str:
    """The definition of the best dot, in halves where only shorter vectors have an instruction."""
    dot, shorter = best_dot(form, lanes, features), (count for count in (8, 4) if count < lanes)
    if dot.features or not any(best_dot(form, count, features).features for count in shorter):
        return dot.ir(symbol, lanes)
    half = _best_definition(f"{symbol}_half", form, lanes // 2, features)
    return dot_ir.in_halves(symbol, lanes, form.sum_ir, half)
