"""GridSample with cubic interpolation: weights and places once per pixel, then a sum of sixteen products per element.

Relax's own computes both anew for every channel, in one expression that takes minutes to compile:

    place, weight, inside (n, h, w, 4) of rows and of columns;  y[n, c, h, w] = Σ weight · weight · x[n, c, row, column]

Places are always within the image, and ``inside`` says which count as zero: of one number for both, TVM would conclude
from the choice that the place needs no bound, and read what it does not choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts
from autotune.importer.rewriting.relax_values import dtype_of, native, sizes_of, text_of

TAPS = 4

SHARPNESS = -0.75
"""The parameter of the cubic curve, as ONNX has it."""


@converts("GridSample")
def grid_sample(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Cubic samples of images in fp32; Relax's own takes the others."""
    x, grid = inputs[:2]
    mode, padding = (text_of(attrs, name, default) for name, default in (("mode", ""), ("padding_mode", "zeros")))
    shape, aligned = sizes_of(x), bool(attrs.get("align_corners", 0))
    types = {dtype_of(x), dtype_of(grid)}
    if mode not in ("cubic", "bicubic") or len(shape) != 4 or types != {"float32"}:
        mirrored = aligned and padding == "reflection"
        return native("GridSample", bb, [_without_single_pixels(bb, x) if mirrored else x, grid], attrs, opset)
    sides = [_side(bb, grid, axis, size, padding, aligned) for axis, size in ((1, shape[2]), (0, shape[3]))]
    return bb.emit_te(_summed, x, *sides[0], *sides[1], primfunc_name_hint="grid_sample")


def _without_single_pixels(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """``x`` with each single pixel twice: Relax mirrors positions by a remainder of the distance between corners."""
    for axis, size in enumerate(sizes_of(x)):
        if axis > 1 and size == 1:
            x = bb.normalize(relax.op.concat([x, x], axis))
    return x


def _side(
    bb: relax.BlockBuilder, grid: relax.Expr, axis: int, size: int, padding: str, aligned: bool
) -> list[relax.Expr]:
    """Places, weights, and whether a tap is inside (int32) along one axis, (n, h, w, ``TAPS``) each."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)

    def real(at: te.Tensor, where: tuple[Any, ...]) -> tirx.Expr:
        x = at(*where, axis)
        return (x + 1) / 2 * (size - 1) if aligned else ((x + 1) * size - 1) / 2

    def whole(at: te.Tensor, where: tuple[Any, ...]) -> tirx.Expr:
        tap = tirx.floor(real(at, where[:3])) - 1 + tirx.Cast("float32", where[3])
        return _reflected(tap, low, high) if padding == "reflection" else tap

    def place(at: te.Tensor) -> te.Tensor:
        def tap(*where: Any) -> tirx.Expr:
            held = tirx.Cast("int32", tirx.max(tirx.min(whole(at, where), float(size - 1)), 0.0))
            return tirx.max(tirx.min(held, size - 1), 0)  # of NaN, the cast makes any number

        return te.compute((*at.shape[:3], TAPS), tap, name="places")

    def inside(at: te.Tensor) -> te.Tensor:
        def tap(*where: Any) -> tirx.Expr:
            x = whole(at, where)
            return tirx.Cast("int32", tirx.all(x >= 0, x <= float(size - 1)) if padding == "zeros" else True)

        return te.compute((*at.shape[:3], TAPS), tap, name="inside")

    def weight(at: te.Tensor) -> te.Tensor:
        def tap(*where: Any) -> tirx.Expr:
            x = real(at, where[:3])
            return _curve(x - tirx.floor(x), where[3])

        return te.compute((*at.shape[:3], TAPS), tap, name="weights")

    def emitted(compute: Callable[[te.Tensor], te.Tensor], name: str) -> relax.Expr:
        # Nothing fuses with it: fused into the sum, it would be computed for every channel.
        return bb.emit_te(compute, grid, primfunc_name_hint=name, primfunc_attrs={"op_pattern": OPAQUE_PATTERN})

    return [emitted(place, "grid_places"), emitted(weight, "grid_weights"), emitted(inside, "grid_inside")]


def _reflected(x: tirx.Expr, low: float, high: float) -> tirx.Expr:
    """``x`` mirrored at both ends until it is between them."""
    span = np.float32(high - low)
    if not span:
        return tirx.const(low, "float32")
    far = tirx.Select(x < low, tirx.const(low, "float32") - x, x - tirx.const(high, "float32"))
    times = tirx.floor(far / span)
    rest = far - times * span
    odd = times - 2 * tirx.floor(times / 2) != 0
    below = tirx.Select(odd, high - rest, low + rest)
    above = tirx.Select(odd, low + rest, high - rest)
    return tirx.Select(x < low, below, tirx.Select(x > high, above, x))


def _curve(part: tirx.Expr, tap: tirx.Var) -> tirx.Expr:
    """The weight of a tap at the ``part`` of a pixel behind the second one."""
    a = SHARPNESS

    def near(d: tirx.Expr) -> tirx.Expr:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: tirx.Expr) -> tirx.Expr:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    inner = tirx.Select(tap == 1, near(part), near(1 - part))
    return tirx.Select(tap == 0, far(part + 1), tirx.Select(tap == 3, far(2 - part), inner))


def _summed(x: te.Tensor, *sides: te.Tensor) -> te.Tensor:
    """The sum over all taps; what is outside of the image is zero, whatever its weight."""
    rows, down, within, columns, across, between = sides
    batch, channels = x.shape[:2]
    i, j = te.reduce_axis((0, TAPS), "i"), te.reduce_axis((0, TAPS), "j")

    def sample(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var) -> tirx.Expr:
        counts = tirx.all(within(n, h, w, i) != 0, between(n, h, w, j) != 0)
        value = tirx.Select(counts, x(n, c, rows(n, h, w, i), columns(n, h, w, j)), tirx.const(0, "float32"))
        return te.sum(down(n, h, w, i) * across(n, h, w, j) * value, axis=[i, j])

    return te.compute((batch, channels, *rows.shape[1:3]), sample, name="grid_sample")
