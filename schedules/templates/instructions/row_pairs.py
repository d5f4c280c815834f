"""Pair forms (``dots.py``) as TVM wants them: two rows of numbers times the weights of several lanes.

    sums[0:2, 0:n] += x[0:2, 0:Q] · w[0:n, 0:Q]

The instruction keeps the sums of two rows and two lanes in one register, so between the first product and the last one
the 2 × n sums lie in this order, which nothing else may read; ``apart`` copies them into rows.
"""

from __future__ import annotations

from functools import cache

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.target import Target
from schedules.templates import scripted
from schedules.templates.instructions.dots import BITS_AS_FLOAT, DotForm, best_dot
from schedules.templates.instructions.llvm_target import features_of

FRAME = """
@scripted.prim_func(s_tir=True)
def main(x: T.handle, w: T.handle, sums: T.handle):
    stride = T.int64()
    X = T.match_buffer(x, (2, {q}), "{data}", offset_factor=1, strides=[{stride}, 1])
    W = T.match_buffer(w, ({n}, {q}), "{weight}", offset_factor=1)
    S = T.match_buffer(sums, (2, {n}), "{sum}", offset_factor=1)
    with T.sblock("root"):
        T.reads(S[0:2, 0:{n}], X[0:2, 0:{q}], W[0:{n}, 0:{q}])
        T.writes(S[0:2, 0:{n}])
"""
DESCRIPTION = """
        for h, i, j in T.grid(2, {n}, {q}):
            with T.sblock("dot"):
                r, b, q = T.axis.remap("SSR", [h, i, j])
                S[r, b] = S[r, b] + {number} * T.Cast("{sum}", W[b, q])
"""
CALL = """
        S[0, T.ramp(0, 1, {n2})] = T.call_pure_extern(
            "{sum}x{n2}", "{symbol}", S[0, T.ramp(0, 1, {n2})], {rows}, T.address_of(W[0, 0])
        )
"""
TOGETHER = "T.address_of(X[0, 0])"
SEPARATE = "T.address_of(X[0, 0]), T.address_of(X[1, 0])"

COPY = """
@scripted.prim_func(s_tir=True)
def main(sums: T.handle, rows: T.handle):
    S = T.match_buffer(sums, (2, {n}), "{sum}", offset_factor=1)
    R = T.match_buffer(rows, (2, {n}), "{sum}", offset_factor=1)
    with T.sblock("root"):
        T.reads(S[0:2, 0:{n}])
        T.writes(R[0:2, 0:{n}])
"""
COPIED = """
        for h, i in T.grid(2, {n}):
            with T.sblock("copy"):
                r, b = T.axis.remap("SS", [h, i])
                R[r, b] = S[r, b]
"""
COPY_CALL = """
        R[0, T.ramp(0, 1, {n2})] = T.call_pure_extern("{sum}x{n2}", "{symbol}", S[0, T.ramp(0, 1, {n2})])
"""


@cache
def _product(form: DotForm, name: str, lanes: int, data: str, together: bool) -> str:
    symbol = f"tune_dot_{form.name}_{name}_{lanes}"
    number = BITS_AS_FLOAT.format("X[r, q]") if data != form.data else f'T.Cast("{form.sum}", X[r, q])'
    names = {"data": data, "weight": form.weight, "sum": form.sum, "q": form.depth, "n": lanes, "n2": 2 * lanes}
    names |= {"stride": form.depth if together else "stride", "rows": TOGETHER if together else SEPARATE}
    described, done = ((FRAME + body).format(**names, symbol=symbol, number=number) for body in (DESCRIPTION, CALL))
    return scripted.register_intrinsic(f"{symbol}_{data}_{'together' if together else 'separate'}", described, done)


@cache
def _copy(kind: str, lanes: int) -> str:
    symbol = f"tune_apart_{kind}_{lanes}"
    names = {"sum": kind, "n": lanes, "n2": 2 * lanes, "symbol": symbol}
    return scripted.register_intrinsic(symbol, *((COPY + body).format(**names) for body in (COPIED, COPY_CALL)))


def use_pairs(sch: s_tir.Schedule, pair: LoopRV, form: DotForm, target: Target, together: bool) -> None:
    """Compute the loops over two rows, lanes and Q from ``pair`` on with the target's instruction.

    Args:
        together: whether the second row's numbers lie behind the first's.
    """
    block = sch.get_child_blocks(pair)[0]
    data = str(sch.get(block).reads[1].source.dtype)
    lanes = int(sch.get(sch.get_loops(block)[-2]).extent)
    name = best_dot(form, lanes, features_of(target)).name
    sch.tensorize(sch.blockize(pair), _product(form, name, lanes, data, together))


def apart(sch: s_tir.Schedule, copy: SBlockRV) -> None:
    """Make the ``copy`` of sums, whose last two loops are over two rows and lanes, put them in rows."""
    pair, lane = sch.get_loops(copy)[-2:]
    kind, lanes = str(sch.get(copy).reads[0].source.dtype), int(sch.get(lane).extent)
    sch.tensorize(sch.blockize(pair), _copy(kind, lanes))
