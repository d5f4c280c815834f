"""Layouts for the whole graph, weights packed for them, in one walk over the Relax program.

Every tensor is *plain* (as ONNX has it) or *blocked* (n, C/b, h, w, b). Convolutions and pools produce blocked
tensors, elementwise operations and joins keep what they get, everything else is served plain. A conversion is
emitted once per tensor and only where a consumer needs the other form, so on a pure CNN the only ones left are at
its ends. Channels that b does not divide are padded with zeros; zero weights keep what is in them from mattering.

Constants are folded and packed in NumPy, so nothing is repacked at run time.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, tirx
from tvm.ir import IRModule

from autotune.importer.layouts import channels_last
from autotune.importer.layouts.anchors import convolution, dense, joined, pooling
from autotune.importer.layouts.fold_constants import fold
from autotune.importer.layouts.layout_agnostic import BINARY, STRICT, UNARY, batch_norm, binary, mean, reshape, unary
from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.layouts.products import product, transposed
from autotune.importer.layouts.tensor_layouts import Forms, Value, shape_of

Rule = Callable[[Forms, relax.Call, Shape], Value | None]

RULES: dict[str, Rule] = {
    "relax.nn.conv2d": convolution,
    "relax.nn.max_pool2d": pooling,
    "relax.nn.avg_pool2d": pooling,
    "relax.mean": mean,
    "relax.concat": joined,
    "relax.matmul": lambda forms, call, shape: dense(forms, call, shape) or product(forms, call, shape),
    "relax.permute_dims": transposed,
    "relax.nn.batch_norm": batch_norm,
    "relax.reshape": reshape,
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY | STRICT, binary),
}
"""Operations that are rebuilt; all others are served plain tensors."""

GPU_RULES: dict[str, Rule] = {
    **channels_last.ANCHORS,
    **dict.fromkeys(UNARY, channels_last.unary),
    **dict.fromkeys(BINARY | STRICT, channels_last.binary),
}
"""The same for a GPU."""


def assign_layouts(module: IRModule, block: int, gpu: bool = False) -> tuple[IRModule, list[Array]]:
    """Rewrite ``main`` for vectors of ``block`` channels, or channels-last for a GPU.

    Returns:
        The module, whose ``main`` takes the model's inputs and then the weights, and those weights; its functions
        besides ``main`` are the emitted kernels.
    """
    function = module["main"]
    forms = channels_last.ChannelsLast() if gpu else Forms(block)
    forms.rules = GPU_RULES if gpu else RULES
    builder = forms.builder
    params = [relax.Var(param.name, param.ty) for param in function.params]
    for old, new in zip(function.params, params, strict=True):
        forms.values[old] = Value(shape_of(old) or (), plain=new)
    forms.consumers = _consumers(function)
    # Kernels that the importer wrote itself come along; calls of them name the copy.
    for var, kernel in module.functions_items():
        if isinstance(kernel, tirx.PrimFunc):
            forms.kernels[var] = builder.add_func(kernel, var.name_hint)
    with builder.function("main", attrs={"num_input": len(params)}):
        with builder.dataflow():
            for bindings in function.body.blocks:
                for binding in bindings.bindings:
                    _rebuild(forms, binding)
            result = builder.emit_output(forms.plain_expr(function.body.body))
        builder.emit_func_output(result, [*params, *forms.parameters])
    return builder.finalize(), forms.weights


def _consumers(function: relax.Function) -> dict[relax.Var, list[relax.Call]]:
    """Variable → the calls that read it; what the function returns counts as read by a call of nothing."""
    found: dict[relax.Var, list[relax.Call]] = {}

    def note(expr: relax.Expr, call: relax.Call) -> None:
        if isinstance(expr, relax.Tuple):
            for field in expr.fields:
                note(field, call)
        elif isinstance(expr, relax.Var):
            found.setdefault(expr, []).append(call)

    for bindings in function.body.blocks:
        for binding in bindings.bindings:
            value = binding.value
            for arg in value.args if isinstance(value, relax.Call) else [value]:
                note(arg, value)
    note(function.body.body, function.body.body)
    return found


def _rebuild(forms: Forms, binding: relax.VarBinding) -> None:
    """Add ``binding`` to ``forms``, and what it takes to the new program."""
    var, expr = binding.var, binding.value
    forms.current = var
    if isinstance(expr, relax.Var) and expr not in forms.constants:
        forms.values[var] = forms.values[expr]
        return
    array = forms.array(expr)
    if array is None and isinstance(expr, relax.Call):
        array = _folded(forms, expr, var)
    if array is not None:
        forms.constants[var] = array
        return
    # A tuple known as one value: a batch norm, of which only the first result is ever used at inference.
    whole = forms.value(expr.tuple_value) if isinstance(expr, relax.TupleGetItem) else None
    forms.values[var] = whole or _followed(forms, expr, shape_of(var)) or _plain(forms, expr, shape_of(var))


def _folded(forms: Forms, call: relax.Call, var: relax.Var) -> Array | None:
    """The array that ``call`` makes of constants only, else None."""
    shape = shape_of(var)
    arrays = [forms.array(arg) for arg in call.args]
    if shape is None or not any(array is not None for array in arrays):
        return None
    if any(a is None and not isinstance(arg, relax.ShapeExpr) for a, arg in zip(arrays, call.args, strict=True)):
        return None
    return fold(call, arrays, shape, str(var.ty.dtype))


def _followed(forms: Forms, expr: relax.Expr, shape: Shape | None) -> Value | None:
    """What the rule for ``expr`` makes of it, if there is one and it applies."""
    if not isinstance(expr, relax.Call):
        return None
    rule = forms.rules.get(str(getattr(expr.op, "name", "")))
    return None if rule is None else rule(forms, expr, shape or ())


def _plain(forms: Forms, expr: relax.Expr, shape: Shape | None) -> Value | relax.Expr:
    """``expr`` as it was, with plain tensors."""
    if isinstance(expr, relax.Call):
        args = [forms.plain_expr(arg) for arg in expr.args]
        expr = relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    elif isinstance(expr, relax.TupleGetItem):
        expr = relax.TupleGetItem(forms.plain_expr(expr.tuple_value), expr.index)
    elif isinstance(expr, relax.Tuple):
        expr = forms.plain_expr(expr)
    emitted = forms.builder.emit(expr)
    return emitted if shape is None else Value(shape, plain=emitted)
