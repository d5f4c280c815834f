"""Signals of one dimension become images of one row: convolutions and pools have templates for images only.

Notation: n = samples, c = channels, l = length of the signal, k = length of a filter.

    conv1d of (n, c, l) by k                 →  conv2d of (n, c, 1, l) by 1 × k
    conv2d of (n, c, l, 1) by k × 1          →  the same; kernels are tiled along the last axis, here of extent 1
    max_pool1d, avg_pool1d                   →  max_pool2d, avg_pool2d

Elementwise operators behind them go on with the images, and so do reshapes that only add or drop the axis of extent 1.
Everything else reads the tensor in its own shape again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import GenericConst, GlobalVar, IRModule

from autotune.importer.layouts.layout_agnostic import BINARY, STRICT, UNARY
from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.stored_bytes import substituted
from autotune.importer.layouts.tensor_layouts import shape_of, variables_read

RESHAPES = frozenset({"relax.reshape", "relax.squeeze", "relax.expand_dims"})

OPERANDS = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), **dict.fromkeys(STRICT - BINARY, 0)}
"""Elementwise operators → how many tensors they read; 0: all of their arguments."""


def lines_as_images(module: IRModule) -> IRModule:
    """``module`` with every signal of one dimension that is convolved as an image of one row."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    if not any(_name(binding.value) == "relax.nn.conv1d" or _is_column(binding.value) for binding in bindings):
        return module
    return _Lines(module).module()


def _name(expr: relax.Expr) -> str:
    return str(getattr(getattr(expr, "op", None), "name", ""))


def _is_column(expr: relax.Expr) -> bool:
    """Whether ``expr`` convolves images of one column by filters of one column."""
    if _name(expr) != "relax.nn.conv2d" or str(expr.attrs.data_layout) != "NCHW":
        return False
    shapes = [shape_of(each) for each in (*expr.args, expr)]
    if any(shape is None for shape in shapes) or any(shape[3] != 1 for shape in shapes if shape is not None):
        return False
    image = shapes[0] or ()
    return image[2] > 1 and not any(int(pad) for pad in expr.attrs.padding[1::2])


@dataclass
class _Lines:
    """The new program, binding by binding.

    Attributes:
        old: the program; only its ``main`` changes.
        rows: variables of the old program that are signals → their images (n, c, 1, l).
        values: variables and kernels of the old program → what they are in the new one, in their own shape.
    """

    old: IRModule
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    rows: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    values: dict[relax.Var | GlobalVar, relax.Expr] = field(default_factory=dict)

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
                result = self.builder.emit_output(self._as_it_was(main.body.body))
            self.builder.emit_func_output(result)
        return self.builder.finalize()

    def _make(self, var: relax.Var, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var) and expr in self.rows:
            self.rows[var] = self.rows[expr]
            return
        row = self._row(expr) if isinstance(expr, relax.Call) else None
        if row is not None:
            self.rows[var] = row
        else:
            self.values[var] = self.builder.emit(self._as_it_was(expr))

    def _row(self, call: relax.Call) -> relax.Expr | None:
        """The image of what ``call`` makes; None if that is no signal."""
        name = _name(call)
        shape = shape_of(call)
        if name == "relax.nn.conv1d" and str(call.attrs.data_layout) == "NCW":
            return self._convolved(call, 0)
        if _is_column(call):
            return self._convolved(call, 1)
        if name in POOLS and str(call.attrs.layout) == "NCW":
            return self._pooled(call, POOLS[name])
        if shape is None or not any(arg in self.rows for arg in call.args if isinstance(arg, relax.Var)):
            return None
        if name in RESHAPES:
            row = self.rows[call.args[0]]
            return row if shape in _shapes(shape_of(row) or ()) else None
        if name in OPERANDS:
            return self._elementwise(call, shape, OPERANDS[name] or len(call.args))
        return None

    def _image(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` (n, c, l) or (n, c, l, 1) as (n, c, 1, l)."""
        if expr in self.rows:
            return self.rows[expr]
        n, c, length, *_ = shape_of(expr) or ()
        return self.builder.emit(relax.op.reshape(self._as_it_was(expr), (n, c, 1, length)))

    def _convolved(self, call: relax.Call, axis: int) -> relax.Expr:
        """``axis``: 0 where the attributes of ``call`` are of one axis, 1 where they are of two, the first is meant."""
        attrs = call.attrs
        filters, channels, length, *_ = shape_of(call.args[1]) or ()
        shape = filters, channels, 1, length
        weight = call.args[1]
        if isinstance(weight, GenericConst):
            weight = relax.const(weight.value.numpy().reshape(shape))
        else:
            weight = self.builder.emit(relax.op.reshape(self._as_it_was(weight), shape))
        before, after = int(attrs.padding[0]), int(attrs.padding[1 + axis])
        return self.builder.emit(
            relax.op.nn.conv2d(
                self._image(call.args[0]),
                weight,
                (1, int(attrs.strides[0])),
                (0, before, 0, after),
                (1, int(attrs.dilation[0])),
                int(attrs.groups),
                out_dtype=attrs.out_dtype,
            )
        )

    def _pooled(self, call: relax.Call, pool: Callable[..., relax.Expr]) -> relax.Expr:
        attrs = call.attrs
        before, after = (int(pad) for pad in attrs.padding)
        return self.builder.emit(
            pool(
                self._image(call.args[0]),
                (1, int(attrs.pool_size[0])),
                (1, int(attrs.strides[0])),
                (0, before, 0, after),
                (1, int(attrs.dilation[0])),
                bool(attrs.ceil_mode),
                bool(attrs.count_include_pad),
            )
        )

    def _elementwise(self, call: relax.Call, shape: Shape, operands: int) -> relax.Expr | None:
        """Of images; None where an operand is not one and does not fit to one either."""
        args: list[relax.Expr] = []
        for arg in call.args[:operands]:
            if arg in self.rows and shape_of(arg) == shape:
                args.append(self.rows[arg])
                continue
            turned = _turned(shape_of(arg), shape)
            if turned is None:
                return None
            own = self._as_it_was(arg)
            args.append(self.builder.emit(relax.op.reshape(own, turned)) if turned else own)
        return self.builder.emit(relax.Call(call.op, [*args, *call.args[operands:]], call.attrs, call.ty_args))

    def _as_it_was(self, expr: relax.Expr) -> relax.Expr:
        """``expr`` in the new program, in its own shape."""
        for var in variables_read(expr):
            if var not in self.values:
                self.values[var] = self.builder.emit(relax.op.reshape(self.rows[var], shape_of(var)))
        return substituted(expr, self.values)


POOLS: Mapping[str, Callable[..., relax.Expr]] = {
    "relax.nn.max_pool1d": relax.op.nn.max_pool2d,
    "relax.nn.avg_pool1d": relax.op.nn.avg_pool2d,
}


def _shapes(row: Sequence[int]) -> tuple[Shape, ...]:
    """The shapes under which an image (n, c, 1, l) is the signal that it is of."""
    n, c, _, length = row
    return (n, c, length), (n, c, length, 1), (n, c, 1, length)


def _turned(shape: Shape | None, like: Shape) -> Shape | None:
    """The shape (·, ·, 1, ·) of what broadcasts to a signal ``like``: () if its own will do, None if none does."""
    if shape is None:
        return None
    if math.prod(shape) == 1:
        return ()
    n, c, *rest = (1,) * (len(like) - len(shape)) + shape
    if len(like) == 3:
        return n, c, 1, rest[0]
    row, column = rest
    if like[2] == 1:  # an image of one row already
        return n, c, row, column
    return (n, c, 1, row) if column == 1 else None
