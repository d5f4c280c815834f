"""Layouts for the whole graph, weights packed for them, in one walk over the Relax program.

Convolutions and pools make native images, layout-agnostic operators keep what they get, everything else gets plain
tensors. On a pure CNN the only conversions left are at its ends. Constants are folded and packed in NumPy, so nothing
is repacked at run time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst, IRModule

from autotune.host.dtypes import numpy_type
from autotune.importer.layouts.packing import Array
from autotune.importer.layouts.tensor_layouts import TensorLayouts, Value, elements
from autotune.importer.onnx_model.tensors import leave_pages
from autotune.importer.rewriting.relax_values import bindings_of, mapped, operator_name, shape_of, variables_read


def assign_layouts(module: IRModule, layouts: TensorLayouts) -> tuple[IRModule, list[Array]]:
    """Rewrite ``main`` in the layouts of a kind of target.

    Args:
        layouts: empty; collects the new program.

    Returns:
        The module, whose ``main`` takes the model's inputs and then the weights, and those weights; its functions
        besides ``main`` are the emitted kernels.
    """
    function = module["main"]
    builder = layouts.builder
    params = [relax.Var(param.name, param.ty) for param in function.params]
    for old, new in zip(function.params, params, strict=True):
        layouts.values[old] = Value(shape_of(old) or (), plain=new)
    layouts.consumers = _consumers(module)
    layouts.bound = {
        binding.value: binding.var for binding in bindings_of(module) if isinstance(binding.value, relax.Call)
    }
    # Kernels that the importer wrote itself come along; calls of them name the copy.
    for var, kernel in module.functions_items():
        if isinstance(kernel, tirx.PrimFunc):
            layouts.kernels[var] = builder.add_func(kernel, var.name_hint)
            layouts.functions[var] = kernel
    with builder.function("main", attrs={"num_input": len(params)}):
        with builder.dataflow():
            for binding in bindings_of(module):
                _rebuild(layouts, binding)
                _leave_constants(binding.value)
            result = builder.emit_output(layouts.plain_expr(function.body.body))
        builder.emit_func_output(result, [*params, *layouts.parameters])
    return builder.finalize(), layouts.weights


def _consumers(module: IRModule) -> dict[relax.Var, list[relax.Call]]:
    """Variable → the calls that read it; what the function returns counts as read by a call of nothing."""
    consumers: dict[relax.Var, list[relax.Call]] = {}
    for value in (*(binding.value for binding in bindings_of(module)), module["main"].body.body):
        for var in () if isinstance(value, relax.TupleGetItem) else variables_read(value):
            consumers.setdefault(var, []).append(value)
    return consumers


def _leave_constants(expr: relax.Expr) -> None:
    """Leave the pages of the weights that ``expr`` reads: they are packed now, and lie in the model's file."""
    for argument in expr.args if isinstance(expr, relax.Call) else ():
        if isinstance(argument, GenericConst):
            leave_pages(elements(argument))


def _rebuild(layouts: TensorLayouts, binding: relax.VarBinding) -> None:
    """Note what ``binding`` names in ``layouts``, and emit what it takes to compute it."""
    var, expr = binding.var, binding.value
    layouts.current = var
    if isinstance(expr, relax.Var) and expr not in layouts.constants:
        layouts.values[var] = layouts.values[expr]
        return
    array = layouts.array(expr)
    if array is None and isinstance(expr, relax.Call):
        array = _folded(layouts, expr, var)
    if array is not None:
        layouts.constants[var] = array
        return
    if isinstance(expr, relax.Call):
        layouts.made_by[var] = expr
    rule, shape = layouts.rules.get(operator_name(expr)), shape_of(var)
    value = None if rule is None else rule(layouts, expr, shape or ())
    if value is None:  # on plain tensors, as it stands
        emitted = layouts.builder.emit(mapped(expr, layouts.plain_expr))
        value = emitted if shape is None else Value(shape, plain=emitted)
    layouts.values[var] = value


def _folded(layouts: TensorLayouts, call: relax.Call, var: relax.Var) -> Array | None:
    """The array that ``call`` makes of constants only, else None."""
    shape = shape_of(var)
    arrays = [layouts.array(arg) for arg in call.args]
    if shape is None or not any(array is not None for array in arrays):
        return None
    if any(a is None and not isinstance(arg, relax.ShapeExpr) for a, arg in zip(arrays, call.args, strict=True)):
        return None
    return fold_call(call, arrays, shape, str(var.ty.dtype))


def _axes(call: relax.Call, name: str = "axes") -> tuple[int, ...] | None:
    axes = getattr(call.attrs, name)
    return None if axes is None else tuple(int(axis) for axis in axes)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1.0 / np.sqrt(x)).astype(x.dtype),
    "relax.negative": np.negative,
    "relax.exp": np.exp,
    "relax.abs": np.abs,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}
_OF_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.less": np.less,
}
"""Arithmetic on integers, such as places that count from the end of a tensor where they are negative."""


def fold_call(call: relax.Call, args: list[Array | None], shape: tuple[int, ...], dtype: str) -> Array | None:
    """The value of ``call`` whose arguments are all constant, or None if it is not one of the folded kinds.

    Args:
        args: value of each argument; None for one that is not an array (a shape).
        shape, dtype: of the result, which may be a view of an argument: what becomes a weight is packed, or copied by
            ``TensorLayouts.constant``, and one copy of a large one is enough.
    """
    name = str(call.op.name)
    first = args[0] if args else None
    if first is None:
        return None
    result: Array | None = None
    if name in ("relax.reshape", "relax.squeeze"):
        result = first.reshape(shape)
    elif name == "relax.astype":
        result = first
    elif name == "relax.permute_dims":
        result = np.transpose(first, _axes(call))
    elif name == "relax.expand_dims":
        result = np.expand_dims(first, _axes(call, "axis") or ())
    elif name == "relax.broadcast_to":
        result = np.broadcast_to(first, shape)
    elif name in _UNARY:
        result = _UNARY[name](first)
    elif name == "relax.where" and args[1] is not None and args[2] is not None:
        result = np.where(first, args[1], args[2])
    elif name in (binary := _BINARY if first.dtype.kind == "f" else _OF_INTEGERS) and args[1] is not None:
        result = binary[name](first, args[1])
    if result is None or result.shape != shape:
        return None
    return result.astype(numpy_type(dtype), copy=False)
