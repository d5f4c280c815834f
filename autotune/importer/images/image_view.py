"""Tensors of other ranks that are computed as images: one walk over a program, whatever the images are of.

A *view* of a tensor is an image that holds its numbers. Elementwise operators go on with views; everything else reads
the tensor in its own shape again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import GlobalVar, IRModule

from autotune.importer.layouts.layout_agnostic import BINARY, STRICT, UNARY
from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.stored_bytes import substituted
from autotune.importer.layouts.tensor_layouts import shape_of, variables_read

OPERANDS = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), **dict.fromkeys(STRICT - BINARY, 0)}
"""Elementwise operators → how many tensors they read; 0: all of their arguments."""


def name_of(expr: relax.Expr) -> str:
    """Name of the operator that ``expr`` calls, with its dialect; empty for anything else."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


@dataclass
class ImageView(ABC):
    """The new program, binding by binding.

    Attributes:
        old: the program; only its ``main`` changes.
        images: variables of the old program that have a view → that view.
        values: variables and kernels of the old program → what they are in the new one, in their own shape.
    """

    old: IRModule
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    images: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    values: dict[relax.Var | GlobalVar, relax.Expr] = field(default_factory=dict)

    @abstractmethod
    def viewed(self, call: relax.Call) -> relax.Expr | None:
        """The view of what ``call`` makes where its operator makes one; elementwise operators are not asked for."""

    @abstractmethod
    def seen(self, expr: relax.Expr, shape: Shape) -> relax.Expr:
        """The view of ``expr``, a tensor of the new program of ``shape``."""

    @abstractmethod
    def unseen(self, image: relax.Expr, shape: Shape) -> relax.Expr:
        """The tensor of ``shape`` that ``image`` is the view of."""

    @abstractmethod
    def broadcast(self, shape: Shape, like: Shape) -> Shape | None:
        """The shape under which a tensor of ``shape`` broadcasts to the view of one of shape ``like``; None if none."""

    def module(self) -> IRModule:
        """The new module."""
        main = self.old["main"]
        for var, function in self.old.functions_items():
            if var.name_hint != "main":
                self.values[var] = self.builder.add_func(function, var.name_hint)
        params = [relax.Var(param.name, param.ty) for param in main.params]
        self.values |= zip(main.params, params, strict=True)
        with self.builder.function("main", params, attrs=dict(main.attrs)):
            with self.builder.dataflow():
                for block in main.body.blocks:
                    for binding in block.bindings:
                        self._make(binding.var, binding.value)
                result = self.builder.emit_output(self.as_it_was(main.body.body))
            self.builder.emit_func_output(result)
        return self.builder.finalize()

    def image(self, expr: relax.Expr) -> relax.Expr:
        """The view of ``expr`` of the old program."""
        if expr in self.images:
            return self.images[expr]
        return self.seen(self.as_it_was(expr), shape_of(expr) or ())

    def as_it_was(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` of the old program in the new one, in its own shape."""
        for var in variables_read(expr):
            if var not in self.values:
                self.values[var] = self.unseen(self.images[var], shape_of(var) or ())
        return substituted(expr, self.values)

    def _make(self, var: relax.Var, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var) and expr in self.images:
            self.images[var] = self.images[expr]
            return
        image = None
        if isinstance(expr, relax.Call):
            image = self.viewed(expr)
            reads = any(arg in self.images for arg in expr.args if isinstance(arg, relax.Var))
            if image is None and reads and name_of(expr) in OPERANDS:
                image = self._elementwise(expr, shape_of(expr), OPERANDS[name_of(expr)] or len(expr.args))
        if image is not None:
            self.images[var] = image
        else:
            self.values[var] = self.builder.emit(self.as_it_was(expr))

    def _elementwise(self, call: relax.Call, shape: Shape | None, operands: int) -> relax.Expr | None:
        """Of views; None where an operand has none and does not fit to one either."""
        args: list[relax.Expr] = []
        for arg in call.args[:operands]:
            own = shape_of(arg)
            if shape is None or own is None:
                return None
            if own == shape:
                args.append(self.image(arg))
                continue
            fitting = self.broadcast(own, shape)
            if fitting is None:
                return None
            plain = self.as_it_was(arg)
            args.append(plain if fitting == own else self.builder.emit(relax.op.reshape(plain, fitting)))
        return self.builder.emit(relax.Call(call.op, [*args, *call.args[operands:]], call.attrs, call.ty_args))
