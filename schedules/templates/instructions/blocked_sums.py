"""Long sums in blocks. A running sum of n fp32 numbers loses digits with n; sums of blocks lose far fewer.

    for k in n: s[t] += f(t, k)    →    for K in n / B:    p[t] = 0
                                                           for k in B: p[t] += f(t, K·B + k)
                                                           s[t] += p[t]

It is done to the loops of every scheduled kernel, so that each template's tiles and vectors stay as they are: p lies in
registers where s does. Sums of products are left alone: theirs are of few thousand terms, and their tiles fill the
registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import nodes_below, renamed

LONGEST = 2048
"""Terms of a running sum. Heuristic: 256,000 of a GroupNorm lost 4 digits more than ONNX Runtime's sum does."""

BLOCK = 256
"""Terms of a block of up to ``BLOCK``² of them; a longer sum has as many blocks as each has terms. So what a block
costs, a zero and a sum, is below 1 %."""


def blocked_sums(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, which is lowered to loops, with its long fp32 sums in blocks."""
    body = tvm_ffi.structural_map(func.body, (tirx.For, _blocked), order="pre")
    return func if body.same_as(func.body) else tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _blocked(loop: tirx.For) -> tirx.Stmt:
    """``loop`` in blocks if it is the outermost of a long sum."""
    loops, store = _nest(loop)
    if store is None or loop.kind != tirx.ForKind.SERIAL or not all(map(_is_plain, loops)):
        return loop
    summed = [level for level in loops if not _names(store.indices, level.loop_var)]
    term = _term(store, summed)
    terms = math.prod(int(level.extent) for level in summed)
    if term is None or not summed[:1] or not summed[0].same_as(loop) or terms <= LONGEST:
        return loop
    inner = terms // int(loop.extent)
    wanted = BLOCK if terms <= BLOCK**2 else math.isqrt(terms)
    size = min(max(1, wanted // inner), int(loop.extent))
    if size == int(loop.extent) or (size == 1 and inner == 1):
        return loop
    kept = [level for level in loops[1:] if _names(store.indices, level.loop_var)]
    part = tirx.decl_buffer([int(level.extent) for level in kept] or [1], str(store.buffer.dtype), "part")
    whole, rest = divmod(int(loop.extent), size)
    dtype = loop.loop_var.ty.dtype
    block = tirx.Var("block", dtype)
    first = block * tirx.const(size, dtype)
    blocks = [_loop(block, whole, _one_block(loops, store, term, part, kept, first, size))]
    if rest:
        blocks.append(_one_block(loops, store, term, part, kept, tirx.const(whole * size, dtype), rest))
    return tirx.SeqStmt([tirx.AllocBuffer(part), *blocks])


def _one_block(
    loops: Sequence[tirx.For],
    store: tirx.BufferStore,
    term: tirx.Expr,
    part: tvm.ir.Var,
    kept: Sequence[tirx.For],
    first: tirx.Expr,
    size: int,
) -> tirx.Stmt:
    """The terms from ``first`` on, ``size`` of the outermost loop, summed apart and added to what is stored."""
    at = [level.loop_var for level in kept] or [tirx.const(0, "int32")]
    zero = tirx.const(0, str(store.buffer.dtype))
    inner: tirx.Stmt = tirx.BufferStore(part, tirx.BufferLoad(part, at) + term, at)
    for level in reversed(loops[1:]):
        inner = _like(level, inner)
    outer = loops[0]
    step = tirx.Var(outer.loop_var.name, outer.loop_var.ty.dtype)
    inner = renamed(inner, {outer.loop_var: first + step if size > 1 else first})
    ends: list[tirx.Stmt] = [
        tirx.BufferStore(part, zero, at),
        tirx.BufferStore(
            store.buffer, tirx.BufferLoad(store.buffer, store.indices) + tirx.BufferLoad(part, at), store.indices
        ),
    ]
    for number, end in enumerate(ends):
        for level in reversed(kept):
            end = _like(level, end)
        ends[number] = end
    return tirx.SeqStmt([ends[0], _loop(step, size, inner) if size > 1 else inner, ends[1]])


def _nest(loop: tirx.For) -> tuple[list[tirx.For], tirx.BufferStore | None]:
    """The loops of a nest, outermost first, and the one store in it; None where there is more."""
    loops, body = [loop], loop.body
    while isinstance(body, tirx.For):
        loops.append(body)
        body = body.body
    return loops, body if isinstance(body, tirx.BufferStore) else None


def _is_plain(loop: tirx.For) -> bool:
    kinds = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)
    return loop.kind in kinds and isinstance(loop.extent, tirx.IntImm) and isinstance(loop.min, tirx.IntImm)


def _names(value: object, var: tirx.Var) -> bool:
    return any(other.same_as(var) for other in nodes_below(value, tirx.Var))


def _term(store: tirx.BufferStore, summed: Sequence[tirx.For]) -> tirx.Expr | None:
    """f of ``s = s + f`` in fp32, if f is neither a product of two tensors nor reads s."""
    value = store.value
    if str(store.buffer.dtype) != "float32" or not isinstance(value, tirx.Add) or not isinstance(value.a, TensorLoad):
        return None
    same = value.a.source.same_as(store.buffer) and tvm_ffi.structural_equal(
        list(value.a.indices), list(store.indices), map_free_vars=False
    )
    if not same or any(load.source.same_as(store.buffer) for load in nodes_below(value.b, TensorLoad)):
        return None
    term = value.b
    if isinstance(term, tirx.Mul) and not tvm_ffi.structural_equal(term.a, term.b, map_free_vars=False):
        sides = [any(_names(side, level.loop_var) for level in summed) for side in (term.a, term.b)]
        if all(sides):
            return None
    return term


def _like(loop: tirx.For, body: tirx.Stmt) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations)


def _loop(var: tirx.Var, extent: int, body: tirx.Stmt) -> tirx.For:
    dtype = var.ty.dtype
    return tirx.For(var, tirx.const(0, dtype), tirx.const(extent, dtype), tirx.ForKind.SERIAL, body)
