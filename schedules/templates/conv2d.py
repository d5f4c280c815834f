"""Direct convolution in channel-blocked layouts, dense and grouped.

Notation (b = channels in one block, fp32 AVX-512: 16):
    data    (n, ceil(C/b), h, w, b), or plain (n, C, h, w) for the first layer
    weight  (O/b, C'/i, kh, kw, i, b): C' input channels of one group, i of them innermost
    output  (n, O/b, oh, ow, b)

The rewrite (``c``: reduction over ci, kh, kw, i):

    for n, o, oh, ow, b:                     parallel for n·o/to·oh/th:
        for ci, kh, kw, i:                       pad rows (knob ``pad``)
            c += data * weight                   for ow/tw:
    epilogue                          →              for ci, kh, kw, i/u:
                                                         unroll u: unroll to, th, tw: vectorize b
                                                     epilogue on the to·th·tw tile while it is in registers

The to·th·tw accumulators of one vector each must hide the FMA latency (ports × latency, at least 8) and stay in the
register file with the weights beside them (at most 28 of 32); outside of that range no config is enumerated.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.errors import check
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.structure import Anchor, divisors, find_anchor, inline_epilogue, parallel_outer, unroll_tile

OP = "conv2d"


def conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> te.Tensor:
    """The compute in clean axes.

    Args:
        data: (n, C/b, h, w, b), or (n, C, h, w) if the input is plain.
        weight: (O/b, C'/i, kh, kw, i, b).
        padding: top, left, bottom, right.
        groups: O/b must divide by it.

    Returns:
        (n, O/b, oh, ow, b).
    """
    top, left, bottom, right = padding
    height, width = int(data.shape[2]), int(data.shape[3])
    blocks, per_group, kh_size, kw_size, inner, lanes = (int(x) for x in weight.shape)
    padded = data if not any(padding) else pad_spatial(data, padding, 0.0)
    oh_size = (height + top + bottom - dilation[0] * (kh_size - 1) - 1) // strides[0] + 1
    ow_size = (width + left + right - dilation[1] * (kw_size - 1) - 1) // strides[1] + 1
    ci = te.reduce_axis((0, per_group), "ci")
    kh = te.reduce_axis((0, kh_size), "kh")
    kw = te.reduce_axis((0, kw_size), "kw")
    i = te.reduce_axis((0, inner), "i")
    plain = len(data.shape) == 4
    lane_count = 1 if plain else int(data.shape[4])

    def source(n: tirx.Var, o: tirx.Var, y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
        channel = ci * inner + i
        if groups > 1:
            channel = channel + (o // (blocks // groups)) * (per_group * inner)
        if plain:
            return padded[n, channel, y, x]
        if groups == 1 and inner == lane_count:
            return padded[n, ci, y, x, i]
        return padded[n, channel // lane_count, y, x, channel % lane_count]

    return te.compute(
        (data.shape[0], blocks, oh_size, ow_size, lanes),
        lambda n, o, oh, ow, b: te.sum(
            source(n, o, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1])
            * weight[o, ci, kh, kw, i, b],
            axis=[ci, kh, kw, i],
        ),
        name="conv2d",
        attrs={"tune.anchor": OP},
    )


def pad_spatial(data: te.Tensor, padding: tuple[int, int, int, int], value: float) -> te.Tensor:
    """``data`` (n, c, h, w[, b]) with ``value`` around h and w; padding is top, left, bottom, right."""
    top, left, bottom, right = padding
    height, width = int(data.shape[2]), int(data.shape[3])
    shape = [data.shape[0], data.shape[1], height + top + bottom, width + left + right, *data.shape[4:]]
    fill = tirx.const(value, data.dtype)

    def element(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, *b: tirx.Var) -> tirx.Expr:
        inside = tirx.all(h >= top, h < height + top, w >= left, w < width + left)
        return tirx.if_then_else(inside, data[(n, c, h - top, w - left, *b)], fill)

    return te.compute(shape, element, name="pad")


class Conv2dTemplate:
    """Match, space and rewrite for ``conv2d``."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The convolution this function is about, if it is one."""
        return find_anchor(func, OP)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tiles that fit ``target``, reduction unrolling, where padding happens, and the parallel grain."""
        _, blocks, height, width, _ = anchor.spatial
        reduction = anchor.reduction
        inner = reduction[-1]
        taps = reduction[1] * reduction[2]
        group_blocks = blocks // anchor.groups if anchor.groups > 1 else blocks
        knobs = (
            Knob("to", tuple(d for d in divisors(group_blocks) if d <= 8)),
            Knob("th", tuple(d for d in divisors(height) if d <= 7)),
            Knob("tw", tuple(d for d in divisors(width) if d <= 28)),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8, 16) if inner % d == 0)),
            Knob("rows", tuple(d for d in divisors(height) if d <= 16)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
            Knob("outer", (0, 1)),
        )
        limit = target.vector_registers - 4

        def fits(columns: Columns) -> NDArray[np.bool_]:
            tile = columns["to"] * columns["th"] * columns["tw"]
            body = columns["unroll"] * tile
            grain = columns["rows"] * 1.0
            return (tile <= limit) & (body <= 256) & (grain % columns["th"] == 0)

        def derive(columns: Columns) -> Mapping[str, NDArray[np.float64]]:
            to, th, tw = columns["to"], columns["th"], columns["tw"]
            tile = to * th * tw
            jobs = anchor.spatial[0] * (blocks / to) * (height / columns["rows"])
            waves = np.ceil(jobs / target.threads) * target.threads
            lanes_bytes = float(target.vector_bytes)
            weights = to * reduction[0] * taps * inner * lanes_bytes
            return {
                "accumulators": tile,
                "loads_per_fma": (to + th * tw) / tile,
                "balance": jobs / waves,
                "weights_l2": np.log2(weights / target.l2_bytes),
                "starved": np.maximum(0.0, 8.0 - tile),
            }

        space = Space(OP, self.version, knobs, fits, derive)
        return Space(OP, self.version, knobs, fits, derive, first=_first_guesses(space, anchor, target))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        conv = sch.get_sblock(anchor.block)
        tail = inline_epilogue(sch, anchor)
        n, o, oh, ow, b, ci, kh, kw, i = sch.get_loops(conv)
        to, th, tw, rows = (config.integer(k) for k in ("to", "th", "tw", "rows"))
        check(rows % th == 0, f"rows {rows} is not a multiple of th {th}")
        oo, oi = sch.split(o, [None, to])
        ho, hm, hi = sch.split(oh, [None, rows // th, th])
        wo, wi = sch.split(ow, [None, tw])
        io, ii = sch.split(i, [None, config.integer("unroll")])
        if config.integer("outer"):
            sch.reorder(n, ho, oo, hm, wo, ci, kh, kw, io, ii, oi, hi, wi, b)
            fused = [n, ho, oo]
        else:
            sch.reorder(n, oo, ho, hm, wo, ci, kh, kw, io, ii, oi, hi, wi, b)
            fused = [n, oo, ho]
        if tail is not None:
            sch.reverse_compute_at(tail, wo, preserve_unit_loops=True)
        outer = sch.fuse(*fused)
        sch.parallel(outer)
        if anchor.padded:
            pad = sch.get_sblock("pad")
            if config.integer("pad"):
                sch.compute_at(pad, outer, preserve_unit_loops=True)
            else:
                parallel_outer(sch, pad, 3)
            last = sch.get_loops(pad)[-1]
            if not anchor.plain:
                sch.vectorize(last)
        sch.vectorize(b)
        for loop in (ii, oi, hi, wi):
            sch.unroll(loop)
        init = sch.decompose_reduction(conv, ci)
        unroll_tile(sch, init, 4)
        if tail is not None:
            unroll_tile(sch, tail, 4)


def _first_guesses(space: Space, anchor: Anchor, target: Target) -> tuple[Config, ...]:
    """The configs an expert would try first: 12–16 accumulators, square tiles, even parallel grains."""
    rows = space.rows
    columns = space.columns(rows)
    assert space.derive is not None
    derived = space.derive(columns)
    tile = columns["to"] * columns["th"] * columns["tw"]
    penalty = (
        4.0 * derived["loads_per_fma"]
        + 0.5 * np.maximum(0, 10 - tile)
        + 0.5 * np.maximum(0, tile - 20)
        + 3.0 * (1 - derived["balance"])
        + 0.05 * np.abs(np.log2(columns["unroll"]) - 2)
        + 0.05 * np.abs(columns["rows"] - columns["th"])
    )
    order = np.argsort(penalty, kind="stable")
    chosen: list[Config] = []
    seen: set[tuple[float, ...]] = set()
    for index in order:
        signature = (columns["to"][index], columns["th"][index], columns["tw"][index], columns["pad"][index])
        if signature not in seen:
            seen.add(signature)
            chosen.append(space.config(rows[index]))
        if len(chosen) == 8:
            break
    return tuple(chosen)
