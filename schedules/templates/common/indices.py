"""Index arithmetic that TVM's simplifiers get wrong, in a form that they get right.

Quotients and remainders of sums with a constant or a negative term lose that term in TVM 0.27: ``FlattenBuffer``'s
``iter_map_simplify`` makes i % -13 · -1 of (1 - i % 13) % 13, and (i + 1) % 4 // 2 of (i % 4 + 1) // 2; other passes
err on negative steps of vectors. Such indices arise where a reversed slice is taken of a repeated tensor. Without
constants and negative factors, 6,000 random maps came out right.
"""

from __future__ import annotations

import functools

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.sym.analyzer import Analyzer

from schedules.templates.common.structure import is_choice, nodes_below

Terms = list[tuple[tirx.Expr, int]]


def exact_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with such quotients and remainders written without negative terms; it computes the same."""
    analyzer = Analyzer()

    def bind_axes(block: s_tir.SBlock) -> s_tir.SBlock:
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        return block

    def bind_loop(loop: tirx.For) -> tirx.For:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
        return loop

    def rewritten(node: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
        if not isinstance(node.b, tirx.IntImm) or int(node.b.value) == 0:
            return node
        terms, constant = linear(node.a, 1)
        if constant == 0 and all(factor > 0 for _, factor in terms) and int(node.b.value) > 0:
            return node
        simple = analyzer.simplify(node)
        if not _divides(simple):
            return simple
        if any(analyzer.const_int_bound(atom).min_value < 0 for atom, _ in terms):
            return node
        return (_remainder if isinstance(node, tirx.FloorMod) else _quotient)(node, terms, constant)

    for kind, bind in ((s_tir.SBlock, bind_axes), (tirx.For, bind_loop)):
        tvm_ffi.structural_map(func, (kind, bind), order="pre")
    for kind in (tirx.FloorDiv, tirx.FloorMod):
        func = tvm_ffi.structural_map(func, (kind, rewritten), order="post")
    return func


def both_sides(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` whose choices between elements of tensors say nothing about the indices of these.

    LLVM evaluates both sides of a ``Select``. TVM simplifies what each side reads by the condition: of (i % 256) where
    i < 256 is chosen it makes i, and the side that is not chosen reads beyond its tensor.
    """

    def opaque(choice: tirx.Select) -> tirx.Select:
        sides = choice.true_value, choice.false_value
        reads = [read for side in sides for read in nodes_below(side, TensorLoad)]
        gathers = any(nodes_below(index, TensorLoad) for read in reads for index in read.indices)
        if not reads or not (gathers or _is_about_indices(choice.condition)):
            return choice
        return tirx.Select(tirx.likely(choice.condition), *sides)

    return tvm_ffi.structural_map(func, (tirx.Select, opaque), order="post")


