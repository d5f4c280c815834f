"""Depthwise convolution in channel-blocked layout: each channel has its own filter, so vectors run over channels.

    data (n, C/b, h, w, b)   weight (C/b, kh, kw, b)   output (n, C/b, oh, ow, b)

    for n, c, oh, ow, b:            parallel n·c·oh/rows:
        for kh, kw:                     pad rows
            o += data * weight    →     for oh, ow/tw:
    epilogue                                for kh: unroll kw, tw: vectorize b
                                            epilogue on the tile

Bound by loads: one FMA per two loads, so the tile only has to hide latency.

Of bytes, four taps of a row are one dot product (``instructions/dots.py``): with b channels innermost, four pixels lie
together as x[q, b]. Weights are (C/b, kh, kw/Q, b, Q), zero beyond kw, and rows have pixels to read there.
"""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tvm import te

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import CYCLES, ranked
from schedules.templates.common.structure import SPARE_REGISTERS, Anchor
from schedules.templates.common.windows import Window, pad_spatial
from schedules.templates.cpu.window_tiles import whole_parts, window_balance, window_knobs, window_terms
from schedules.templates.instructions.dots import BF16, TAPS, depth_axes, form_of, multiplied
from schedules.templates.instructions.micro_kernel import peak_cycles, ports_of, taps_of_load
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nested_template import NestedTemplate
from schedules.templates.nests.product_nests import window_nest

OP = "depthwise"

MOST_UNROLLED_TAPS = 400
"""Multiply-adds in the unrolled body of a tile. Heuristic, not measured."""


def depthwise(
    data: te.Tensor,
    weight: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    border: int = 0,
    width: int = 0,
) -> te.Tensor:
    """data (n, C/b, h, w, b), weight (C/b, kh, kw, b), padding top, left, bottom, right → (n, C/b, oh, ow, b).

    Short types are multiplied and added up in the type of their form's sums (``instructions/dots.py``).

    Args:
        border: what the padding holds.
        width: kw, where weights are (C/b, kh, ceil(kw/Q), b, Q); taps of a row are then neighbours.
    """
    form = TAPS if width else form_of(str(data.dtype), str(weight.dtype))
    within = depth_axes(form) if width else []
    window = Window((int(weight.shape[1]), width or int(weight.shape[2])), strides, padding, dilation)
    size = window.output_size(int(data.shape[2]), int(data.shape[3]))
    if within:  # the last pixel's taps that have zero weights
        top, left, bottom, right = padding
        read = (size[1] - 1) * strides[1] + math.prod(int(weight.shape[at]) for at in (2, 4))
        padding = top, left, bottom, max(right, read - int(data.shape[3]) - left)
    padded = pad_spatial(data, padding, border, words="uint16" if form is BF16 else "")
    kh = te.reduce_axis((0, window.size[0]), "kh")
    kw = te.reduce_axis((0, int(weight.shape[2])), "kw")
    tap = kw * TAPS.depth + within[0] if within else kw
    attrs = {"tune.anchor": OP}
    if within:
        attrs["tune.geometry"] = json.dumps({"dot": TAPS.name})
    return te.compute(
        (data.shape[0], data.shape[1], *size, data.shape[4]),
        lambda n, c, oh, ow, b: te.sum(
            multiplied(
                padded[n, c, oh * strides[0] + kh * dilation[0], ow * strides[1] + tap * dilation[1], b],
                weight[(c, kh, kw, b, *within)],
                form,
            ),
            axis=[kh, kw, *within],
        ),
        name="depthwise",
        attrs=attrs,
    )


class DepthwiseTemplate(NestedTemplate):
    """Match, space and rewrite for ``depthwise``."""

    name = OP
    version = 1

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tile width, rows per job, padding place and filter unrolling."""
        taps = math.prod(anchor.reduction[:2])
        knobs = (
            *window_knobs(anchor, target.vector_registers - SPARE_REGISTERS, target.threads),
            Knob("unroll", (0, 1)),
        )

        def fits(columns: Columns) -> NDArray[np.bool_]:
            written_out = columns["tw"] * np.where(columns["unroll"] > 0, taps, anchor.reduction[1])
            few: NDArray[np.bool_] = written_out <= MOST_UNROLLED_TAPS
            return few & whole_parts(columns, anchor)

        def derive(columns: Columns) -> Columns:
            return {
                "balance": window_balance(columns, anchor, target),
                "rows_per_job": np.log2(columns["rows"]),
                CYCLES: _cycles(columns["tw"], anchor, target),
            }

        terms = partial(window_terms, threads=target.threads)
        return ranked(Space(OP, self.version, knobs, fits, derive), terms, 8)

    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """Columns of a filter are always written out; its rows if the knob says so."""
        return window_nest(anchor, dict(config.items), ("kh", "kw") if config.integer("unroll") else ("kw",))


def _cycles(width: NDArray[np.float64], anchor: Anchor, target: Target) -> NDArray[np.float64]:
    """(n,) cycles of a tile's products over those of as many at the peak.

    A step is a tap: a vector of weights, and a pixel for each of the ``width`` sums, of which those that LLVM keeps for
    the next taps of a row are loaded once.
    """
    if anchor.form is not None:  # other instructions bring the bytes of a lane together
        return np.ones_like(width)
    loads = 1 + width / taps_of_load(width, anchor.reduction[1])
    alone = loads if target.lane_operands else np.ones_like(width)
    return peak_cycles(width, (loads, alone), math.prod(anchor.reduction[:2]), ports_of(target), "fma")
