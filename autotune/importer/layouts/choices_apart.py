"""Choices between results of large subgraphs become kernels of their own.

A ``Where`` with a condition of one element, as an If becomes, would be fused into the last kernel of one of its sides,
which then has to run always. Kept apart, it lets the core run only the side that is chosen (``graph/sides.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tvm import relax
from tvm.ir import IRModule

from autotune.importer.rewriting.registry import INJECTIVE_PATTERN, OPAQUE_PATTERN
from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    operator_name,
    pattern_of,
    rebuilt_main,
    shape_of,
    substituted,
    variables_read,
    without_main,
)
from schedules.templates.common.movements import choice

WHERE = "where"
"""Name of TVM's kernels for ``Where``, without their number."""

SIDES = (1, 2)
"""Arguments of such a kernel that it chooses between; argument 0 is the condition."""


def choices_apart(module: IRModule) -> IRModule:
    """Return ``module``, its kernels' patterns annotated and not yet fused, with choices in kernels of their own.

    All choices by one condition are kept apart, if one of its sides alone needs an operator that is not elementwise.
    """
    bindings = bindings_of(module)
    by_condition: dict[relax.Expr, list[relax.VarBinding]] = {}
    for binding in bindings:
        if _is_choice(binding.value):
            by_condition.setdefault(binding.value.args[1].fields[0], []).append(binding)
    apart = {
        binding.var
        for chosen in by_condition.values()
        if any(_saves_work(module, bindings, chosen, side) for side in SIDES)
        for binding in chosen
    }
    if not apart:
        return module
    makers = {binding.var: binding for binding in bindings}
    conditions = {var: _as_made(makers, makers[var].value.args[1].fields[0]) for var in apart}
    early = _needed(bindings, conditions.values())
    builder = relax.BlockBuilder(IRModule(without_main(module)))

    def emit(binding: relax.VarBinding, values: Values) -> relax.Expr:
        return builder.emit(substituted(binding.value, values))

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        while early:  # before what the choices leave out
            first = early.pop(0)
            values[first.var] = emit(first, values)
        if binding.var not in apart:
            return values[binding.var] if binding.var in values else emit(binding, values)
        operands = [conditions[binding.var], *binding.value.args[1].fields[1:]]
        operands = [substituted(operand, values) for operand in operands]
        attrs = {"op_pattern": OPAQUE_PATTERN}
        return builder.emit_te(choice, *operands, primfunc_name_hint="choice", primfunc_attrs=attrs)

    return rebuilt_main(module, builder, make)


def _as_made(makers: Mapping[relax.Var, relax.VarBinding], condition: relax.Expr) -> relax.Expr:
    """The condition before it was reshaped: a kernel that reshapes one element takes a call."""
    while condition in makers:
        value = makers[condition].value
        if operator_name(value) != "relax.call_tir" or not value.args[0].name_hint.startswith("reshape"):
            return condition
        (condition,) = value.args[1].fields
    return condition


def _needed(bindings: Sequence[relax.VarBinding], wanted: Iterable[relax.Expr]) -> list[relax.VarBinding]:
    """The bindings that make ``wanted``, in order."""
    needed, left = list[relax.VarBinding](), set(wanted)
    for binding in reversed(bindings):
        if binding.var in left:
            needed.insert(0, binding)
            left.update(variables_read(binding.value))
    return needed


def _is_choice(value: relax.Expr) -> bool:
    """Return whether ``value`` is one of two tensors, by a condition of one element."""
    if operator_name(value) != "relax.call_tir" or value.args[0].name_hint.rstrip("0123456789") != WHERE:
        return False
    condition, *sides = (shape_of(field) for field in value.args[1].fields)
    return condition is not None and math.prod(condition) == 1 and sides[0] == sides[1] == shape_of(value)


def _saves_work(
    module: IRModule, bindings: Sequence[relax.VarBinding], chosen: Sequence[relax.VarBinding], side: int
) -> bool:
    """Return whether only argument ``side`` of the choices ``chosen`` needs an operator that is not elementwise."""
    choices = {binding.var for binding in chosen}
    wanted, others = set[relax.Expr](), set[relax.Expr](variables_read(module["main"].body.body))
    for binding in reversed(bindings):
        value, reads = binding.value, [*variables_read(binding.value)]
        if binding.var in choices:
            own = value.args[1].fields[side]
            if own in reads:
                reads.remove(own)
                wanted.add(own)
            others.update(reads)
        elif binding.var in others or binding.var not in wanted:
            others.update(reads)
        else:
            if operator_name(value) == "relax.call_tir" and pattern_of(module, value) > INJECTIVE_PATTERN:
                return True
            wanted.update(reads)
    return False
