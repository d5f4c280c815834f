"""Kernels that the importer emits for a GPU: every product is one GEMM between two gathers and a scatter.

Notation: g groups or batch, m rows, n columns, k depth; images are channels-last, (b, h, w, c).

    rows     (g, m, k)   gathered from the activation: im2col of an image, or a matrix in any order of its axes
    columns  (g, k, n)   gathered from the weight, or from a second activation
    gemm     (g, m, n)   sum over k of rows * columns, in float32; in int32 of integers
    view                 ``gemm`` in the shape and type that the model wants

``rows`` and ``columns`` are never stored in memory: a template makes them the loads of its shared-memory tiles, which
is what is called an implicit GEMM. Windows that are no products (pooling, depthwise) read the image directly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from tvm import te, tirx

from schedules.templates.common.windows import ImageLayout, Pads, Pooling, Window, pad_spatial, pool

GEMM, WINDOW = "cuda_gemm", "cuda_window"
AXES = ("b", "y", "x", "c")
CHANNELS_LAST = ImageLayout(spatial=1, axes=AXES, padded_axes=AXES, block="window", anchor=WINDOW, sum_dtype="float32")


def dense(x: te.Tensor, weight: te.Tensor, dtype: str = "", operands: str = "") -> te.Tensor:
    """x (…, k), weight (k, n), of bytes (n, k) → (…, n) of ``dtype``, by default that of x.

    Bytes are multiplied four neighbours along k at a time, so they lie together.

    Args:
        operands: ``tf32`` where they are rounded to it; by default they are multiplied as they are.
    """
    turned = has_bytes(weight.dtype)
    depth, columns = (int(size) for size in (reversed(weight.shape) if turned else weight.shape))
    lead = [int(size) for size in x.shape[:-1]]
    count = math.prod(lead)
    rows = te.compute((1, count, depth), lambda _, m, k: x[(*_unflattened(m, lead), k)], name="rows")

    def column(_: tirx.Var, k: tirx.Var, n: tirx.Var) -> tirx.Expr:
        return weight[n, k] if turned else weight[k, n]

    cols = te.compute((1, depth, columns), column, name="columns")
    out = _gemm(rows, cols, ("k", "k" if turned else "n"), operands)
    return _view((*lead, columns), lambda *at: out[0, _flattened(at[:-1], lead), at[-1]], dtype or x.dtype)


def convolution(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    groups: int,
    dtype: str = "",
    operands: str = "",
) -> te.Tensor:
    """data (b, h, w, C), weight (groups, kh·kw·C/groups, O/groups) → (b, oh, ow, O) of ``dtype``, by default data's.

    A weight of bytes has its last two axes in the other order.

    Args:
        operands: as of ``dense``.
    """
    kernel, strides, padding, dilation = window.size, window.strides, window.padding, window.dilation
    top, left, _, _ = padding
    batch, height, width, channels = (int(size) for size in data.shape)
    per_group = channels // groups
    turned = has_bytes(weight.dtype)
    _, *sizes = (int(size) for size in weight.shape)
    depth, outputs = reversed(sizes) if turned else sizes
    oh, ow = window.output_size(height, width)

    def element(g: tirx.Var, m: tirx.Var, k: tirx.Var) -> tirx.Expr:
        channel, tap = tirx.floormod(k, per_group), tirx.floordiv(k, per_group)
        b, y, x = _unflattened(m, [batch, oh, ow])
        y = y * strides[0] + tirx.floordiv(tap, kernel[1]) * dilation[0] - top
        x = x * strides[1] + tirx.floormod(tap, kernel[1]) * dilation[1] - left
        value = data[b, y, x, g * per_group + channel]
        if not any(padding):
            return value
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return tirx.if_then_else(inside, value, tirx.const(0, data.dtype))

    rows = te.compute((groups, batch * oh * ow, depth), element, name="rows")

    def column(g: tirx.Var, k: tirx.Var, n: tirx.Var) -> tirx.Expr:
        return weight[g, n, k] if turned else weight[g, k, n]

    cols = te.compute((groups, depth, outputs), column, name="columns")
    out = _gemm(rows, cols, ("k" if per_group > 1 else "m", "k" if turned else "n"), operands, per_group)
    shape = (batch, oh, ow, groups * outputs)
    if groups == 1:
        return _view(shape, lambda b, y, x, c: out[0, (b * oh + y) * ow + x, c], dtype or data.dtype)
    return _view(
        shape,
        lambda b, y, x, c: out[tirx.floordiv(c, outputs), (b * oh + y) * ow + x, tirx.floormod(c, outputs)],
        dtype or data.dtype,
    )


def product(x: te.Tensor, y: te.Tensor, equation: str, dtype: str = "", operands: str = "") -> te.Tensor:
    """Batched product of two activations, such as ``bmhk,bnhk->bhmn``: letters m, n, k, all others batch.

    Args:
        dtype: of the result; by default that of x.
        operands: as of ``dense``.
    """
    inputs, result = equation.split("->")
    left, right = inputs.split(",")
    sizes = {
        letter: int(size) for word, t in ((left, x), (right, y)) for letter, size in zip(word, t.shape, strict=True)
    }
    batch = [letter for letter in result if letter not in "mn"]
    lead = [sizes[letter] for letter in batch]

    def gathered(tensor: te.Tensor, word: str, name: str, axes: str) -> te.Tensor:
        def element(g: tirx.Var, p: tirx.Var, q: tirx.Var) -> tirx.Expr:
            at = dict(zip(batch, _unflattened(g, lead), strict=True)) | {axes[0]: p, axes[1]: q}
            return tensor[tuple(at[letter] for letter in word)]

        return te.compute((math.prod(lead), sizes[axes[0]], sizes[axes[1]]), element, name=name)

    rows, cols = gathered(x, left, "rows", "mk"), gathered(y, right, "columns", "kn")
    along = left[-1] if left[-1] in "mk" else "k", right[-1] if right[-1] in "kn" else "n"
    out = _gemm(rows, cols, along, operands)

    def element(*at: tirx.Var) -> tirx.Expr:
        named = dict(zip(result, at, strict=True))
        return out[_flattened([named[letter] for letter in batch], lead), named["m"], named["n"]]

    return _view(tuple(sizes[letter] for letter in result), element, dtype or x.dtype)


def depthwise(
    data: te.Tensor,
    weight: te.Tensor,
    strides: tuple[int, int],
    padding: Pads,
    dilation: tuple[int, int],
    dtype: str = "",
) -> te.Tensor:
    """data (b, h, w, C), weight (kh, kw, C) → (b, oh, ow, C); every channel has a filter of its own.

    Args:
        dtype: of the result; by default that of ``data``.
    """
    batch, height, width, channels = (int(size) for size in data.shape)
    window = Window((int(weight.shape[0]), int(weight.shape[1])), strides, padding, dilation)
    size = window.output_size(height, width)
    source, total = pad_spatial(data, padding, 0, 1, AXES), _sum_type(data.dtype)
    kh, kw = te.reduce_axis((0, window.size[0]), "kh"), te.reduce_axis((0, window.size[1]), "kw")
    out = te.compute(
        (batch, *size, channels),
        lambda b, y, x, c: te.sum(
            source[b, y * strides[0] + kh * dilation[0], x * strides[1] + kw * dilation[1], c].astype(total)
            * weight[kh, kw, c].astype(total),
            axis=[kh, kw],
        ),
        name="window",
        attrs={"tune.anchor": WINDOW},
    )
    wanted = dtype or data.dtype
    return out if wanted == total else _view(out.shape, lambda *at: out[at], wanted)


def pool2d(data: te.Tensor, pooling: Pooling) -> te.Tensor:
    """``pooling`` of data (b, h, w, C) → (b, oh, ow, C)."""
    return pool(data, pooling, CHANNELS_LAST)


def has_bytes(dtype: str) -> bool:
    """Return whether ``dtype`` is an integer of 8 bits."""
    return str(dtype) in ("int8", "uint8")


def _sum_type(dtype: str) -> str:
    """Return the type in which products of ``dtype`` are added up."""
    return "int32" if "int" in str(dtype) else "float32"


def _gemm(rows: te.Tensor, columns: te.Tensor, along: tuple[str, str], operands: str, run: int = 0) -> te.Tensor:
    """The product of two gathers.

    Args:
        along: the axes (m or k, k or n) along which rows and columns lie contiguous in memory.
        operands: what they are rounded to; empty for their own type, of integers both, as in ``uint8*int8``.
        run: how many neighbours along k lie contiguous; 0 for all.
    """
    groups, count, depth = (int(size) for size in rows.shape)
    k, total = te.reduce_axis((0, depth), "k"), _sum_type(rows.dtype)
    kinds = f"{rows.dtype}*{columns.dtype}" if total == "int32" else str(rows.dtype)
    return te.compute(
        (groups, count, int(columns.shape[2])),
        lambda g, m, n: te.sum(rows[g, m, k].astype(total) * columns[g, k, n].astype(total), axis=[k]),
        name="gemm",
        attrs={
            "tune.anchor": GEMM,
            "tune.geometry": json.dumps(
                {"rows": along[0], "columns": along[1], "run": run or depth, "dtype": operands or kinds}
            ),
        },
    )


def _view(shape: Sequence[object], element: object, dtype: str) -> te.Tensor:
    def cast(*at: tirx.Var) -> tirx.Expr:
        value = element(*at)  # type: ignore[operator]
        return value.astype(dtype)

    # te.compute reads the number of axes off the signature, which *at hides.
    return te.compute(tuple(shape), cast, name="view")


def _unflattened(index: tirx.Expr, sizes: Sequence[int]) -> list[tirx.Expr]:
    """``index`` of the flattened axes ``sizes`` as one index per axis."""
    indices: list[tirx.Expr] = []
    rest = index
    for size in reversed(sizes[1:]):
        indices.append(tirx.floormod(rest, size))
        rest = tirx.floordiv(rest, size)
    return [rest, *reversed(indices)] if sizes else []


def _flattened(at: Sequence[tirx.Expr], sizes: Sequence[int]) -> tirx.Expr:
    flat: tirx.Expr = tirx.const(0, "int64") if not at else at[0]
    for position, size in zip(at[1:], sizes[1:], strict=True):
        flat = flat * size + position
    return flat
