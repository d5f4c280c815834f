"""Kernels that differ in numbers alone become one, which is given the numbers.

The layers of a quantised model have scales and zero points of their own. As constants of kernels they would make a
kernel, and a task to tune, of each layer; as an argument, layers of one shape have one kernel:

    k0(x): conv(x) · 0.17 + 3        k(x, c): conv(x) · c[0] + c[1]
    k1(x): conv(x) · 0.21 + 3   →    k0 = k(·, [0.17, 3]), k1 = k(·, [0.21, 3]), or c[1] stays 3 where all have it
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, s_tir, tirx
from tvm.ir import Call, GlobalVar, IRModule, Range
from tvm.ir.expr import TensorLoad

from autotune.importer.layouts.packing import Array
from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    operator_name,
    rebuilt_main,
    substituted,
    without_main,
)
from schedules.lower import NUMBERS
from schedules.templates.common.structure import nodes_below

MOST_NUMBERS = 16
"""Numbers that kernels may differ in to become one. Heuristic, not measured: a kernel reads each of them once."""

FIRST = 1 << 20
"""Number that replaces the first one where kernels are compared: the numbers stand for their places then."""


def share_kernels(module: IRModule, weights: Sequence[Array]) -> tuple[IRModule, list[Array]]:
    """``module`` and its weights with fewer kernels.

    Args:
        module: fused; its ``main`` takes the model's inputs and ``weights`` and calls kernels.
    """
    groups: dict[bytes, list[tuple[GlobalVar, tuple[float, ...]]]] = {}
    skeletons: dict[bytes, tirx.PrimFunc] = {}
    for var, function in sorted(module.functions_items(), key=lambda item: item[0].name_hint):
        if not isinstance(function, tirx.PrimFunc):
            continue
        skeleton, numbers = _skeleton(function)
        key = tvm_ffi.structural_hash(skeleton)
        if tvm_ffi.structural_equal(skeleton, skeletons.setdefault(key, skeleton)):
            groups.setdefault(key, []).append((var, numbers))
    builder = relax.BlockBuilder(IRModule(without_main(module)))
    replaced: dict[GlobalVar, tuple[GlobalVar, NDArray[np.float32]]] = {}
    for members in groups.values():
        table = np.array([numbers for _, numbers in members], np.float32)
        varying = [place for place in range(table.shape[1]) if len(np.unique(table[:, place].view(np.uint32))) > 1]
        first = members[0][0]
        if not 0 < len(varying) <= MOST_NUMBERS or _exponents(module[first]) & set(varying):
            continue
        function = _parametrised(module[first], varying).with_attr(NUMBERS, table[0, varying].tolist())
        shared = builder.add_func(function, first.name_hint)
        for (var, _), numbers in zip(members, table, strict=True):
            replaced[var] = (shared, numbers[varying])
    return _rebuilt(module, weights, builder, replaced) if replaced else (module, list(weights))


def _is_number(node: tirx.FloatImm) -> bool:
    return str(node.ty.dtype) == "float32"


def _skeleton(function: tirx.PrimFunc) -> tuple[tirx.PrimFunc, tuple[float, ...]]:
    """``function`` with every float32 number replaced by its place, and the numbers."""
    numbers: list[float] = []

    def placed(node: tirx.FloatImm) -> tirx.Expr:
        if not _is_number(node):
            return node
        numbers.append(float(node.value))
        return tirx.const(float(FIRST + len(numbers) - 1), "float32")

    return tvm_ffi.structural_map(function, (tirx.FloatImm, placed)), tuple(numbers)


def _exponents(function: tirx.PrimFunc) -> set[int]:
    """Places of the numbers that something is raised to: kernels are made for those, a square is one product."""
    powers = [
        call for call in nodes_below(_skeleton(function)[0], Call) if str(getattr(call.op, "name", "")) == "tirx.pow"
    ]
    return {int(arg.value) - FIRST for call in powers for arg in call.args if isinstance(arg, tirx.FloatImm)}


def _parametrised(function: tirx.PrimFunc, places: Sequence[int]) -> tirx.PrimFunc:
    """``function`` with the numbers at ``places`` read from a parameter before its result."""
    buffer = tirx.decl_buffer((len(places),), "float32", "numbers")
    order = {FIRST + place: index for index, place in enumerate(places)}
    skeleton, numbers = _skeleton(function)

    def read(node: tirx.FloatImm) -> tirx.Expr:
        if not _is_number(node) or node.value < FIRST:
            return node
        index = order.get(int(node.value))
        if index is None:
            return tirx.const(numbers[int(node.value) - FIRST], "float32")
        return tirx.BufferLoad(buffer, [tirx.const(index, "int64")])

    def declared(block: s_tir.SBlock) -> s_tir.SBlock:
        reads = any(load.source.same_as(buffer) for load in nodes_below(block, TensorLoad))
        if block.name_hint == "root" or not reads:
            return block
        region = tirx.BufferRegion(buffer, [Range(0, len(places))])
        return s_tir.SBlock(
            block.iter_vars,
            [*block.reads, region],
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = tvm_ffi.structural_map(
        tvm_ffi.structural_map(skeleton.body, (tirx.FloatImm, read)), (s_tir.SBlock, declared)
    )
    *before, result = skeleton.params
    return tirx.PrimFunc([*before, buffer, result], body, skeleton.ret_type, skeleton.attrs)


def _rebuilt(
    module: IRModule,
    weights: Sequence[Array],
    builder: relax.BlockBuilder,
    replaced: dict[GlobalVar, tuple[GlobalVar, NDArray[np.float32]]],
) -> tuple[IRModule, list[Array]]:
    """``main`` with calls of the shared kernels, their numbers as further weights."""
    more = list(weights)
    parameters: dict[bytes, relax.Var] = {}
    for binding in bindings_of(module):
        numbers = replaced[binding.value.args[0]][1] if _kernel(binding.value) in replaced else None
        if numbers is not None and numbers.tobytes() not in parameters:
            name = f"numbers_{len(parameters)}"
            parameters[numbers.tobytes()] = relax.Var(name, relax.TensorType(numbers.shape, "float32"))
            more.append(numbers)

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        call = substituted(binding.value, values)
        if (kernel := _kernel(call)) in replaced:
            shared, numbers = replaced[kernel]
            operands = relax.Tuple([*call.args[1].fields, parameters[numbers.tobytes()]])
            call = relax.Call(call.op, [shared, operands, *call.args[2:]], call.attrs, call.ty_args)
        return builder.emit(call)

    rebuilt = rebuilt_main(module, builder, make, list(parameters.values()))
    return relax.transform.DeadCodeElimination(["main"])(rebuilt), more


def _kernel(expr: relax.Expr) -> GlobalVar | None:
    """The kernel that ``expr`` calls."""
    is_call = operator_name(expr) == "relax.call_tir"
    return expr.args[0] if is_call else None
