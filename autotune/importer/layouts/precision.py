"""Which tensors of a program are bfloat16 or float16: a type is assigned to every tensor, before layouts are.

A *product* is a convolution or a product of matrices of fp32 tensors. One that is chosen reads bf16 operands and adds
up in fp32:

    matmul(x, w)  →  matmul(astype(x, bf16), astype(w, bf16), out_dtype=float32)

The cast of an operand stands behind what makes it, once, so that fusion puts it into that kernel and the tensor lies in
memory as bf16. Who else reads it, a residual addition say, casts it back in registers. Casts move up through operators
that compute nothing (``MOVES``), so that these move half as many bytes. What only fits into fp32 (softmax, norms, other
products, the model's outputs) reads the fp32 tensor.

A model may have tensors of 16 bits itself, which the importer casts to fp32 before a product. On devices that store
such tensors, the product reads what was cast:

    matmul(astype(x, float32), astype(w, float32))  →  matmul(x, w, out_dtype=float32)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst, IRModule

from autotune.host.dtypes import numpy_type, rounded
from autotune.importer.layouts.layout_agnostic import BINARY, STRICT, UNARY
from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    leaves,
    mapped,
    operator_name,
    rebuilt_main,
    variables_read,
    without_main,
)
from autotune.options import SHORT_TYPES, TF32, Precision
from schedules.vocabulary.errors import UsageError

LONG = "float32"

PRODUCTS = ("relax.nn.conv2d", "relax.matmul")

MOVES = frozenset(
    f"relax.{name}"
    for name in [
        *("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "concat", "split", "strided_slice", "tile"),
        *("broadcast_to", "nn.max_pool2d", "nn.avg_pool2d", "mean"),
    ]
)
"""Operators that are as good on bf16 as on fp32: they copy numbers, or add some up in fp32."""

COPIES = MOVES - {"relax.nn.avg_pool2d", "relax.mean"}
"""Those whose results are among the numbers that they read."""

KERNELS = frozenset({"relax.concat", "relax.nn.max_pool2d", "relax.nn.avg_pool2d"})
"""Those whose result lies in memory in any case."""

IN_REGISTERS = UNARY | BINARY | STRICT | {"relax.where"}
"""Operators whose kernels can cast what they read: a cast in front of them is fused into them."""


def products(module: IRModule) -> list[relax.Call]:
    """The products of ``main`` in the order of the program; a product's *number* is its place here."""
    return [binding.value for binding in bindings_of(module) if _is_product(binding.value)]


def chosen_products(module: IRModule, precision: Precision) -> set[relax.Call]:
    """Return the products of ``module`` that ``precision`` chooses.

    Raises:
        UsageError: if it names a product that ``module`` has not.
    """
    calls = products(module)
    largest = max(precision.products or (0,))
    if largest and largest >= len(calls):
        raise UsageError(f"--precision {precision}: names product {largest} of {len(calls)}; they are numbered from 0")
    return {call for number, call in enumerate(calls) if number in precision}


def assign_types(module: IRModule, precision: Precision) -> IRModule:
    """``module`` with the products that ``precision`` chooses reading bf16; the module itself if that is none.

    Operands of TF32 stay fp32 in memory: layouts mark their products.

    Raises:
        UsageError: if it names a product that ``module`` has not.
    """
    chosen = chosen_products(module, precision)
    if precision.short == TF32:
        return module
    return _Assignment(module, chosen, precision.dtype).module() if chosen else module


def read_as_stored(module: IRModule) -> IRModule:
    """``module`` with products of 16-bit numbers that were cast to fp32 reading these numbers; itself if there is none.

    Such products are none of ``products`` any more, which ``--precision`` numbers.
    """
    for short in SHORT_TYPES.values():
        exact = _exact(module, short)
        chosen = {call for call in products(module) if all(_is_exact(arg, exact, short) for arg in call.args)}
        module = _Assignment(module, chosen, short, exact).module() if chosen else module
    return module


def _exact(module: IRModule, short: str) -> set[relax.Var]:
    """The fp32 variables of ``main`` that hold numbers of the type ``short`` by what makes them."""
    exact: set[relax.Var] = set()
    for binding in bindings_of(module):
        value = binding.value
        copied = isinstance(value, relax.Var) or _name(value) in COPIES
        read = [leaf for leaf in leaves(value) if isinstance(leaf, relax.Var | GenericConst)]
        if _widens(value, short) or (copied and all(_is_exact(leaf, exact, short) for leaf in read)):
            exact.add(binding.var)
    return exact


