"""Maxima and minima of floats in the order of operands that keeps NaN where ONNX Runtime keeps it.

TVM's max(a, b) is a > b ? a : b, one ``vmaxps`` on x86. If a or b is NaN, the result is b. With a constant c:

    max(x, c)             →  max(c, x)                      NaN stays NaN, as of Relu and Clip; no instruction more
    max(x, y)             →  x ≤ ∞ ? max(x, y) : x          NaN of either stays; a comparison more, without masks a
                                                            choice too
    s[i] = max(s[i], x)      as it is                       the order of ONNX Runtime's blocked pools: a NaN that is not
                                                            the last of a window is dropped
    integer(max(x, c))       as it is                       the limit c, as of QuantizeLinear; in two stages as well

The same for minima. C has no order of operands for ``max``, which returns the number where the other is NaN; so in its
sources (``spelt``) the first two are choices. The program of a task, and so its key, does not change: this is a step of
lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

Code = TypeVar("Code", tirx.PrimFunc, tirx.Expr)
Extreme = tirx.Max | tirx.Min


def nan_kept(code: Code, spelt: bool = False) -> Code:
    """``code``, its expressions still of single numbers, with the rules above applied."""
    unchanged: list[tirx.Expr] = []
    casts: list[tirx.Cast] = []
    tvm_ffi.structural_walk(code, (tirx.Cast, casts.append))  # append returns None, which means: go on
    read = [cast.value for cast in casts if not _is_float(cast)]
    become_integers = [value.source for value in read if isinstance(value, TensorLoad)]

    def rewritten(node: tirx.Expr | tirx.BufferStore) -> tirx.Expr | tirx.BufferStore:
        if isinstance(node, tirx.BufferStore):
            value = _without_casts(node.value)
            if isinstance(value, Extreme):
                becomes_integer = any(node.buffer.same_as(other) for other in become_integers)
                if becomes_integer or any(_is_element(side, node) for side in (value.a, value.b)):
                    unchanged.append(value)
            return node
        if isinstance(node, tirx.Cast):
            if isinstance(node.value, Extreme) and not _is_float(node):
                unchanged.append(node.value)
            return node
        if not _is_float(node) or any(node.same_as(other) for other in unchanged):
            return node

        def larger(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
            if spelt:
                return tirx.Select(tirx.GT(a, b) if isinstance(node, tirx.Max) else tirx.LT(a, b), a, b)
            unchanged.append(type(node)(a, b))
            return unchanged[-1]

        if _is_number(node.a) or _is_number(node.b):
            constant, x = (node.a, node.b) if _is_number(node.a) else (node.b, node.a)
            return _bound(x, lambda x: larger(constant, x)) if spelt else type(node)(constant, x)

        def of_two(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
            if spelt:
                return tirx.Select(tirx.isnan(a), a, larger(a, b))
            return tirx.Select(tirx.LE(a, tirx.const(math.inf, node.ty.dtype)), larger(a, b), a)

        return _bound(node.a, lambda a: _bound(node.b, lambda b: of_two(a, b)))

    # Before what is inside: what is left as it is must be the node that the store or the cast holds.
    kinds = tirx.BufferStore, tirx.Cast, tirx.Max, tirx.Min
    mapped: Code = tvm_ffi.structural_map(code, (kinds, rewritten), order="pre")
    return mapped


def _bound(value: tirx.Expr, use: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """``use(value)`` with ``value`` computed once. TVM makes a branch of a choice that loads."""
    variable = tirx.Var("v", value.ty.dtype)
    return tirx.Let(variable, value, use(variable))


def _is_float(expr: tirx.Expr) -> bool:
    return "float" in str(expr.ty.dtype)


def _is_number(expr: tirx.Expr) -> bool:
    """Return whether ``expr`` is a constant that is no NaN."""
    return isinstance(expr, tirx.FloatImm) and not math.isnan(expr.value)


def _without_casts(expr: tirx.Expr) -> tirx.Expr:
    while isinstance(expr, tirx.Cast) and _is_float(expr):
        expr = expr.value
    return expr


def _is_element(expr: tirx.Expr, store: tirx.BufferStore) -> bool:
    """Return whether ``expr`` reads the element that ``store`` writes."""
    load = _without_casts(expr)
    return (
        isinstance(load, TensorLoad)
        and load.source.same_as(store.buffer)
        and all(map(tvm_ffi.structural_equal, load.indices, store.indices))
    )
