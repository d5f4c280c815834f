"""Maxima and minima of floats in the order of operands that keeps NaN where ONNX Runtime keeps it.

TVM's max(a, b) is a > b ? a : b, one ``vmaxps`` on x86. If a or b is NaN, the result is b. With a constant c:

    max(x, c)             →  max(c, x)                      NaN stays NaN, as of Relu and Clip; no instruction more
    max(x, y)             →  x ≤ ∞ ? max(x, y) : x          NaN of either stays; a comparison more, without masks a
                                                            choice too
    s[i] = max(s[i], x)      as it is                       the order of ONNX Runtime's blocked pools: a NaN that is not
                                                            the last of a window is dropped
    integer(max(x, c))       as it is                       the limit c, as of QuantizeLinear; in two stages as well

The same for minima. The program of a task, and so its key, does not change: this is a step of lowering.
"""

from __future__ import annotations

import math
from typing import TypeVar

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import nodes_below

Code = TypeVar("Code", tirx.PrimFunc, tirx.Expr)
Extreme = tirx.Max | tirx.Min


def nan_kept(code: Code) -> Code:
    """``code``, its expressions still of single numbers, with the rules above applied."""
    unchanged: list[tirx.Expr] = []
    casts = (cast.value for cast in nodes_below(code, tirx.Cast) if not _is_float(cast))
    become_integers = [value.source for value in casts if isinstance(value, TensorLoad)]

    def rewritten(node: tirx.Expr | tirx.BufferStore) -> tirx.Expr | tirx.BufferStore:
        if isinstance(node, tirx.BufferStore):
            value = _without_casts(node.value)
            if isinstance(value, Extreme):
                becomes_integer = any(node.buffer.same_as(each) for each in become_integers)
                if becomes_integer or any(_is_element(side, node) for side in (value.a, value.b)):
                    unchanged.append(value)
            return node
        if isinstance(node, tirx.Cast):
            if isinstance(node.value, Extreme) and not _is_float(node):
                unchanged.append(node.value)
            return node
        if not _is_float(node) or any(node.same_as(each) for each in unchanged):
            return node
        if _is_number(node.a):
            return node
        if _is_number(node.b):
            return type(node)(node.b, node.a)
        kept = _of_two(node)
        unchanged.append(kept.body.body.true_value)
        return kept

    # Before what is inside: what is left as it is must be the node that the store or the cast holds.
    kinds = tirx.BufferStore, tirx.Cast, tirx.Max, tirx.Min
    mapped: Code = tvm_ffi.structural_map(code, (kinds, rewritten), order="pre")
    return mapped


def _of_two(node: Extreme) -> tirx.Let:
    """Either's NaN. Both are bound: TVM makes a branch of a choice that loads."""
    a, b = (tirx.Var(name, side.ty.dtype) for name, side in (("a", node.a), ("b", node.b)))
    chosen = tirx.Select(tirx.LE(a, tirx.const(math.inf, node.ty.dtype)), type(node)(a, b), a)
    return tirx.Let(a, node.a, tirx.Let(b, node.b, chosen))


def _is_float(expr: tirx.Expr) -> bool:
    return "float" in str(expr.ty.dtype)


def _is_number(expr: tirx.Expr) -> bool:
    """Whether ``expr`` is a constant that is no NaN."""
    return isinstance(expr, tirx.FloatImm) and not math.isnan(expr.value)


def _without_casts(expr: tirx.Expr) -> tirx.Expr:
    while isinstance(expr, tirx.Cast) and _is_float(expr):
        expr = expr.value
    return expr


def _is_element(expr: tirx.Expr, store: tirx.BufferStore) -> bool:
    """Whether ``expr`` reads the element that ``store`` writes."""
    load = _without_casts(expr)
    return (
        isinstance(load, TensorLoad)
        and load.source.same_as(store.buffer)
        and all(map(tvm_ffi.structural_equal, load.indices, store.indices))
    )
