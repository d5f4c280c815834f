"""The program being rebuilt: in which layouts every tensor exists in it, and the weights it has collected.

A tensor is *plain*, as ONNX has it, or *native*: the layout of images that the target's kernels read and write.
A conversion is emitted once per tensor, and only where a consumer needs the layout that is missing.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst, GlobalVar, IRModule

from autotune.host.dtypes import is_end
from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.rewriting.relax_values import operator_name, shape_of
from schedules.templates.instructions.dots import DotForm

INLINE_LIMIT = 16
"""Elements up to which a constant is part of the program, so that kernels are compiled for its values. Heuristic, not
measured."""

ELEMENTWISE = "tune.elementwise"
"""Attribute of a kernel whose elements come of one of its first operand each, where TVM does not see it."""

_SHARED = re.compile(r"(float|u?int)(8|16|32|64)")
"""Types that NumPy takes without a copy."""

ANCHOR_PATTERN = 4
"""TVM's ``kOutEWiseFusable``: elementwise operators behind the kernel are fused into it."""


def channel_shuffle(image: relax.Expr, shape: Shape, groups: int) -> relax.Expr:
    """(n, C, h, w) with the first channel of every group, then the second of every group, and so on."""
    n, channels, *rest = shape
    split = relax.op.reshape(image, (n, groups, channels // groups, *rest))
    return relax.op.reshape(relax.op.permute_dims(split, [0, 2, 1, 3, 4]), shape)


def elementwise_as_said(module: IRModule) -> IRModule:
    """``module``, its kernels' patterns annotated, with those of ``ELEMENTWISE`` as TVM's ``kElemWise``."""
    functions = {
        var: function.without_attr(ELEMENTWISE).with_attr("op_pattern", 0)
        if function.attrs and ELEMENTWISE in function.attrs
        else function
        for var, function in module.functions_items()
    }
    return IRModule(functions, attrs=module.attrs)


def elements(constant: GenericConst) -> Array:
    """The array that a constant holds, where it lies; a copy of types that NumPy lacks."""
    if _SHARED.fullmatch(str(constant.value.dtype)):
        return np.from_dlpack(constant.value)
    return np.asarray(constant.value.numpy())


@dataclass(eq=False)
class Picked:
    """Channels of images.

    Attributes:
        parts: native images of one size, each of them once.
        order: (channels,) which of the parts' channels each of them is, counted over all parts.
        ascending: a native image of the same channels in the order of the parts, once it is emitted.
    """

    parts: tuple[Value, ...]
    order: Array
    ascending: relax.Expr | None = None

    @property
    def is_whole(self) -> bool:
        """Whether these are all parts side by side."""
        return np.array_equal(self.order, np.arange(sum(part.channels for part in self.parts)))

    @property
    def is_complete(self) -> bool:
        """Whether these are all channels of all parts, each of them once."""
        return np.array_equal(np.sort(self.order), np.arange(sum(part.channels for part in self.parts)))

    @property
    def is_permutation(self) -> bool:
        """Whether these are all channels of one image, each of them once."""
        return len(self.parts) == 1 and self.is_complete


@dataclass(eq=False)
class Value:
    """One tensor of the old program, in the layouts in which the new program has it.

    Attributes:
        shape: logical shape, as ONNX has it.
        plain: in ONNX's order of axes.
        native: an image in the target's layout.
        view: a plain tensor and the order in which its axes make this one: a transpose that is not emitted yet.
        matrix: all axes but the last as one: what dense layers make.
        border: an image, top, left, bottom and right of what lies around it in this one, and the number there: a
            padding that is not emitted yet.
        picked: channels of native images: splits, concatenations and shuffles that are not emitted yet.
    """

    shape: Shape
    plain: relax.Expr | None = None
    native: relax.Expr | None = None
    view: tuple[relax.Expr, tuple[int, ...]] | None = None
    matrix: relax.Expr | None = None
    border: tuple[Value, tuple[int, int, int, int], int] | None = None
    picked: Picked | None = None

    @property
    def channels(self) -> int:
        """Logical channels of a rank-4 tensor."""
        return self.shape[1]

    @property
    def is_image(self) -> bool:
        """Whether the tensor exists as native images, or as channels of such."""
        return self.native is not None or self.picked is not None

    @property
    def is_matrix(self) -> bool:
        """Whether the tensor exists as a matrix, and no consumer has needed it plain yet."""
        return self.matrix is not None and self.plain is None


class TensorLayouts(ABC):
    """Values and constants of the old program as the new one has them.

    Attributes:
        block: channels in the innermost axis of a native image; native images have a multiple of it.
        panel: columns of the weights of a product of matrices that lie together.
        has_tiles: whether weights of few bits are multiplied in tiles of bfloat16 (``low_bit_tiles``).
        pool: compute of a pooling kernel on native images.
        image_axes: height and width of a native image.
        rules: operation → how it is rebuilt. Operations without a rule get plain tensors.
        builder: receives the new program.
        weights, parameters: arrays that became parameters of ``main``, and those.
        kernels: a kernel of the old program → the same in the new one.
        functions: a kernel of the old program → what it is.
        consumers: variable of the old program → the calls that read it.
        bound: call of the old program → the variable that it makes.
        made_by: variable of the old program → the call that makes it.
        current: the variable being rebuilt.
    """

    pool: Callable[..., Any]
    image_axes: ClassVar[tuple[int, int]]
    rules: ClassVar[Mapping[str, Rule]]

    def __init__(
        self,
        block: int,
        pair_form: Callable[[DotForm], DotForm | None] = lambda _: None,
        panel: int = 0,
        has_tiles: bool = False,
    ) -> None:
        self.block, self.pair_form, self.panel, self.has_tiles = block, pair_form, panel or block, has_tiles
        self.builder = relax.BlockBuilder()
        self.weights: list[Array] = []
        self.parameters: list[relax.Var] = []
        self.values: dict[relax.Var, Value | relax.Expr] = {}
        self.constants: dict[relax.Var, Array] = {}
        self.consumers: dict[relax.Var, list[relax.Call]] = {}
        self.bound: dict[relax.Call, relax.Var] = {}
        self.made_by: dict[relax.Var, relax.Call] = {}
        self.current: relax.Var | None = None
        self.kernels: dict[GlobalVar, GlobalVar] = {}
        self.functions: dict[GlobalVar, tirx.PrimFunc] = {}
        self._known: dict[tuple[Any, ...], relax.Var] = {}

    @abstractmethod
    def from_native(self, value: Value) -> relax.Expr:
        """Emit the plain tensor of a value that exists natively only."""

    @abstractmethod
    def to_native(self, plain: relax.Expr) -> relax.Expr:
        """Emit the native image of a plain tensor of rank 4."""

    @abstractmethod
    def native_constant(self, array: Array, fill: float) -> relax.Expr:
        """A constant of rank 4 as an operand of a native image; ``fill`` is for channels that do not exist."""

    @abstractmethod
    def joined(self, parts: list[relax.Expr]) -> relax.Expr:
        """Emit the concatenation of native images along their channels."""

    def native_axis(self, axis: int) -> int:
        """Axis of a native image for an axis of ONNX's, which is not that of channels."""
        return {0: 0, 2: self.image_axes[0], 3: self.image_axes[1]}[axis]

    def array(self, expr: relax.Expr) -> Array | None:
        """The array of a constant expression of the old program, else None."""
        if isinstance(expr, GenericConst):
            return elements(expr)
        if isinstance(expr, relax.Var):
            return self.constants.get(expr)
        return None

    def value(self, expr: relax.Expr) -> Value | None:
        """The tensor that a variable of the old program names, else None."""
        known = self.values.get(expr) if isinstance(expr, relax.Var) else None
        return known if isinstance(known, Value) else None

    def constant(self, array: Array) -> relax.Expr:
        """A weight becomes a parameter of ``main``, kept beside the program; a small constant stays in it."""
        if array.ndim:  # NumPy makes a scalar an array of one axis otherwise
            array = np.require(array, requirements=("C", "A"))  # files have tensors at any byte
        if array.size <= INLINE_LIMIT:
            return relax.const(array, str(array.dtype))
        key = (array.shape, str(array.dtype), hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest())
        if key not in self._known:
            name = f"weight_{len(self.weights)}"
            self._known[key] = relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
            self.parameters.append(self._known[key])
            self.weights.append(array)
        return self._known[key]

    def scalar(self, array: Array) -> relax.Expr:
        """A constant of one element, which kernels are compiled for; but not for what TVM takes for infinity."""
        return self.constant(array.reshape((1,) if array.ndim and is_end(array) else ()))

    def plain(self, value: Value) -> relax.Expr:
        """``value`` as ONNX has it."""
        if value.plain is None and value.view is not None:
            source, axes = value.view
            value.plain = self.builder.emit(relax.op.permute_dims(source, list(axes)))
        elif value.plain is None and value.border is not None:
            source, (top, left, bottom, right), fill = value.border
            width = [0, 0, 0, 0, top, bottom, left, right]
            value.plain = self.builder.emit(relax.op.nn.pad(self.plain(source), width, pad_value=fill))
        elif value.plain is None and value.matrix is not None:
            value.plain = self.reshaped(value.matrix, value.shape)
        elif value.plain is None:
            value.plain = self.from_native(value)
        return value.plain

    def native(self, value: Value) -> relax.Expr:
        """``value``, an image, in the target's layout."""
        if value.native is None:
            value.native = self.to_native(self.plain(value))
        return value.native

    def matrix(self, value: Value) -> relax.Expr:
        """``value`` as a matrix whose columns are its last axis."""
        if value.matrix is None:
            value.matrix = self.plain(value)
            if len(value.shape) != 2:
                rows, columns = math.prod(value.shape[:-1]), value.shape[-1]
                value.matrix = self.reshaped(value.matrix, (rows, columns))
        return value.matrix

    def reshaped(self, source: relax.Expr, sizes: Shape) -> relax.Expr:
        """Emit one reshape in place of several, which TVM would make a kernel that copies."""
        maker = self.builder.lookup_binding(source) if isinstance(source, relax.Var) else None
        while maker is not None and operator_name(maker) == "relax.reshape":
            source = maker.args[0]
            if shape_of(source) == sizes:
                return source
            maker = self.builder.lookup_binding(source) if isinstance(source, relax.Var) else None
        return self.builder.emit(relax.op.reshape(source, sizes))

    def plain_expr(self, expr: relax.Expr) -> relax.Expr:
        """Any expression of the old program, all its tensors plain."""
        array = self.array(expr)
        if array is not None:
            return self.constant(array)
        if isinstance(expr, relax.Var):
            known = self.values[expr]
            return self.plain(known) if isinstance(known, Value) else known
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.plain_expr(field) for field in expr.fields])
        return self.kernels.get(expr, expr) if isinstance(expr, GlobalVar) else expr

    def is_native(self, expr: relax.Expr) -> bool:
        """Return whether ``expr`` is an image in the target's layout, or made of such."""
        value = self.value(expr)
        return value is not None and value.is_image

    def emit_like(self, call: relax.Call, operands: list[relax.Expr]) -> relax.Expr:
        """``call``'s operation on other operands."""
        return self.builder.emit(relax.Call(call.op, operands, call.attrs))

    def emit_anchor(self, name: str, compute: Callable[..., Any], *args: Any) -> relax.Expr:
        """A call of ``compute`` as a kernel that elementwise operators behind it are fused into.

        Args:
            args: of ``compute``, its tensors as expressions; the others reach it as they are.
        """

        def computed(*tensors: Any) -> Any:
            remaining = iter(tensors)
            return compute(*(next(remaining) if isinstance(arg, relax.Expr) else arg for arg in args))

        operands = [arg for arg in args if isinstance(arg, relax.Expr)]
        attrs = {"op_pattern": ANCHOR_PATTERN}
        return self.builder.emit_te(computed, *operands, primfunc_name_hint=name, primfunc_attrs=attrs)


Rule = Callable[[TensorLayouts, relax.Call, Shape], Value | None]
"""(layouts, call, shape of its result) → the rebuilt value; None where the call takes plain tensors as it stands."""
