"""Tensors of other ranks that are computed as images: one walk over a program, whatever the images are of.

A *view* of a tensor is an image that holds its numbers. Elementwise operators go on with views; everything else reads
the tensor in its own shape again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import IRModule

from autotune.importer.layouts.layout_agnostic import BINARY, STRICT, UNARY
from autotune.importer.layouts.packing import Shape
from autotune.importer.rewriting.relax_values import (
    Values,
    operator_name,
    rebuilt_main,
    shape_of,
    substituted,
    variables_read,
    without_main,
)

OPERANDS = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), **dict.fromkeys(STRICT - BINARY, 0)}
"""Elementwise operators → how many tensors they read; 0: all of their arguments."""


@dataclass
class ImageView(ABC):
    """The new program, binding by binding.

    Attributes:
        old: the program; only its ``main`` changes.
        images: variables of the old program that have a view → that view.
        values: variables of the old program → what they are in the new one, in their own shape.
    """

    old: IRModule
    builder: relax.BlockBuilder = field(init=False)
    images: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    @abstractmethod
    def has_view(self, shape: Shape) -> bool:
        """Return whether tensors of ``shape`` have a view of this kind."""

    @abstractmethod
    def image_made(self, call: relax.Call) -> relax.Expr | None:
        """The view of what ``call`` makes; None where its operator makes none. Elementwise ones are not asked for."""

    @abstractmethod
    def to_image(self, expr: relax.Expr, shape: Shape) -> relax.Expr:
        """The view of ``expr``, a tensor of the new program of ``shape``, which has one."""

    @abstractmethod
    def from_image(self, image: relax.Expr, shape: Shape) -> relax.Expr:
        """The tensor of ``shape`` that ``image`` is the view of."""

    @abstractmethod
    def broadcast(self, shape: Shape, like: Shape) -> Shape | None:
        """The shape under which a tensor of ``shape`` broadcasts to the view of one of shape ``like``; None if none."""

    def module(self) -> IRModule:
        """The new module."""
        self.builder = relax.BlockBuilder(IRModule(without_main(self.old)))
        return rebuilt_main(
            self.old, self.builder, self._make, result=lambda body, _: self.in_own_shape(body), values=self.values
        )

    def convolved(self, call: relax.Call, image: relax.Expr, weight: relax.Expr, *geometry: object) -> relax.Expr:
        """Emit the convolution ``call`` of a view, with strides, padding and dilation of two axes."""
        attrs = call.attrs
        groups, dtype = int(attrs.groups), attrs.out_dtype
        return self.builder.emit(relax.op.nn.conv2d(image, weight, *geometry, groups, out_dtype=dtype))

    def pooled(self, call: relax.Call, *geometry: object) -> relax.Expr:
        """Emit the pool ``call`` of the view of its operand, with size, strides, padding and dilation of two axes."""
        pool = relax.op.nn.max_pool2d if "max" in operator_name(call) else relax.op.nn.avg_pool2d
        how = bool(call.attrs.ceil_mode), bool(call.attrs.count_include_pad)
        return self.builder.emit(pool(self.image(call.args[0]), *geometry, *how))

    def image(self, expr: relax.Expr) -> relax.Expr:
        """The view of ``expr`` of the old program."""
        if expr in self.images:
            return self.images[expr]
        return self.to_image(self.in_own_shape(expr), shape_of(expr) or ())

    def in_own_shape(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` of the old program in the new one, in its own shape."""
        for var in variables_read(expr):
            if var not in self.values:
                self.values[var] = self.from_image(self.images[var], shape_of(var) or ())
        return substituted(expr, self.values)

    def _make(self, binding: relax.VarBinding, _values: Values) -> relax.Expr | None:
        expr = binding.value
        image = self.images.get(expr) if isinstance(expr, relax.Var) else None
        if isinstance(expr, relax.Call):
            image = self.image_made(expr)
            reads = any(arg in self.images for arg in expr.args if isinstance(arg, relax.Var))
            shape = shape_of(expr)
            if image is None and reads and operator_name(expr) in OPERANDS and shape and self.has_view(shape):
                image = self._elementwise(expr, shape, OPERANDS[operator_name(expr)] or len(expr.args))
        if image is None:
            return self.builder.emit(self.in_own_shape(expr))
        self.images[binding.var] = image
        return None

    def _elementwise(self, call: relax.Call, shape: Shape, operands: int) -> relax.Expr | None:
        """Apply an elementwise operator to views; None if an operand has none and does not fit to one."""
        args: list[relax.Expr] = []
        for arg in call.args[:operands]:
            own = shape_of(arg)
            if own is None:
                return None
            if own == shape:
                args.append(self.image(arg))
                continue
            fitting = self.broadcast(own, shape)
            if fitting is None:
                return None
            plain = self.in_own_shape(arg)
            args.append(plain if fitting == own else self.builder.emit(relax.op.reshape(plain, fitting)))
        return self.builder.emit(relax.Call(call.op, [*args, *call.args[operands:]], call.attrs, call.ty_args))
