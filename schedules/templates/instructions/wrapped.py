"""Sums, differences and products of integers that wrap around, as ONNX Runtime's do.

TVM's simplifier and LLVM's flags ``nsw`` and ``nuw`` take an overflow for impossible:

    (x · c) ÷ c    →  x                 x + 1 > x    →  true
    x − (x + c)    →  0 − c             TVM refuses a negative number of an unsigned type

So arithmetic on integers that were loaded becomes calls that both read as they are written, and that on constants its
result. After vectorisation each call is a function of one LLVM instruction without flags, which is inlined. Left alone
are indices, which stay within their tensors, and sums that a loop adds up.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.ir.op import register_op_attr

from schedules.templates.common.vector_math import READS_STATE

KINDS = {tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul"}
FOLDED = {tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul}
OPERATOR = "tune.wrapped_{}"
SYMBOL = re.compile(r"tune_wrapped_(add|sub|mul)_i(\d+)_(\d+)")

for _kind in KINDS.values():
    _name = OPERATOR.format(_kind)
    tvm_ffi.get_global_func("ir.RegisterOp")(_name, f"{_kind} of integers that wraps around")
    register_op_attr(_name, "TCallEffectKind", READS_STATE)
    register_op_attr(_name, "TVectorizable", True)
    register_op_attr(_name, "TScriptPrinterName", _name)


def wrapped(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, which is scheduled, with calls in place of arithmetic on loaded integers."""

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        if not any(map(_is_integer, _below(node.value, tuple(KINDS)))) or _adds_up(node):
            return node
        return tirx.BufferStore(node.buffer, _wrapped(node.value), node.indices)

    mapped: tirx.PrimFunc = tvm_ffi.structural_map(func, (tirx.BufferStore, store))
    return mapped


def _wrapped(value: tirx.Expr) -> tirx.Expr:
    indices = [index for load in _below(value, TensorLoad) for index in load.indices]
    left = [node for index in indices for node in _below(index, tuple(KINDS))]

    def call(node: tirx.Add | tirx.Sub | tirx.Mul) -> tirx.Expr:
        if not _is_integer(node) or any(node.same_as(other) for other in left):
            return node
        if isinstance(node.a, tirx.IntImm) and isinstance(node.b, tirx.IntImm):
            return _constant(FOLDED[type(node)](int(node.a.value), int(node.b.value)), str(node.ty.dtype))
        if not any(_is_integer(load) for load in _below(node, TensorLoad)):
            return node
        return tirx.call_intrin(str(node.ty.dtype), OPERATOR.format(KINDS[type(node)]), node.a, node.b)

    mapped: tirx.Expr = tvm_ffi.structural_map(value, (tuple(KINDS), call), order="pre")
    return mapped


def _constant(value: int, dtype: str) -> tirx.Expr:
    """``value`` in the type ``dtype``, whose bits beyond it are lost."""
    bits = tvm.DataType(dtype).bits
    value %= 1 << bits
    return tirx.const(value if dtype.startswith("u") or value < 1 << (bits - 1) else value - (1 << bits), dtype)


def _adds_up(store: tirx.BufferStore) -> bool:
    """Return whether ``store`` changes the element that it writes, as a reduction does."""
    return any(
        load.source.same_as(store.buffer) and all(map(tvm_ffi.structural_equal, load.indices, store.indices))
        for load in _below(store.value, TensorLoad)
    )


def _is_integer(expr: tirx.Expr) -> bool:
    return str(expr.ty.dtype).startswith(("int", "uint"))


def _below(root: object, kind: type | tuple[type, ...]) -> list[tirx.Expr]:
    nodes: list[tirx.Expr] = []
    tvm_ffi.structural_walk(root, (kind, nodes.append))  # append returns None, which means: go on
    return nodes


def functions_called(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, which is vectorised, with calls of functions for those of ``wrapped``."""
    names = {OPERATOR.format(kind): kind for kind in KINDS.values()}

    def called(call: Call) -> tirx.Expr:
        kind = names.get(str(getattr(call.op, "name", "")))
        if kind is None:
            return call
        dtype = tvm.DataType(str(call.ty.dtype))
        return tirx.call_pure_extern(str(dtype), f"tune_wrapped_{kind}_i{dtype.bits}_{dtype.lanes}", *call.args)

    mapped: tirx.PrimFunc = tvm_ffi.structural_map(func, (Call, called), order="post")
    return mapped


def definitions(called: Collection[str]) -> list[str]:
    """The functions among the names ``called``, in LLVM's language."""
    matches = [match.groups() for match in map(SYMBOL.fullmatch, sorted(called)) if match]
    return [_definition(kind, int(bits), int(lanes)) for kind, bits, lanes in matches]


def _definition(kind: str, bits: int, lanes: int) -> str:
    number = f"i{bits}" if lanes == 1 else f"<{lanes} x i{bits}>"
    return (
        f"define linkonce_odr {number} @tune_wrapped_{kind}_i{bits}_{lanes}({number} %a, {number} %b) alwaysinline "
        f"{{\n  %r = {kind} {number} %a, %b\n  ret {number} %r\n}}\n"
    )
