"""Convolution in AMX tiles (``amx_product.py``), in channel-blocked layouts.

A row of a tile has 64 bytes of numbers of one pixel, and rows lie a fixed number of bytes apart. Images are blocked in
fewer bytes, and have borders, so a job first gathers what it reads:

    gathered (n, g·C/K, s, rows, columns, K)    K channels of a pixel together; s phases of the rows for stride s
    wide     (n, O/16, parts, pixels, 16)       pixels of some of the job's rows one after another
    result   (n, O/b, oh, ow, b)

Pixels are counted over whole rows of what is gathered, so that they lie equally far apart from one row to the next:
of a 3 × 3 filter the last two of a row are computed for nothing. Few channels leave room for several taps of a filter's
row in 64 bytes (``fold``): pixels of a row are neighbours in memory. Taps that do not exist have weights of zero.

    for jobs of rows, of blocks:        in parallel
        gather
        for blocks/to, rows/th:
            wide = gathered · weight    in tiles
            epilogue

While a core adds a bias to one part and rounds it, its tiles go on with the next: few tiles fit the window of
instructions that may run ahead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from schedules.config import Config
from schedules.templates.amx.amx_ir import MOST_ROWS, ROW_BYTES
from schedules.templates.amx.amx_product import WIDE, terms, use_amx
from schedules.templates.common.register_tile import spread
from schedules.templates.common.splice import long
from schedules.templates.common.structure import Anchor, inline_epilogue
from schedules.templates.instructions.dots import DotForm, multiplied

GATHERED = "gathered"


@dataclass(frozen=True)
class Geometry:
    """How a convolution's numbers are gathered.

    Attributes:
        channels: of a pixel, together in memory.
        chunks: of so many channels, in a group.
        present: channels of a group in the image.
        fold: neighbouring taps that one row of a tile holds.
        taps: rows of the filter, and columns or groups of ``fold`` of them.
        dilation: between rows, and between columns or groups.
        strides: of the windows over what is gathered.
        steps: between the pixels that are gathered; the strides of filters of one tap.
        columns: pixels in a gathered row.
        in_place: whether all this is so in the image itself, which then is not gathered.
    """

    channels: int
    chunks: int
    present: int
    fold: int
    taps: tuple[int, int]
    dilation: tuple[int, int]
    strides: tuple[int, int]
    steps: tuple[int, int]
    columns: int
    in_place: bool

    @property
    def width(self) -> int:
        """Pixels of ``wide`` in a row."""
        return self.columns // self.strides[1]

    def pixels(self, rows: int, width: int) -> int:
        """Return the pixels of ``wide`` for a job of ``rows`` rows of ``width`` wanted pixels."""
        return (rows - 1) * self.width + width


def geometry(anchor: Anchor, form: DotForm) -> Geometry | None:
    """Return how ``anchor``'s numbers are gathered; None for groups that no block of channels divides, and
    strides longer than filters.
    """
    if anchor.plain or "span" in anchor.geometry or "dealt" in anchor.geometry or form.rows > 1:
        return None
    if anchor.groups > 1 and anchor.spatial[1] % anchor.groups:
        return None
    window, wanted = anchor.geometry, anchor.spatial[3]
    taps, strides, dilation = anchor.reduction[1:3], list(window["strides"]), list(window["dilation"])
    steps = [stride if tap == 1 else 1 for stride, tap in zip(strides, taps, strict=True)]
    strides = [1 if tap == 1 else stride for stride, tap in zip(strides, taps, strict=True)]
    if any((tap - 1) * d + 1 < s for tap, d, s in zip(taps, dilation, strides, strict=True)):
        return None
    lanes = anchor.shapes[anchor.data][-1]
    whole = anchor.shapes[anchor.data][1] * lanes
    step_terms, present = (
        terms(form),
        whole if anchor.groups == 1 else anchor.reduction[0] * anchor.reduction[3] * form.depth,
    )
    channels = step_terms
    while channels >= 2 * present and taps[1] > 1 and dilation[1] == 1 and channels > form.depth:
        channels //= 2
    fold = step_terms // channels
    across = math.ceil(taps[1] / fold)
    extent = across * fold if fold > 1 else (taps[1] - 1) * dilation[1] + 1
    columns = math.ceil(((wanted - 1) * strides[1] + extent) / strides[1]) * strides[1]
    return Geometry(
        channels,
        math.ceil(present / channels),
        present,
        fold,
        (taps[0], across),
        (dilation[0], fold * dilation[1]),
        (strides[0], strides[1]),
        (steps[0], steps[1]),
        columns,
        in_place=channels == lanes
        and present % channels == 0
        and (*taps, *steps, *anchor.padding) == (1,) * 4 + (0,) * 4,
    )


def pack(weight: NDArray[Any], gather: Geometry, quad: int) -> NDArray[Any]:
    """(O/b, C/(i·Q), kh, kw, i, b, Q) → (O/16, chunks, kh, kw/fold, 16, 16, Q), zeros where there is nothing."""
    panels, depth, kh, kw, inner, lanes, _ = weight.shape
    filters = weight.transpose(0, 5, 2, 3, 1, 4, 6).reshape(panels * lanes, kh, kw, depth * inner * quad)
    channels, across = gather.chunks * gather.channels, gather.taps[1]
    whole = np.zeros((panels * lanes, kh, across * gather.fold, channels), weight.dtype)
    whole[:, :, :kw, : filters.shape[3]] = filters
    split = whole.reshape(-1, MOST_ROWS, kh, across, gather.fold, gather.chunks, gather.channels)
    terms_last = split.transpose(0, 5, 2, 3, 1, 4, 6).reshape(
        *split.shape[:1], gather.chunks, kh, across, MOST_ROWS, MOST_ROWS, quad
    )
    return np.ascontiguousarray(terms_last.swapaxes(-3, -2))


def _gathered(anchor: Anchor, gather: Geometry, data: te.Tensor, border: int) -> te.Tensor:
    """The numbers of ``data`` in the order in which tiles load them; arguments as of ``stages``."""
    shape, (top, left) = anchor.shapes[anchor.data], anchor.padding[:2]
    short = "uint16" if data.dtype == "bfloat16" else data.dtype
    batch, phases = anchor.spatial[0], gather.strides[0]
    deep = anchor.spatial[2] + (gather.taps[0] - 1) * gather.dilation[0] // phases
    fill = tirx.const(border, short)

    def element(n: tirx.Var, c: tirx.Var, s: tirx.Var, y: tirx.Var, x: tirx.Var, k: tirx.Var) -> tirx.Expr:
        h = (y * phases + s) * gather.steps[0] - top
        w = x * gather.steps[1] - left
        group, chunk = (c // gather.chunks, c % gather.chunks) if anchor.groups > 1 else (0, c)
        channel = group * gather.present + chunk * gather.channels + k
        inside = [h >= 0, h < shape[2], w >= 0, w < shape[3]]
        if gather.chunks * gather.channels > gather.present:
            inside.append(chunk * gather.channels + k < gather.present)
        number = data[n, channel // shape[4], h, w, channel % shape[4]]
        return tirx.if_then_else(
            tirx.all(*inside), number if short == data.dtype else tirx.reinterpret(short, number), fill
        )

    return te.compute(
        long(batch, anchor.groups * gather.chunks, phases, deep, gather.columns, gather.channels),
        element,
        name=GATHERED,
    )


def stages(anchor: Anchor, rows: int, border: int) -> tirx.PrimFunc:
    """The convolution of ``anchor`` in parts of ``rows`` rows, as a function (data, weight, result).

    Args:
        border: what the padding holds.
    """
    form = anchor.form
    assert form is not None
    gather = geometry(anchor, form)
    assert gather is not None
    batch, blocks, height, width, lanes = anchor.spatial
    data = te.placeholder(long(*anchor.shapes[anchor.data]), form.data, name="data")
    packed = (gather.chunks, *gather.taps, MOST_ROWS, MOST_ROWS, form.depth)
    weight = te.placeholder(long(blocks * lanes // MOST_ROWS, *packed), form.weight, name="weight")
    phases, dilation, strides = gather.strides[0], gather.dilation, gather.strides
    image = data if gather.in_place else _gathered(anchor, gather, data, border)
    zero = tirx.IntImm("int64", 0)
    sizes = {"c": gather.chunks, "kh": gather.taps[0], "kw": gather.taps[1], "k": terms(form)}
    c, kh, kw, k = (te.reduce_axis((zero, *long(size)), name) for name, size in sizes.items())

    def product(n: tirx.Var, o: tirx.Var, j: tirx.Var, p: tirx.Var, b: tirx.Var) -> tirx.Expr:
        down = kh * dilation[0]
        row = j * rows + p // gather.width + down // phases
        column = p % gather.width * strides[1] + kw * dilation[1] + k // gather.channels
        phase = [] if gather.in_place else [down % phases]
        first = o // (blocks * lanes // MOST_ROWS // anchor.groups) * gather.chunks if anchor.groups > 1 else 0
        number = image[(n, first + c, *phase, row, column, k % gather.channels)]
        return te.sum(
            multiplied(number, weight[o, c, kh, kw, k // form.depth, b, k % form.depth], form), axis=[c, kh, kw, k]
        )

    wide = te.compute(
        long(batch, blocks * lanes // MOST_ROWS, height // rows, gather.pixels(rows, width), MOST_ROWS),
        product,
        name=WIDE,
    )
    result = te.compute(
        long(*anchor.spatial),
        lambda n, o, h, w, b: wide[
            n, (o * lanes + b) // MOST_ROWS, h // rows, h % rows * gather.width + w, b % MOST_ROWS
        ],
        name="result",
    )
    return te.create_prim_func([data, weight, result])


def apply(sch: s_tir.Schedule, anchor: Anchor, config: Config) -> None:
    """Schedule ``stages`` and its epilogue in place."""
    form = anchor.form
    assert form is not None
    gather = geometry(anchor, form)
    assert gather is not None
    if anchor.epilogue:
        sch.compute_inline(sch.get_sblock("result"))
    tail = inline_epilogue(sch, anchor) if anchor.epilogue else sch.get_sblock("result")
    assert tail is not None
    rows, th, to, turns = (config.integer(name) for name in ("rows", "th", "to", "turns"))
    n, o, h, w, b = sch.get_loops(tail)
    oj, og, oi = sch.split(o, [None, turns, to])
    hj, ho, hi = sch.split(h, [None, rows // th, th])
    jobs = (n, hj, oj) if config.integer("outer") else (n, oj, hj)
    sch.reorder(*jobs, og, ho, oi, hi, w, b)
    _, b = sch.split(b, [None, MOST_ROWS])
    spread(sch, (b,))
    job = sch.fuse(*jobs)
    sch.parallel(job)
    wide = sch.get_sblock(WIDE)
    sch.compute_at(wide, ho, preserve_unit_loops=True)
    if not gather.in_place:
        gathered = sch.get_sblock(GATHERED)
        sch.compute_at(gathered, job, preserve_unit_loops=True)
        together = math.gcd(gather.channels, anchor.shapes[anchor.data][-1])
        spread(sch, sch.split(sch.get_loops(gathered)[-1], [None, together])[1:])
    size = ROW_BYTES // terms(form)
    pixels, columns = gather.pixels(th, anchor.spatial[3]), to * anchor.spatial[4] // MOST_ROWS
    pitch, turn = gather.strides[1] * gather.channels * size, (sch.get(ho).loop_var, rows // th)
    use_amx(sch, sch.get_loops(wide)[3], job, (pixels, columns, pitch), form, turn)
