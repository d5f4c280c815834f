"""Few wide filters: neighbouring places of the result become channels, so that vectors are full of sums.

Notation: c = channels, o = filters, k = their width, s = stride, f = places that are folded into channels. Rows of the
image stay as they are, and are left out here.

A kernel keeps one sum per filter in a lane of a vector, so with one filter fifteen of sixteen lanes are idle. The
polyphase form (Bellanger et al., IEEE ASSP-24, 1976) computes f neighbouring places at once:

    y[o, f·j + i] = Σ x[c, s·(f·j + i) + u] · w[o, c, u]
                  = Σ x'[(c, r), j + t] · w'[(o, i), (c, r), t]

where x'[(c, r), t] = x[c, s·f·t + r], and w' is w at u = s·f·t + r − s·i, zero outside of the filter. A filter of 256
with stride 2, as resamplers of audio have, multiplies an eighth more numbers than it needs, in place of 16 times as
many. A sum also multiplies zeros by samples that are not its own, so an infinite sample makes NaN of its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import GenericConst, IRModule

from autotune.importer.layouts.packing import Array, Shape
from autotune.importer.rewriting.relax_values import (
    Values,
    bindings_of,
    operator_name,
    rebuilt_main,
    substituted,
    without_main,
)
from schedules.templates.common.windows import Window
from schedules.templates.cpu.channel_sums import is_worth_it

SUMS = 16
"""Sums of the widest vector: those of o · f channels."""

WORTH = 1.8
"""Times fewer multiplications from which image and result are rearranged for it. Heuristic: each is copied once."""


@dataclass(frozen=True)
class Polyphase:
    """One convolution in this form.

    Attributes:
        weight: (o, c, rows, k).
        strides: of rows and columns.
        pads: top, left, bottom, right.
        out: height and width of the result.
    """

    weight: Array
    strides: Shape
    pads: Shape
    out: Shape

    @property
    def fold(self) -> int:
        """f."""
        return SUMS // len(self.weight)

    @property
    def step(self) -> int:
        """Columns of x that are one of x'."""
        return self.strides[1] * self.fold

    @property
    def terms(self) -> int:
        """Columns of x' that a sum reads."""
        width = int(self.weight.shape[3])
        return -(-(self.strides[1] * (self.fold - 1) + width) // self.step)

    @property
    def is_worth_it(self) -> bool:
        """Whether it multiplies much less than one sum per filter in a vector does."""
        return self.fold > 1 and self.weight.shape[3] * self.fold >= WORTH * self.terms * self.step

    def folded(self) -> Array:
        """w' (o·f, c·s·f, rows, t)."""
        filters, channels, rows, size = self.weight.shape
        wide = np.zeros((filters, self.fold, channels, rows, self.terms * self.step), self.weight.dtype)
        for place in range(self.fold):
            wide[:, place, ..., place * self.strides[1] :][..., :size] = self.weight
        parts = wide.reshape(filters * self.fold, channels, rows, self.terms, self.step).transpose(0, 1, 4, 2, 3)
        return np.ascontiguousarray(parts.reshape(filters * self.fold, channels * self.step, rows, self.terms))

    def convolve(self, builder: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        """The result (n, o, *out) of ``image`` (n, c, h, w)."""
        count, channels, height, width = (int(extent) for extent in image.ty.shape)
        top, left, bottom, _ = self.pads
        filters, (rows, columns) = self.weight.shape[0], self.out
        groups = -(-columns // self.fold)
        needed = groups + self.terms - 1
        right = max(0, needed * self.step - width - left)
        x = builder.emit(relax.op.nn.pad(image, (0, 0, 0, 0, 0, 0, left, right)))
        x = builder.emit(relax.op.strided_slice(x, [3], [0], [needed * self.step]))
        x = builder.emit(relax.op.reshape(x, (count, channels, height, needed, self.step)))
        x = builder.emit(relax.op.permute_dims(x, (0, 1, 4, 2, 3)))
        x = builder.emit(relax.op.reshape(x, (count, channels * self.step, height, needed)))
        y = relax.op.nn.conv2d(x, relax.const(self.folded()), (self.strides[0], 1), (top, 0, bottom, 0))
        y = builder.emit(relax.op.reshape(builder.emit(y), (count, filters, self.fold, rows, groups)))
        y = builder.emit(relax.op.permute_dims(y, (0, 1, 3, 4, 2)))
        y = builder.emit(relax.op.reshape(y, (count, filters, rows, groups * self.fold)))
        return builder.emit(relax.op.strided_slice(y, [3], [0], [columns]))


def few_filters(module: IRModule) -> IRModule:
    """``module`` with the convolutions of ``main`` in this form that multiply much less so."""
    forms = {binding.var: form for binding in bindings_of(module) if (form := _form_of(binding.value)) is not None}
    builder = relax.BlockBuilder(IRModule(without_main(module)))

    def make(binding: relax.VarBinding, values: Values) -> relax.Expr:
        value, form = substituted(binding.value, values), forms.get(binding.var)
        return builder.emit(value) if form is None else form.convolve(builder, value.args[0])

    return rebuilt_main(module, builder, make) if forms else module


def _form_of(expr: relax.Expr) -> Polyphase | None:
    """The form of a convolution of fp32 images; None for anything else, and where it is not worth it."""
    if operator_name(expr) != "relax.nn.conv2d":
        return None
    weight, attrs = expr.args[1], expr.attrs
    dense = int(attrs.groups) == 1 and all(int(step) == 1 for step in attrs.dilation)
    if not (dense and isinstance(weight, GenericConst) and str(attrs.data_layout) == "NCHW"):
        return None
    array = weight.value.numpy()
    if array.dtype != np.float32 or array.shape[0] > SUMS // 2:
        return None
    strides, pads, shape = (tuple(int(n) for n in sizes) for sizes in (attrs.strides, attrs.padding, expr.ty.shape))
    filters, channels, height, width = array.shape
    window = Window((height, width), (1, 1), (0, 0, 0, 0), (1, 1))
    if is_worth_it(filters, channels, window, shape[3], SUMS):
        return None  # vectors along the channels need no copies
    form = Polyphase(array, strides, pads, shape[2:])
    return form if form.is_worth_it else None
