"""GridSample: positions and weights once per pixel, then a sum of weighted taps per element.

Relax's own computes both again for every channel:

    place, weight (n, axes · taps, …) of every pixel
    y[n, c, …] = Σ over the taps of all axes of Π weight · x[n, c, place …]

Nearest pixels are one tap of weight 1, linear samples two per axis, cubic ones four. Places are within the image. A tap
outside that counts as zero has the place ¬p of a place p. If a place were chosen by its sign, TVM would conclude that
it needs no bound, and read it in any case. TVM does not see through bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from autotune.importer.rewriting.registry import OPAQUE_PATTERN, UNFUSED_PATTERN, Inputs, converts
from autotune.importer.rewriting.relax_values import dtype_of, sizes_of, text_of

TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
"""Mode → taps along an axis."""

SHARPNESS = -0.75
"""The parameter of the cubic curve, as ONNX has it."""

FARTHEST = 2.0**62
"""Pixels from which on a position, like NaN, counts as the image's first edge, as in ONNX Runtime."""


@dataclass(frozen=True)
class Grid:
    """Rules by which positions of a grid become pixels.

    Attributes:
        sizes: of the image, the outermost axis first.
        padding: ``zeros``, ``border`` or ``reflection``.
        aligned: whether −1 and 1 are the centres of the outermost pixels, not their edges.
        dtype: of positions and weights.
    """

    sizes: tuple[int, ...]
    taps: int
    padding: str
    aligned: bool
    dtype: str = "float32"

    def _of_axis(self, axis: tirx.Expr, values: list[float]) -> tirx.Expr:
        """Return the number of an axis."""
        chosen = tirx.const(values[-1], self.dtype)
        for number, value in reversed(list(enumerate(values[:-1]))):
            chosen = tirx.Select(axis == number, tirx.const(value, self.dtype), chosen)
        return chosen

    def real(self, value: tirx.Expr, axis: tirx.Expr) -> tirx.Expr:
        """Return where a number of the grid is among the pixels of an axis."""
        size = self._of_axis(axis, [float(size) for size in self.sizes])
        x = (value + 1) / 2 * (size - 1) if self.aligned else ((value + 1) * size - 1) / 2
        return tirx.Select(tirx.abs(x) < FARTHEST, x, tirx.const(0.0 if self.aligned else -0.5, self.dtype))

    def place(self, value: tirx.Expr, axis: tirx.Expr, tap: tirx.Expr) -> tirx.Expr:
        """Return the pixel of a tap, within the image, or ¬ of it where it counts as zero."""
        x = self.real(value, axis)
        first = (
            tirx.nearbyint(x) if self.taps == 1 else tirx.floor(x) + tirx.Cast(self.dtype, tap) - (self.taps // 2 - 1)
        )
        last = self._of_axis(axis, [size - 1.0 for size in self.sizes])
        if self.padding == "reflection":
            edge = 0.0 if self.aligned else 0.5
            spans = [size - 1.0 + 2 * edge for size in self.sizes]
            first = tirx.Select(self._of_axis(axis, spans) > 0, self._mirrored(first, axis, spans, edge), 0.0)
        held = tirx.Cast("int32", tirx.max(tirx.min(first, last), tirx.const(0.0, self.dtype)))
        held = tirx.max(tirx.min(held, tirx.Cast("int32", last)), 0)  # of NaN, the cast makes any number
        if self.padding != "zeros":
            return held
        return tirx.Select(tirx.all(first >= 0, first <= last), held, tirx.bitwise_not(held))

    def _mirrored(self, x: tirx.Expr, axis: tirx.Expr, spans: list[float], edge: float) -> tirx.Expr:
        """``x`` mirrored at both ends, ``edge`` outside of the outermost centres, until it is between them."""
        span = self._of_axis(axis, [value or 1.0 for value in spans])
        low = tirx.const(-edge, self.dtype)
        high = low + span
        far = tirx.Select(x < low, low - x, x - high)
        times = tirx.floor(far / span)
        rest = far - times * span
        odd = times - 2 * tirx.floor(times / 2) != 0
        below = tirx.Select(odd, high - rest, low + rest)
        above = tirx.Select(odd, low + rest, high - rest)
        return tirx.Select(x < low, below, tirx.Select(x > high, above, x))

    def weight(self, value: tirx.Expr, axis: tirx.Expr, tap: tirx.Expr) -> tirx.Expr:
        """Return the weight of a tap."""
        x = self.real(value, axis)
        part = x - tirx.floor(x)
        return _curve(part, tap) if self.taps == TAPS["cubic"] else tirx.Select(tap == 0, 1 - part, part)


@converts("GridSample")
def grid_sample(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Sample images and volumes: halves in fp32, and so integers that are weighed."""
    x, positions = inputs[:2]
    assert x is not None
    dtype, taps = dtype_of(x), TAPS[text_of(attrs, "mode", "linear")]
    real = "float64" if dtype == "float64" else "float32"
    if dtype != real and ("float" in dtype or taps > 1):
        x = bb.normalize(relax.op.astype(x, real))
    if dtype_of(positions) != real:
        positions = bb.normalize(relax.op.astype(positions, real))
    padding = text_of(attrs, "padding_mode", "zeros")
    grid = Grid(tuple(sizes_of(x)[2:]), taps, padding, bool(attrs.get("align_corners", 0)), real)
    rank, where = len(grid.sizes), tuple(sizes_of(positions)[:-1])
    flat = bb.normalize(relax.op.reshape(positions, (math.prod(where), rank)))

    def emitted(name: str, element: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]) -> relax.Expr:
        def compute(at: te.Tensor) -> te.Tensor:
            def tap(k: tirx.Var, p: tirx.Var) -> tirx.Expr:
                axis = k // taps
                return element(at(p, rank - 1 - axis), axis, k % taps)

            # All positions of a tap lie together: vectors are whole however few there are in a row.
            return te.compute((rank * taps, at.shape[0]), tap, name=name)

        # Nothing fuses with it: fused into the sum, it would be computed for every channel.
        attributes = {"op_pattern": OPAQUE_PATTERN}
        return bb.emit_te(compute, flat, primfunc_name_hint=name, primfunc_attrs=attributes)

    tensors = [emitted("grid_places", grid.place), *([emitted("grid_weights", grid.weight)] if taps > 1 else ())]
    sampled = bb.emit_te(
        _summed(grid, where[1:]),
        x,
        *tensors,
        primfunc_name_hint="grid_sample",
        primfunc_attrs={"op_pattern": UNFUSED_PATTERN},
    )
    return sampled if dtype_of(sampled) == dtype else relax.op.astype(sampled, dtype)


def _curve(part: tirx.Expr, tap: tirx.Var) -> tirx.Expr:
    """The weight of a tap at the ``part`` of a pixel behind the second one."""
    a = SHARPNESS

    def near(d: tirx.Expr) -> tirx.Expr:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: tirx.Expr) -> tirx.Expr:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    inner = tirx.Select(tap == 1, near(part), near(1 - part))
    return tirx.Select(tap == 0, far(part + 1), tirx.Select(tap == 3, far(2 - part), inner))


def _summed(grid: Grid, shape: tuple[int, ...]) -> Callable[..., te.Tensor]:
    """The sum over the taps of all axes, the innermost first; what is outside is zero, whatever its weight.

    Args:
        shape: of the result, without batch and channels.
    """
    rank, taps = len(grid.sizes), grid.taps

    def compute(x: te.Tensor, places: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def sample(n: tirx.Var, c: tirx.Var, *where: tirx.Var) -> tirx.Expr:
            position: tirx.Expr = n
            for size, index in zip(shape, where, strict=True):
                position = position * size + index
            at = [[places(axis * taps + tap, position) for tap in range(taps)] for axis in range(rank)]
            held = [[pixel ^ (pixel >> 31) if grid.padding == "zeros" else pixel for pixel in axis] for axis in at]

            def tap_of(chosen: tuple[int, ...]) -> tirx.Expr:
                value = x(n, c, *(held[axis][tap] for axis, tap in enumerate(chosen)))
                if grid.padding != "zeros":
                    return value
                inside = at[0][chosen[0]]
                for axis, tap in enumerate(chosen[1:], 1):
                    inside = inside | at[axis][tap]
                return tirx.Select(inside >= 0, value, tirx.const(0, x.dtype))

            def along(chosen: tuple[int, ...]) -> tirx.Expr:
                axis = len(chosen)
                if axis == rank:
                    return tap_of(chosen)
                if not weights:
                    return along((*chosen, 0))
                total = None
                for tap in range(taps):
                    part = tirx.Cast(x.dtype, weights[0](axis * taps + tap, position)) * along((*chosen, tap))
                    total = part if total is None else total + part
                return total

            return along(())

        return te.compute((*x.shape[:2], *shape), sample, name="grid_sample")

    return compute
