"""Expressions and programs of Relax: what is known of them, and ``main`` built again from other bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.ir import GenericConst, GlobalVar, IRModule
from tvm.relax.frontend.onnx import onnx_frontend

from autotune.importer.rewriting.registry import OPAQUE_PATTERN

Values = dict[relax.Var, relax.Expr]
"""Variable of an old program → what it is in the new one."""


def shape_of(expr: relax.Expr) -> tuple[int, ...] | None:
    """Static shape of a tensor expression, or None if it has none."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    try:
        return tuple(int(extent) for extent in ty.shape)
    except TypeError:
        return None


def sizes_of(expr: relax.Expr | None) -> list[int]:
    """Return the shape of a tensor, which must be there and known."""
    assert expr is not None
    return [int(size) for size in expr.ty.shape]


def dtype_of(expr: relax.Expr | None) -> str:
    """Return the element type of a tensor, which must be there, by TVM's name."""
    assert expr is not None
    return str(expr.ty.dtype)


def constant_of(expr: relax.Expr | None) -> NDArray[Any] | None:
    """Return the value of a constant, else None."""
    return np.asarray(expr.value.numpy()) if isinstance(expr, GenericConst) else None


def operator_name(expr: relax.Expr) -> str:
    """Name of the operator that ``expr`` calls, with its dialect; empty for what is no call of one."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


def text_of(attrs: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return an attribute that is text; ``default`` where it is left out or empty."""
    value = attrs.get(name) or default
    return value.decode() if isinstance(value, bytes) else str(value)


def leaves(expr: relax.Expr) -> list[relax.Expr]:
    """The variables, constants and other things that calls and tuples in ``expr`` are made of, as often as they are."""
    if isinstance(expr, relax.TupleGetItem):
        return leaves(expr.tuple_value)
    if not isinstance(expr, relax.Tuple | relax.Call):
        return [expr]
    return [leaf for part in (expr.fields if isinstance(expr, relax.Tuple) else expr.args) for leaf in leaves(part)]


def variables_read(expr: relax.Expr) -> list[relax.Var]:
    """The variables that ``expr`` reads, once for every time that it reads them."""
    return [leaf for leaf in leaves(expr) if isinstance(leaf, relax.Var)]


def mapped(expr: relax.Expr, leaf: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """``expr`` with what its calls and tuples are made of replaced by what ``leaf`` returns for it."""
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([mapped(field, leaf) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(mapped(expr.tuple_value, leaf), expr.index)
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, [mapped(arg, leaf) for arg in expr.args], expr.attrs, expr.ty_args)
    return leaf(expr)


def substituted(expr: relax.Expr, values: Mapping[Any, relax.Expr]) -> relax.Expr:
    """``expr`` with variables, and names of functions, replaced by what ``values`` has for them."""
    return mapped(expr, lambda leaf: values.get(leaf, leaf) if isinstance(leaf, relax.Var | GlobalVar) else leaf)


def pattern_of(module: IRModule, call: relax.Call) -> int:
    """TVM's pattern of the kernel that ``call`` calls, after which kernels are fused."""
    attrs = module[call.args[0]].attrs or {}
    return int(attrs["op_pattern"]) if "op_pattern" in attrs else OPAQUE_PATTERN


def native(kind: str, bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Return what Relax's importer makes of the operator ``kind``."""
    converter = onnx_frontend._get_convert_map()[kind].get_converter(opset)
    return converter(bb, onnx_frontend.onnx_input(inputs), attrs, [{}, {}])


def kernel_call(
    bb: relax.BlockBuilder,
    kernel: tirx.PrimFunc,
    name: str,
    operands: Sequence[relax.Expr | None],
    shape: Sequence[int],
    dtype: str,
) -> relax.Expr:
    """Emit a call of ``kernel``, which is added as ``name``, and return its result of ``shape`` and ``dtype``."""
    var = bb.add_func(kernel.without_attr("global_symbol"), name)
    return bb.emit(relax.op.call_tir(var, relax.Tuple(list(operands)), relax.TensorType(list(shape), dtype)))


def copied(bb: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    """Emit a kernel that writes ``value`` to memory of its own."""

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i), name="copy")

    return bb.emit_te(compute, value, primfunc_name_hint="copy")


def bindings_of(module: IRModule) -> list[relax.VarBinding]:
    """Return the bindings of ``main``, in order."""
    return [binding for block in module["main"].body.blocks for binding in block.bindings]


def without_main(module: IRModule) -> dict[GlobalVar, Any]:
    """Return the functions beside ``main``."""
    return {var: function for var, function in module.functions_items() if var.name_hint != "main"}


def rebuilt_main(
    module: IRModule,
    builder: relax.BlockBuilder,
    make: Callable[[relax.VarBinding, Values], relax.Expr | None],
    more: Sequence[relax.Var] = (),
    result: Callable[[relax.Expr, Values], relax.Expr] = substituted,
    values: Values | None = None,
) -> IRModule:
    """Emit ``main`` of ``module`` again into ``builder``, and return the module that it has then.

    Args:
        make: returns the new program's value of a binding, given those of what comes before it; None where it keeps
            that itself.
        more: parameters behind those that there are.
        result: returns the new program's value of what ``main`` returns.
        values: filled with the values of parameters and bindings.
    """
    main, values = module["main"], {} if values is None else values
    params = [relax.Var(param.name, param.ty) for param in main.params]
    values.update(zip(main.params, params, strict=True))
    with builder.function("main", [*params, *more], attrs=dict(main.attrs)):
        with builder.dataflow():
            for binding in bindings_of(module):
                if (value := make(binding, values)) is not None:
                    values[binding.var] = value
            output = builder.emit_output(result(main.body.body, values))
        builder.emit_func_output(output)
    return builder.finalize()
