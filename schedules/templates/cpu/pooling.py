"""Windowed pooling in channel-blocked layout.

    data (n, C/b, h, w, b) → (n, C/b, oh, ow, b); the rewrite is that of ``depthwise`` without a filter.

The window never reads a padded copy: a tap outside the picture is skipped by a scalar condition, which is loop
invariant for the vector over b.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.structure import (
    Anchor,
    OneAlgorithm,
    divisors,
    find_anchor,
    inline_epilogue,
    parallel_outer,
    unroll_tile,
)
from schedules.templates.cpu.conv2d import pad_spatial

OP = "pool"
LOWEST = -3.4028234663852886e38


def pool2d(
    data: te.Tensor,
    kind: str,
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    out_size: tuple[int, int],
    count_include_pad: bool,
) -> te.Tensor:
    """Max or average pooling.

    Args:
        data: (n, C/b, h, w, b).
        kind: ``max`` or ``avg``.
        padding: top, left, bottom, right.
        out_size: (oh, ow), decided by the caller (ceil mode reads past the given padding).

    Returns:
        (n, C/b, oh, ow, b).
    """
    top, left, bottom, right = padding
    height, width = int(data.shape[2]), int(data.shape[3])
    over_h = max(0, (out_size[0] - 1) * strides[0] + dilation[0] * (window[0] - 1) + 1 - height - top - bottom)
    over_w = max(0, (out_size[1] - 1) * strides[1] + dilation[1] * (window[1] - 1) + 1 - width - left - right)
    around = (top, left, bottom + over_h, right + over_w)
    source = pad_spatial(data, around, LOWEST if kind == "max" else 0.0) if any(around) else data
    kh = te.reduce_axis((0, window[0]), "kh")
    kw = te.reduce_axis((0, window[1]), "kw")
    shape = (data.shape[0], data.shape[1], *out_size, data.shape[4])
    combine = te.max if kind == "max" else te.sum
    pooled = te.compute(
        shape,
        lambda n, c, oh, ow, b: combine(
            source[n, c, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1], b], axis=[kh, kw]
        ),
        name="pool",
        attrs={"tune.anchor": OP},
    )
    if kind == "max":
        return pooled

    def taps(position: tirx.Expr, size: int, before: int, after: int, step: int, stride: int, count: int) -> tirx.Expr:
        """Number of taps that count at one output position along one axis."""
        start = position * stride - before
        low, high = (0, size) if not count_include_pad else (-before, size + after)
        total: tirx.Expr = tirx.const(0, "int32")
        for tap in range(count):
            at = start + tap * step
            total = total + tirx.Select(tirx.all(at >= low, at < high), tirx.const(1, "int32"), tirx.const(0, "int32"))
        return total

    def average(n: tirx.Var, c: tirx.Var, oh: tirx.Var, ow: tirx.Var, b: tirx.Var) -> tirx.Expr:
        if not any(around) or (count_include_pad and not over_h and not over_w):
            return pooled[n, c, oh, ow, b] * tirx.const(1.0 / (window[0] * window[1]), data.dtype)
        rows = taps(oh, height, top, bottom, dilation[0], strides[0], window[0])
        columns = taps(ow, width, left, right, dilation[1], strides[1], window[1])
        return pooled[n, c, oh, ow, b] / tirx.Cast(data.dtype, rows * columns)

    return te.compute(shape, average, name="average")


class PoolTemplate(OneAlgorithm):
    """Match, space and rewrite for ``pool``."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The pooling this function is about, if it is one."""
        return find_anchor(func, OP)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tile width, rows per job and padding place."""
        n, blocks, height, width, _ = anchor.spatial
        knobs = (
            Knob("tw", tuple(d for d in divisors(width) if d <= 28)),
            Knob("rows", tuple(d for d in divisors(height) if d <= 56)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
        )
        taps = anchor.reduction[0] * anchor.reduction[1]

        def fits(columns: Columns) -> NDArray[np.bool_]:
            return columns["tw"] * min(taps, 49) <= 512

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            jobs = n * blocks * (height / columns["rows"])
            return {"balance": jobs / (np.ceil(jobs / target.threads) * target.threads)}

        space = Space(OP, self.version, knobs, fits, derive)
        columns = space.columns(space.rows)
        score = np.abs(columns["tw"] - 7) + np.abs(columns["rows"] - 7) + 8 * (1 - derive(columns)["balance"])
        best = np.argsort(score - columns["pad"], kind="stable")[:4]
        return Space(OP, self.version, knobs, fits, derive, initial=tuple(space.config(space.rows[i]) for i in best))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        block = sch.get_sblock(anchor.block)
        tail = inline_epilogue(sch, anchor)
        n, c, oh, ow, b, kh, kw = sch.get_loops(block)
        ho, hi = sch.split(oh, [None, config.integer("rows")])
        wo, wi = sch.split(ow, [None, config.integer("tw")])
        sch.reorder(n, c, ho, hi, wo, kh, kw, wi, b)
        if tail is not None:
            sch.reverse_compute_at(tail, wo, preserve_unit_loops=True)
        outer = sch.fuse(n, c, ho)
        sch.parallel(outer)
        if anchor.padded:
            pad = sch.get_sblock("pad")
            if config.integer("pad"):
                sch.compute_at(pad, outer, preserve_unit_loops=True)
            else:
                parallel_outer(sch, pad, 3)
            sch.vectorize(sch.get_loops(pad)[-1])
        sch.vectorize(b)
        sch.unroll(wi)
        if anchor.reduction[0] * anchor.reduction[1] <= 49:
            sch.unroll(kw)
        init = sch.decompose_reduction(block, kh)
        unroll_tile(sch, init, 2)
        if tail is not None:
            unroll_tile(sch, tail, 2)