def _is_exact(expr: relax.Expr, exact: set[relax.Var], short: str) -> bool:
    """Return whether a tensor of fp32 holds numbers of type ``short``: one of ``exact``, or a constant of such."""
    if not isinstance(expr, GenericConst):
        return expr in exact
    array = np.asarray(expr.value.numpy())
    return str(array.dtype) == LONG and np.array_equal(rounded(array, short), array, equal_nan=True)


def _widens(expr: relax.Expr, short: str) -> bool:
    """Return whether ``expr`` casts a tensor of the type ``short`` to fp32."""
    return _name(expr) == "relax.astype" and _is_long(expr.ty) and str(expr.args[0].ty.dtype) == short


def _name(expr: relax.Expr) -> str:
    if isinstance(expr, relax.TupleGetItem):
        return "relax.split"  # a part of a tuple is stored as the whole is
    return operator_name(expr)


def _is_long(ty: relax.Type) -> bool:
    """Return whether all tensors of a type are fp32."""
    if isinstance(ty, relax.TupleType):
        return all(_is_long(part) for part in ty.fields)
    return isinstance(ty, relax.TensorType) and str(ty.dtype) == LONG


def _is_product(expr: relax.Expr) -> bool:
    """Return whether ``expr`` is a product whose type is left open: those of recurrent layers say fp32."""
    if _name(expr) not in PRODUCTS or not _is_long(expr.ty) or not all(_is_long(arg.ty) for arg in expr.args):
        return False
    return expr.attrs.out_dtype is None


@dataclass
class _Tensor:
    """A tensor of the new program: the fp32 variable, the bf16 one, or both."""

    long: relax.Expr | None = None
    short: relax.Expr | None = None


