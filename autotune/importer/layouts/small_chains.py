"""What is computed of few numbers for many is a kernel of its own.

``FuseOps`` puts elementwise operators into the kernel that reads what they make, though that kernel may read each of
their results a thousand times and then computes each a thousand times:

    bias (C) → / s → round → cast → + image (C, h, w)     →     b: bias → / s → round → cast
                                                                + image reads b

Between them comes a reshape to the same shape, which nothing is fused with and which is no kernel
(``RewriteDataflowReshape``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, topi
from tvm.ir import IRModule

from autotune.importer.layouts.tensor_layouts import INJECTIVE_PATTERN
from autotune.importer.rewriting.registry import OPAQUE_PATTERN
from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    operator_name,
    rebuilt_main,
    shape_of,
    substituted,
    variables_read,
    without_main,
)

LEAST_CHAIN = 4
"""Operators from which on what is one number for a whole row is a kernel of its own. The compiler computes it once per
row, so a normalisation's sum and root stay in its kernel. Casts between floats, by which one of 16 bits rounds after
every operator, are none. Heuristic, not measured."""

KERNEL_OPS = 65536
"""Additions that take as long as one more kernel: a launch takes some 1 µs, in which two cores add some 64,000 numbers,
16 in a vector. Heuristic, not measured."""

SLOW = {"divide": 8, "tir_sqrt": 8, "tir_rsqrt": 8, "tir_exp": 16, "tir_sigmoid": 24, "tir_tanh": 24, "erf": 24}
"""Additions that an operator takes as long as: some instructions, or one that takes long. Heuristic, not measured."""


@dataclass(frozen=True)
class _Chain:
    """Operators that TVM would compute with whatever reads their result.

    Attributes:
        count: how many.
        cost: of one number, in additions.
    """

    count: int = 0
    cost: int = 0


def small_chains_apart(module: IRModule) -> IRModule:
    """``module``, its kernels' patterns annotated and not yet fused, with small chains kept out of large kernels."""
    cut = _cuts(module, bindings_of(module))
    if not cut:
        return module
    first = {var for read in cut.values() for var in read}
    builder = relax.BlockBuilder(IRModule(without_main(module)))
    apart: Values = {}

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        seen = {**values, **{var: apart[var] for var in cut.get(binding.var, ())}}
        made = builder.emit(substituted(binding.value, seen))
        if binding.var in first:
            apart[binding.var] = _apart(builder, made)
        return made

    return rebuilt_main(module, builder, make)


def _apart(builder: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    attrs = {"op_pattern": OPAQUE_PATTERN}
    return builder.emit_te(topi.reshape, value, shape_of(value), primfunc_name_hint="reshape", primfunc_attrs=attrs)


def _cuts(module: IRModule, bindings: Sequence[relax.VarBinding]) -> dict[relax.Var, list[relax.Var]]:
    """The results that are to be computed before the kernel of each of the calls that read them."""
    chains: dict[relax.Var, _Chain] = {}
    cut: dict[relax.Var, list[relax.Var]] = {}
    for binding in bindings:
        call, shape = binding.value, shape_of(binding.var)
        if operator_name(call) != "relax.call_tir" or shape is None or _pattern(module, call) > INJECTIVE_PATTERN:
            continue
        counts = _pattern(module, call) < INJECTIVE_PATTERN and not _rounds(binding)
        count, cost = (1, _cost(call)) if counts else (0, 0)
        for var in dict.fromkeys(variables_read(call)):
            chain, read = chains.get(var, _Chain()), shape_of(var)
            if read is None:
                continue
            if (math.prod(shape) - math.prod(read)) * chain.cost >= KERNEL_OPS and (
                chain.count >= LEAST_CHAIN or (read and read[-1] > 1)
            ):
                cut.setdefault(binding.var, []).append(var)
            else:
                count, cost = count + chain.count, cost + chain.cost
        chains[binding.var] = _Chain(count, cost)
    return cut


def _rounds(binding: relax.VarBinding) -> bool:
    """Whether a call casts floats to floats."""
    kinds = [str(each.ty.dtype) for each in (*binding.value.args[1].fields, binding.var)]
    return binding.value.args[0].name_hint.startswith("cast") and all("float" in kind for kind in kinds)


def _cost(call: relax.Call) -> int:
    return SLOW.get(call.args[0].name_hint.rstrip("0123456789"), 1)


def _pattern(module: IRModule, call: relax.Call) -> int:
    attrs = module[call.args[0]].attrs or {}
    return int(attrs["op_pattern"]) if "op_pattern" in attrs else OPAQUE_PATTERN
