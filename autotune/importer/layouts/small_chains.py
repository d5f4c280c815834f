"""Give a kernel to a value that is computed from few elements for many readers, and to a part of a large expression.

``FuseOps`` puts elementwise operators into the kernel that reads what they make, though that kernel may read each of
their results a thousand times and then computes each a thousand times:

    bias (C) → / s → round → cast → + image (C, h, w)     →     b: bias → / s → round → cast
                                                                + image reads b

A product or convolution would take along a larger tensor in which its result is repeated. No template of such kernels
has results of two sizes, so the result gets a kernel of its own, too.

Kernels also get what they read in place of its name, once for every read: after n operators that read their operand
three times an expression is 3ⁿ times as large. TVM's passes took more than eight minutes for six ``Mish`` in a row.

Between them comes a reshape to the same shape, which nothing is fused with and which is no kernel
(``RewriteDataflowReshape``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import relax, tirx, topi
from tvm.ir import GlobalVar, IRModule
from tvm.ir.expr import TensorLoad

from autotune.importer.layouts.tensor_layouts import ANCHOR_PATTERN
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

LEAST_CHAIN = 4
"""Operators from which on what is one number for a whole row is a kernel of its own. The compiler computes it once per
row, so a normalisation's sum and root stay in its kernel. Casts between floats, by which one of 16 bits rounds after
every operator, are none. Heuristic, not measured."""

KERNEL_OPS = 65536
"""Additions that take as long as one more kernel: a launch takes some 1 µs, in which two cores add some 64,000 numbers,
16 in a vector. Heuristic, not measured."""

LARGEST_PART = 1024
"""Operators in the expression of an element from which on what several operators read is a kernel of its own. Kernels
without a reduction read each result once, and compile in time that is linear in a chain; others may not. Heuristic."""

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
        result = builder.emit(substituted(binding.value, seen))
        if binding.var in first:
            apart[binding.var] = _apart(builder, result)
        return result

    return rebuilt_main(module, builder, make)


def _apart(builder: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    attrs = {"op_pattern": OPAQUE_PATTERN}
    return builder.emit_te(topi.reshape, value, shape_of(value), primfunc_name_hint="reshape", primfunc_attrs=attrs)


def _cuts(module: IRModule, bindings: Sequence[relax.VarBinding]) -> dict[relax.Var, list[relax.Var]]:
    """The results that are to be computed before the kernel of each of the calls that read them."""
    chains: dict[relax.Var, _Chain] = {}
    sizes: dict[relax.Var, int] = {}
    loads: dict[GlobalVar, list[int]] = {}
    readers = Counter(var for binding in bindings for var in set(variables_read(binding.value)))
    others = [binding.value for binding in bindings if not _is_fused(module, binding.value)]
    stored = {var for value in (*others, module["main"].body.body) for var in variables_read(value)}
    cut: dict[relax.Var, list[relax.Var]] = {}
    anchored = set[relax.Var]()
    for binding in bindings:
        call, shape = binding.value, shape_of(binding.var)
        if operator_name(call) == "relax.call_tir" and pattern_of(module, call) == ANCHOR_PATTERN:
            anchored.add(binding.var)
        if shape is None or not _is_fused(module, call):
            continue
        counts = pattern_of(module, call) < INJECTIVE_PATTERN and not _rounds(binding)
        count, cost = (1, SLOW.get(call.args[0].name_hint.rstrip("0123456789"), 1)) if counts else (0, 0)
        for var in dict.fromkeys(variables_read(call)):
            chain, read = chains.get(var, _Chain()), shape_of(var)
            if read is None:
                continue
            if var in anchored and pattern_of(module, call) < INJECTIVE_PATTERN:
                if math.prod(shape) > math.prod(read):
                    cut.setdefault(binding.var, []).append(var)
                    continue
                anchored.add(binding.var)
            if (math.prod(shape) - math.prod(read)) * chain.cost >= KERNEL_OPS and (
                chain.count >= LEAST_CHAIN or (read and read[-1] > 1)
            ):
                cut.setdefault(binding.var, []).append(var)
            else:
                count, cost = count + chain.count, cost + chain.cost
        chains[binding.var] = _Chain(count, cost)
        if call.args[0] not in loads:
            loads[call.args[0]] = _loads(module[call.args[0]])
        parts = Counter[relax.Var]()
        for read, times in zip(call.args[1].fields, loads[call.args[0]], strict=False):
            if read in sizes and read not in stored and read not in cut.get(binding.var, ()):
                parts[read] += times * sizes[read]
        for read in [read for read in parts if sizes[read] >= LARGEST_PART and readers[read] > 1]:
            cut.setdefault(binding.var, []).append(read)
            del parts[read]
        sizes[binding.var] = 1 + parts.total()
    return cut


def _is_fused(module: IRModule, value: relax.Expr) -> bool:
    """Return whether a kernel that reads what ``value`` makes may compute it itself."""
    return operator_name(value) == "relax.call_tir" and pattern_of(module, value) <= INJECTIVE_PATTERN


def _loads(kernel: tirx.PrimFunc) -> list[int]:
    """Return how often one element of a kernel's result reads each of its operands, at least once."""
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(kernel.body, (TensorLoad, loads.append))
    return [max(1, sum(load.source.same_as(param) for load in loads)) for param in kernel.params[:-1]]


def _rounds(binding: relax.VarBinding) -> bool:
    """Return whether a call casts floats to floats."""
    kinds = [str(value.ty.dtype) for value in (*binding.value.args[1].fields, binding.var)]
    return binding.value.args[0].name_hint.startswith("cast") and all("float" in kind for kind in kinds)