@dataclass
class _Assignment:
    """The new program, binding by binding.

    Attributes:
        old: the program; only its ``main`` changes.
        chosen: products that read operands of 16 bits.
        short: TVM's name of that type; ``bf16`` below stands for either.
        exact: the only variables that may be stored so; None: all.
    """

    old: IRModule
    chosen: set[relax.Call]
    short: str
    exact: set[relax.Var] | None = None
    builder: relax.BlockBuilder = field(init=False)
    tensors: dict[relax.Var, _Tensor] = field(default_factory=dict)
    params: Values = field(default_factory=dict)

    def module(self) -> IRModule:
        """The new module."""
        self._stored_short = self._short_variables(bindings_of(self.old), self.old["main"].body.body)
        self.builder = relax.BlockBuilder(IRModule(without_main(self.old)))

        def result(body: relax.Expr, _values: Values) -> relax.Expr:
            return self._rebuilt(body, self._long)

        return rebuilt_main(self.old, self.builder, self._note, result=result, values=self.params)

    def _note(self, binding: relax.VarBinding, _values: Values) -> None:
        self.tensors[binding.var] = self._made(binding.var, binding.value)

    def _tensor(self, var: relax.Var) -> _Tensor:
        return self.tensors.setdefault(var, _Tensor(long=self.params.get(var)))

    def _short_variables(self, bindings: list[relax.VarBinding], result: relax.Expr) -> set[relax.Var]:
        """The variables that are stored as bf16.

        Those are what a chosen product reads, and what a move reads whose result is stored as bf16. And, where it goes
        on to a chosen product, what lies in memory in any case if all who read it cast.
        """
        readers: dict[relax.Var, list[relax.VarBinding]] = {}
        for binding in bindings:
            for var in set(variables_read(binding.value)):
                readers.setdefault(var, []).append(binding)
        outputs = set(variables_read(result))
        short, leading = set[relax.Var](), set[relax.Var]()
        for binding in reversed(bindings):
            read = readers.get(binding.var, [])
            if any(reader.value in self.chosen or reader.var in leading for reader in read):
                leading.add(binding.var)
            if not _is_long(binding.var.ty) or (self.exact is not None and binding.var not in self.exact):
                continue
            if any(
                reader.value in self.chosen or (_name(reader.value) in MOVES and reader.var in short) for reader in read
            ):
                short.add(binding.var)
            elif binding.var in leading and binding.var not in outputs:
                names = {_name(reader.value) for reader in read}
                if _name(binding.value) in KERNELS and names <= IN_REGISTERS:
                    short.add(binding.var)
        return short

    def _made(self, var: relax.Var, expr: relax.Expr) -> _Tensor:
        if isinstance(expr, relax.Var):
            return self._tensor(expr)
        if _widens(expr, self.short):
            return _Tensor(short=self._long(expr.args[0]))
        if expr in self.chosen:
            left, right = (self._short(arg) for arg in expr.args)
            tensor = _Tensor(long=self.builder.emit(_product(expr, left, right)))
        elif var in self._stored_short and _name(expr) in MOVES:
            return _Tensor(short=self.builder.emit(self._rebuilt(expr, self._short)))
        else:
            read = self._in_registers if _name(expr) in IN_REGISTERS else self._long
            tensor = _Tensor(long=self.builder.emit(self._rebuilt(expr, read)))
        if var in self._stored_short:
            tensor.short = self.builder.emit(relax.op.astype(tensor.long, self.short))
        return tensor

    def _rebuilt(self, expr: relax.Expr, read: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
        """``expr`` on what ``read`` makes of the tensors that it reads."""
        return mapped(expr, lambda part: read(part) if isinstance(part, relax.Var | GenericConst) else part)

    def _long(self, expr: relax.Expr) -> relax.Expr:
        """The tensor as fp32; one that exists as bf16 only is cast once."""
        if not isinstance(expr, relax.Var):
            return expr
        tensor = self._tensor(expr)
        if tensor.long is None:
            tensor.long = self.builder.emit(relax.op.astype(tensor.short, LONG))
        return tensor.long

    def _in_registers(self, expr: relax.Expr) -> relax.Expr:
        """The tensor as fp32, cast anew for this reader alone where it is stored as bf16, so that the cast is fused."""
        tensor = self._tensor(expr) if isinstance(expr, relax.Var) else _Tensor(long=expr)
        if tensor.short is None or expr not in self._stored_short:
            return self._long(expr)
        return self.builder.emit(relax.op.astype(tensor.short, LONG))

    def _short(self, expr: relax.Expr) -> relax.Expr:
        """The tensor as bf16; one that exists as fp32 only, an input of the model say, is cast once."""
        if isinstance(expr, GenericConst):
            array = np.asarray(expr.value.numpy())
            return relax.const(array.astype(numpy_type(self.short)), self.short) if str(array.dtype) == LONG else expr
        if not isinstance(expr, relax.Var) or not _is_long(expr.ty):
            return self._long(expr)
        tensor = self._tensor(expr)
        if tensor.short is None:
            tensor.short = self.builder.emit(relax.op.astype(tensor.long, self.short))
        return tensor.short


def _mean(call: relax.Call, data: te.Tensor) -> te.Tensor:
    axes = None if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
    total = topi.sum(data, axes, bool(call.attrs.keepdims))
    share = math.prod(int(size) for size in total.shape) / math.prod(int(size) for size in data.shape)
    return topi.multiply(total, tirx.const(share, LONG))


def _softmax(call: relax.Call, data: te.Tensor) -> te.Tensor:
    return topi.nn.softmax(data, int(call.attrs.axis))


def _layer_norm(call: relax.Call, data: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
    return topi.nn.layer_norm(data, scale, shift, [int(axis) for axis in call.attrs.axes], call.attrs.epsilon)


IN_LONG: Mapping[str, Callable[..., te.Tensor]] = {
    "relax.mean": _mean,
    "relax.nn.softmax": _softmax,
    "relax.nn.layer_norm": _layer_norm,
}
"""Operators whose kernels on 16-bit numbers compute in fp32 → what they compute of fp32 tensors."""


def kernel_in_long(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The kernel of an operator of ``IN_LONG``: of 16-bit numbers it sums in fp32. A rule of ``LegalizeOps``."""
    short, name = str(call.args[0].ty.dtype), _name(call)
    if short not in SHORT_TYPES.values():
        return call.op.get_attr("FLegalize")(builder, call)

    def computed(*tensors: te.Tensor) -> te.Tensor:
        return topi.cast(IN_LONG[name](call, *(topi.cast(tensor, LONG) for tensor in tensors)), short)

    return builder.call_te(computed, *call.args, primfunc_name_hint=name.rsplit(".", 1)[-1])


def _product(call: relax.Call, left: relax.Expr, right: relax.Expr) -> relax.Call:
    """``call`` of bf16 operands, added up in fp32."""
    if _name(call) == "relax.matmul":
        return relax.op.matmul(left, right, out_dtype=LONG)
    attrs = call.attrs
    sizes = ([int(size) for size in numbers] for numbers in (attrs.strides, attrs.padding, attrs.dilation))
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    return relax.op.nn.conv2d(left, right, *sizes, int(attrs.groups), *layouts, LONG)
