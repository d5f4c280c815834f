"""Quantised tensors lie in memory as bytes, not as the numbers that they stand for.

``FuseOps`` puts what follows a product into its kernel as long as one path leads on, so a quantiser and the dequantiser
behind it end up in one kernel, which then stores float32:

    a: product → … → uint8 → (q − z) · s                   a: product → … → uint8
    b: product → … → + a → …                         →     b: product → … → + (a − z) · s → …

Where kernels read the result element by element, they dequantise for themselves: a quarter of the bytes is written and
read. A kernel that does nothing but dequantise is left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.relax.utils import copy_with_new_vars

from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    pattern_of,
    rebuilt_main,
    substituted,
    variables_read,
    without_main,
)

BYTES = ("uint8", "int8")

ONCE = (0, 1, 2, 3)
"""TVM's ``kElemWise``, ``kBroadcast``, ``kInjective`` and ``kCommReduce``: operators that read a number once, or as
often as results are made of it."""


@dataclass(frozen=True)
class _Kernel:
    """A fused function: its parameters and calls, in order; the last call makes the result."""

    params: list[relax.Var]
    bindings: list[relax.VarBinding]

    @classmethod
    def of(cls, function: relax.Function) -> _Kernel:
        return cls(list(function.params), [binding for block in function.body.blocks for binding in block.bindings])


def store_bytes(module: IRModule) -> IRModule:
    """``module``, between ``FuseOps`` and ``FuseTIR``, with dequantisers moved to the kernels that read them."""
    bindings = bindings_of(module)
    readers = Counter(var for binding in bindings for var in variables_read(binding.value))
    readers.update(variables_read(module["main"].body.body))
    kernels = {b.var: kernel for b in bindings if (kernel := _fused(module, b.value)) is not None}
    moves: dict[relax.Var, int] = {}  # result of a kernel → calls at its end that may move
    served: Counter[relax.Var] = Counter()
    for binding in bindings:
        kernel = kernels.get(binding.var)
        if kernel is None:
            continue
        for param, arg in zip(kernel.params, binding.value.args, strict=True):
            source = kernels.get(arg) if isinstance(arg, relax.Var) else None
            if source and (count := _dequantising(source)) and _reads_elements(module, kernel, param):
                moves[arg] = count
                served[arg] += 1
    moved = {var: count for var, count in moves.items() if served[var] == readers[var]}
    return _rebuilt(module, moved, kernels) if moved else module


def _fused(module: IRModule, call: relax.Expr) -> _Kernel | None:
    """The kernel that ``call`` calls, if it is a fused one."""
    if not isinstance(call, relax.Call) or not isinstance(call.op, GlobalVar):
        return None
    function = module[call.op]
    is_kernel = isinstance(function, relax.Function) and function.attrs and "Primitive" in function.attrs
    return _Kernel.of(function) if is_kernel else None


def _dequantising(kernel: _Kernel) -> int:
    """Return how many calls at a kernel's end make numbers of bytes that it made, element by element; 0 if none."""
    wanted = kernel.bindings[-1].var
    for count, binding in enumerate(reversed(kernel.bindings)):
        if binding.var is not wanted and not binding.var.same_as(wanted):
            return 0
        if str(binding.var.ty.dtype) in BYTES:
            return count
        read = variables_read(binding.value)
        if len(read) != 1:
            return 0
        if any(read[0].same_as(param) for param in kernel.params):
            alone = len(kernel.params) == 1 and count + 1 == len(kernel.bindings)
            return count + 1 if alone and _is_of_bytes(read[0], binding.var) else 0
        if [int(size) for size in read[0].ty.shape] != [int(size) for size in binding.var.ty.shape]:
            return 0
        wanted = read[0]
        if sum(var.same_as(wanted) for other in kernel.bindings for var in variables_read(other.value)) != 1:
            return 0
    return 0


def _is_of_bytes(read: relax.Var, written: relax.Var) -> bool:
    sizes = [[int(size) for size in var.ty.shape] for var in (read, written)]
    return str(read.ty.dtype) in BYTES and sizes[0] == sizes[1]


def _reads_elements(module: IRModule, kernel: _Kernel, param: relax.Var) -> bool:
    """Return whether a kernel reads ``param`` in one call, and each number of it about once."""
    calls = [b for b in kernel.bindings if any(var.same_as(param) for var in variables_read(b.value))]
    if len(calls) != 1:
        return False
    is_mean = str(calls[0].value.args[0].name_hint).startswith("mean")  # TVM takes it for a product, as it divides
    return is_mean or pattern_of(module, calls[0].value) in ONCE


def _rebuilt(module: IRModule, moved: dict[relax.Var, int], kernels: dict[relax.Var, _Kernel]) -> IRModule:
    """``module`` with the last ``moved`` calls of kernels in those that read them."""
    builder = relax.BlockBuilder(IRModule(without_main(module)))
    changed: dict[relax.Var, GlobalVar] = {}
    for binding in bindings_of(module):
        kernel = kernels.get(binding.var)
        taken = [arg for arg in binding.value.args if arg in moved] if kernel else []
        if kernel and (taken or binding.var in moved) and moved.get(binding.var) != len(kernel.bindings):
            kept = kernel.bindings[: len(kernel.bindings) - moved.get(binding.var, 0)]
            tails = {
                param: kernels[arg].bindings[-moved[arg] :]
                for param, arg in zip(kernel.params, binding.value.args, strict=True)
                if arg in taken
            }
            function = _function(kernel.params, tails, kept).with_attrs(module[binding.value.op].attrs)
            calls = [other for tail in tails.values() for other in tail] + kept  # ``FuseOps`` names kernels after them
            name = "_".join(["fused", *(other.value.args[0].name_hint for other in calls)])
            changed[binding.var] = builder.add_func(function, name)

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        call = substituted(binding.value, values)
        if binding.var in moved and binding.var not in changed:
            return call.args[0]
        return builder.emit(relax.Call(changed[binding.var], call.args) if binding.var in changed else call)

    return relax.transform.DeadCodeElimination(["main"])(rebuilt_main(module, builder, make))


def _function(
    params: list[relax.Var], tails: dict[relax.Var, list[relax.VarBinding]], kept: list[relax.VarBinding]
) -> relax.Function:
    """A fused function that first computes what some of its parameters were, by calls of other kernels' ends.

    A kernel may read what it made itself in an earlier call: then ``kept`` and ``tails`` have the same variables.
    """
    values: dict[relax.Var, relax.Expr] = {}
    bindings: list[relax.VarBinding] = []
    own: list[relax.Var] = []

    def append(binding: relax.VarBinding, known: dict[relax.Var, relax.Expr]) -> relax.Var:
        known[binding.var] = relax.DataflowVar(binding.var.name, binding.var.ty)
        bindings.append(relax.VarBinding(known[binding.var], substituted(binding.value, known)))
        return known[binding.var]

    for param in params:
        own.append(param)
        if param not in tails:
            continue
        (source,) = variables_read(tails[param][0].value)
        own[-1] = relax.Var(param.name, source.ty)
        inner: dict[relax.Var, relax.Expr] = {source: own[-1]}
        for binding in tails[param]:
            values[param] = append(binding, inner)
    for binding in kept:
        append(binding, values)
    out = relax.Var("gv", bindings[-1].var.ty)
    bindings[-1] = relax.VarBinding(out, bindings[-1].value)
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
    return copy_with_new_vars(relax.Function(own, body, out.ty))
