"""Kernels of TE functions whose sizes are numbers, without TVM's search for variables in them.

Relax makes every kernel by ``BlockBuilder.call_te``, which looks for variables in all extents of all operands and
results, node by node, and puts fresh ones in their place. Programs here have none.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import block_builder
from tvm.relax.expr import te_tensor


@contextmanager
def static_calls() -> Iterator[None]:
    """Within the block ``call_te`` and ``emit_te`` take a short way where all sizes are numbers.

    What comes out is the same. Anything that is neither a tensor of such sizes nor a plain number goes TVM's way.
    """
    general = block_builder.gen_call_tir_inputs

    def inputs(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return _inputs(func, args, dict(kwargs)) or general(func, *args, **kwargs)

    block_builder.gen_call_tir_inputs = inputs
    try:
        yield
    finally:
        block_builder.gen_call_tir_inputs = general


class _DynamicError(Exception):
    """An argument that TVM has to look into."""


def _inputs(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tirx.PrimFunc, list[relax.Expr], list[relax.TensorType] | relax.TensorType] | None:
    """Return the kernel that ``call_tir`` calls, its tensors and the type of its result; None where TVM has to look."""
    attrs, types = kwargs.pop("primfunc_attrs", None), kwargs.pop("ty_args", [])
    arguments: list[relax.Expr] = []
    tensors: list[te.Tensor] = []
    try:
        plain = [_argument(arg, arguments, tensors) for arg in args]
        named = {name: _argument(arg, arguments, tensors) for name, arg in kwargs.items()}
    except _DynamicError:
        return None
    computed = func(*plain, **named)
    results = [computed] if isinstance(computed, te.Tensor) else list(computed)
    kernel = te.create_prim_func([*tensors, *results], "int64")
    if attrs:
        kernel = kernel.with_attrs(attrs)
    if len(types) != 1:
        types = [[relax.TensorType(result.shape, result.dtype) for result in results]]
    return kernel.without_attr("global_symbol"), arguments, types[0]


def _argument(arg: Any, arguments: list[relax.Expr], tensors: list[te.Tensor]) -> Any:
    """``arg`` as a TE function takes it; a tensor is added to both lists."""
    if arg is None or isinstance(arg, int | float | str | tirx.IntImm | tirx.FloatImm):
        return arg
    if isinstance(arg, list | tuple):
        return type(arg)(_argument(item, arguments, tensors) for item in arg)
    if isinstance(arg, relax.Expr) and _is_static(arg):
        letters = string.ascii_uppercase
        place = len(tensors)
        name = letters[place] if place < len(letters) else f"tensor_input_{place}"  # as TVM calls them
        arguments.append(arg)
        tensors.append(te_tensor(arg, {}, arg.name if isinstance(arg, relax.Var) else name))
        return tensors[-1]
    raise _DynamicError


def _is_static(tensor: relax.Expr) -> bool:
    """Return whether an expression is a tensor on no particular device whose extents are numbers."""
    ty = tensor.ty
    return (
        isinstance(ty, relax.TensorType)
        and ty.vdevice is None
        and isinstance(ty.shape, relax.ShapeExpr)
        and all(isinstance(extent, tirx.IntImm) for extent in ty.shape.values)
    )