def conditions_in_order(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, lowered to loops, with elements in conditions read only where what needs no element holds.

    TVM makes ``i < 10 and x[i] > 0`` of two conditions, one within the other, and LLVM evaluates both of its sides.
    """

    def ordered(call: Call) -> tirx.Expr:
        if not is_choice(call):
            return call
        condition, chosen, other = call.args
        kind = type(condition)
        if kind not in (tirx.And, tirx.Or):
            return call
        terms = sorted(_terms(condition, kind), key=_reads)
        last = next((place for place, term in enumerate(terms) if _reads(term)), len(terms))
        if last == 0 or last == len(terms):
            return call
        result = chosen if kind is tirx.And else other
        for term in [*reversed(terms[last:]), functools.reduce(kind, terms[:last])]:
            both = (result, other) if kind is tirx.And else (chosen, result)
            result = tirx.if_then_else(term, *both)
        return result

    def nested(choice: tirx.IfThenElse) -> tirx.Stmt:
        terms = sorted(_terms(choice.condition, tirx.And), key=_reads)
        if choice.else_case is not None or _reads(terms[0]) or not _reads(terms[-1]):
            return choice
        body = choice.then_case
        for term in reversed(terms):
            body = tirx.IfThenElse(term, body, None)
        return body

    func = tvm_ffi.structural_map(func, (Call, ordered), order="post")
    return tvm_ffi.structural_map(func, (tirx.IfThenElse, nested), order="post")


def _terms(condition: tirx.Expr, kind: type) -> list[tirx.Expr]:
    """Return what ``kind``, And or Or, joins, in order."""
    if isinstance(condition, kind):
        return [*_terms(condition.a, kind), *_terms(condition.b, kind)]  # type: ignore[attr-defined]
    return [condition]


def _reads(value: tirx.Expr) -> bool:
    """Whether ``value`` reads elements of tensors."""
    return bool(nodes_below(value, TensorLoad))


def _is_about_indices(condition: tirx.Expr) -> bool:
    """Whether ``condition`` asks for more than elements of tensors."""
    asked = tvm_ffi.structural_map(condition, (TensorLoad, lambda read: tirx.const(0, read.ty.dtype)))
    return bool(nodes_below(asked, tirx.Var))


def linear(value: tirx.Expr, factor: int = 1) -> tuple[Terms, int]:
    """``factor`` times ``value`` as a sum: its terms, each with its factor, and the constant."""
    if isinstance(value, tirx.IntImm):
        return [], factor * int(value.value)
    if isinstance(value, tirx.Add | tirx.Sub):
        left, constant = linear(value.a, factor)
        right, other = linear(value.b, factor if isinstance(value, tirx.Add) else -factor)
        return left + right, constant + other
    if isinstance(value, tirx.Mul) and isinstance(value.b, tirx.IntImm):
        return linear(value.a, factor * int(value.b.value))
    return [(value, factor)], 0


def _sum(terms: Terms, constant: int, like: tirx.Expr) -> tirx.Expr:
    """Inverse of ``linear``, in the type of ``like``."""
    total = tirx.IntImm(like.ty.dtype, constant)
    for atom, factor in terms:
        total = total + (atom if factor == 1 else atom * tirx.IntImm(like.ty.dtype, factor))
    return total


def _remainder(node: tirx.FloorMod, terms: Terms, constant: int) -> tirx.Expr:
    """The same remainder with every factor between 0 and the divisor, which has to be positive."""
    divisor = int(node.b.value)
    if divisor < 0:
        return node
    kept = [(atom, factor % divisor) for atom, factor in terms if factor % divisor]
    return tirx.floormod(_sum(kept, constant % divisor, node.a), node.b)


def _quotient(node: tirx.FloorDiv, terms: Terms, constant: int) -> tirx.Expr:
    """The same quotient of a sum without negative terms; as it is where its terms have both signs."""
    divisor = int(node.b.value)
    if divisor < 0:  # e // -n is -e // n
        terms, constant, divisor = [(atom, -factor) for atom, factor in terms], -constant, -divisor
    sign = 1
    if all(factor < 0 for _, factor in terms):  # e // n is -((n - 1 - e) // n)
        sign, terms, constant = -1, [(atom, -factor) for atom, factor in terms], divisor - 1 - constant
    if any(factor < 0 for _, factor in terms):
        return node
    turns, constant = divmod(constant, divisor)
    # Truncated, which is the same here and which ``iter_map_simplify`` leaves alone.
    whole = tirx.truncdiv(_sum(terms, constant, node.a), tirx.IntImm(node.a.ty.dtype, divisor))
    whole = whole + tirx.IntImm(node.a.ty.dtype, turns)
    return whole if sign == 1 else tirx.IntImm(node.a.ty.dtype, 0) - whole


def _divides(value: tirx.Expr) -> bool:
    """Return whether there is a quotient or a remainder in ``value``."""
    return any(nodes_below(value, kind) for kind in (tirx.FloorDiv, tirx.FloorMod))
