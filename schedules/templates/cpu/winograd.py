"""Winograd convolution F(m×m, 3×3) in channel-blocked layout (Lavin and Gray, CVPR 2016).

Notation: m output rows of a tile, a = m + 2 input rows, ty·tx tiles, b channels of one block.
    V[x, y] = (Bᵀ d B)[x, y]                input tile d (a, a)
    M[x, y] = Σ_c U[x, y] · V[x, y]         a·a matrix products, the anchor
    out     = Aᵀ M A
U = G g Gᵀ depends on the filter g only and is computed once, when the model is built.

For m·m outputs, F(4,3) needs 36 multiplications instead of the direct method's 144, and F(2,3) 16 instead of 36. The
price is accuracy: the transforms of F(4,3) have entries up to 8, and its float32 error is about ten times that of the
direct method (measured: 4e-5 for outputs of unit variance). Every candidate and every artifact is compared with a
reference, so a result outside the tolerance is rejected.

Bytes are converted to float32 first, and sums rounded to integers, where the processor multiplies bytes no faster than
floats: a sum may be some units off, of the hundreds or thousands that are one level of the byte it is scaled to.

The knob ``outer`` chooses how the stages run:
    0: input transform, products and output transform in turn, each in parallel: weights are read once
    1: all three for one chunk of tile rows, chunks in parallel: V and M stay in the cache; for large images
For more than two threads, the knob ``parts`` divides the rows of tiles of each product among jobs of their own, and
each row of tiles of both transforms, as far as ``parts`` divides it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV

from schedules.config import Config
from schedules.target import Target
from schedules.templates.common.prefetch import Panel, prefetch_next
from schedules.templates.common.register_tile import spread, tile_order, unroll_tile
from schedules.templates.common.splice import long
from schedules.templates.common.structure import Anchor, inline_epilogue, parallel_outer
from schedules.templates.common.winograd_transforms import AT, BT, G, straight
from schedules.templates.instructions.dots import DotForm, is_slow

INPUT, OUTPUT = "input_transform", "output_transform"
"""Names of the blocks of the transforms."""


def applies(anchor: Anchor, target: Target) -> bool:
    """3×3, stride 1, whole vectors of input channels, groups that no block straddles; of bytes, where a dot product of
    theirs takes as long as so many multiply-adds of float32.
    """
    geometry = anchor.geometry
    steps = [*geometry.get("strides", ()), *geometry.get("dilation", ())]
    inputs = anchor.reduction[3] * (1 if anchor.form is None else anchor.form.depth)
    return (
        (anchor.form is None or is_slow(anchor.form, anchor.spatial[4], target))
        and "dealt" not in geometry
        and all(step == 1 for step in steps)
        and anchor.reduction[1:3] == (3, 3)
        and not anchor.plain
        and anchor.spatial[1] % anchor.groups == 0
        and anchor.shapes[anchor.data][1] == anchor.groups * anchor.reduction[0]
        and inputs == anchor.spatial[4] == anchor.shapes[anchor.data][4]
        and anchor.weight >= 0
    )


def transform_weight(packed: NDArray[Any], m: int) -> NDArray[Any]:
    """Filters (O/b, C/i, 3, 3, i, b) → U (a, a, O/b, C/i, i, b) of float32, computed in double precision.

    Filters of bytes are (O/b, C/(i·Q), 3, 3, i, b, Q), and i is i·Q in U.
    """
    g = np.asarray(G[m])
    if packed.ndim == 7:
        packed = np.concatenate(list(np.moveaxis(packed, 4, 0).swapaxes(-1, -2)), axis=-2)
    blocks, depth, _, _, inner, lanes = packed.shape
    taps = packed.transpose(2, 3, 0, 1, 4, 5).reshape(9, -1).astype(np.float64)
    u = np.kron(g, g) @ taps  # row x·a + y of the Kronecker product is g[x] ⊗ g[y]
    return u.astype(np.float32).reshape(m + 2, m + 2, blocks, depth, inner, lanes)


def stages(anchor: Anchor, m: int, border: int = 0) -> tirx.PrimFunc:
    """The convolution of ``anchor`` as a function (data, U, result).

    Args:
        border: what the padding holds.
    """
    form = anchor.form
    batch, blocks, height, width, lanes = anchor.spatial
    depth = anchor.reduction[0]  # input blocks of one group
    inputs = depth * anchor.groups
    top, left = anchor.padding[:2]
    a = m + 2
    rows, columns = -(-height // m), -(-width // m)
    data = te.placeholder(long(*anchor.shapes[anchor.data]), form.data if form else "float32", name="data")
    u = te.placeholder(long(a, a, blocks, depth, lanes, lanes), name="weight")
    in_h, in_w = int(data.shape[2]), int(data.shape[3])

    def padded(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, i: tirx.Var) -> tirx.Expr:
        inside = tirx.all(h >= top, h < in_h + top, w >= left, w < in_w + left)
        number = data[n, c, h - top, w - left, i]
        return tirx.if_then_else(
            inside, number.astype("float32") if form else number, tirx.const(float(border), "float32")
        )

    pad = te.compute(long(batch, inputs, rows * m + 2, columns * m + 2, lanes), padded, name="pad")
    tiles = long(batch * rows, columns)
    v = te.compute(
        [*long(inputs, a, a), *tiles, *long(lanes)],
        lambda c, x, y, ty, tx, i: pad[ty // rows, c, ty % rows * m + x, tx * m + y, i],
        name=INPUT,
    )
    zero = tirx.IntImm("int64", 0)
    ci = te.reduce_axis((zero, *long(depth)), "ci")
    i = te.reduce_axis((zero, *long(lanes)), "i")
    product = te.compute(
        long(blocks, a, a, batch * rows, columns, lanes),
        lambda o, x, y, ty, tx, b: te.sum(
            v[ci + o // (blocks // anchor.groups) * depth, x, y, ty, tx, i] * u[x, y, o, ci, i, b], axis=[ci, i]
        ),
        name="product",
    )
    tile = te.compute(
        [*tiles, *long(blocks, m, m, lanes)], lambda ty, tx, o, p, q, b: product[o, p, q, ty, tx, b], name=OUTPUT
    )
    result = te.compute(
        long(*anchor.spatial),
        lambda n, o, h, w, b: _summed(tile[n * rows + h // m, w // m, o, h % m, w % m, b], form),
        name="result",
    )
    func = te.create_prim_func([data, u, result])  # with the places of both transforms, which are written now

    def in_image(axes: Sequence[tirx.Expr], x: tirx.Expr, y: tirx.Expr) -> list[tirx.Expr]:
        c, ty, tx = axes
        image, line = (zero, ty) if batch == 1 else (ty // rows, ty % rows)
        return [image, c, line * m + x, tx * m + y]

    def in_products(axes: Sequence[tirx.Expr], x: tirx.Expr, y: tirx.Expr) -> list[tirx.Expr]:
        c, ty, tx = axes
        return [c, x, y, ty, tx]

    def in_result(axes: Sequence[tirx.Expr], x: tirx.Expr, y: tirx.Expr) -> list[tirx.Expr]:
        o, ty, tx = axes
        return [ty, tx, o, x, y]

    sizes = batch * rows, columns
    func = straight(func, INPUT, BT[m], (inputs, *sizes), in_image, in_products)
    return straight(func, OUTPUT, AT[m], (blocks, *sizes), in_products, in_result)


def _summed(number: tirx.Expr, form: DotForm | None) -> tirx.Expr:
    """A sum in the type of the form's sums."""
    return tirx.nearbyint(number).astype(form.sum) if form else number


def parts_of(config: Config, across: int) -> tuple[int, int]:
    """(parts of the rows of tiles of a product, parts of a row of ``across`` tiles of a transform), as phases."""
    parts = config.integer("parts") if "parts" in dict(config.items) else 1
    return parts, math.gcd(parts, across)


def apply(sch: s_tir.Schedule, anchor: Anchor, config: Config) -> None:
    """Schedule ``stages`` and its epilogue in place."""
    m = config.integer("algorithm")
    if anchor.epilogue:
        sch.compute_inline(sch.get_sblock("result"))
        tail = inline_epilogue(sch, anchor)
        assert tail is not None
    else:
        tail = sch.get_sblock("result")
    parts, pieces = parts_of(config, -(-anchor.spatial[3] // m))
    n, o, h, w, b = sch.get_loops(tail)
    hy, p = sch.split(h, [None, m])
    wx, q = sch.split(w, [None, m])
    if config.integer("outer"):
        chunk, hi = sch.split(hy, [None, config.integer("rows")])
        sch.reorder(n, chunk, o, hi, wx, p, q, b)
        outer = sch.fuse(n, chunk)
    else:
        sch.reorder(n, o, hy, wx, p, q, b)
        outer = sch.fuse(n, o, hy)
        if pieces > 1:
            piece, wx = sch.split(wx, [pieces, None])
            outer = sch.fuse(outer, piece)
    sch.parallel(outer)
    sch.compute_at(sch.get_sblock(OUTPUT), wx, preserve_unit_loops=True)
    unroll_tile(sch, tail, 3)
    fused_chunk = outer if config.integer("outer") else None
    loops_of_product = _schedule_product(sch, config, fused_chunk, parts)
    _schedule_input(sch, fused_chunk, pieces)
    pad = sch.get_sblock("pad")
    parallel_outer(sch, pad, 3)
    sch.vectorize(sch.get_loops(pad)[-1])
    _prefetch(sch, anchor, config, loops_of_product, parts)


def _schedule_product(sch: s_tir.Schedule, config: Config, chunk: Any, parts: int) -> tuple[LoopRV, ...]:
    """Schedule the matrix products.

    Returns:
        The loops over panels of U (fused into one if they are parallel jobs), then over tiles, then over the sum.
    """
    product = sch.get_sblock("product")
    if chunk is not None:
        sch.compute_at(product, chunk, preserve_unit_loops=True)
    o, x, y, ty, tx, b, ci, i = sch.get_loops(product)[-8:]
    oo, oi = sch.split(o, [None, config.integer("to")])
    yo, yi = sch.split(ty, [None, config.integer("th")])
    xo, xi = sch.split(tx, [None, config.integer("tw")])
    io, ii = sch.split(i, [None, config.integer("unroll")])
    pixels = config.integer("th") * config.integer("tw")
    sch.reorder(x, y, oo, yo, xo, ci, io, ii, *tile_order((oi, config.integer("to")), (yi, xi), pixels), b)
    panels: tuple[LoopRV, ...] = (x, y, oo)
    if chunk is None:
        part, yo = sch.split(yo, [parts, None]) if parts > 1 else (None, yo)
        panels = (sch.fuse(x, y, oo, *([] if part is None else [part])),)
        sch.parallel(panels[0])
    sums = sch.cache_write(product, 0, "global")
    sch.reverse_compute_at(sums, xo, preserve_unit_loops=True)
    unroll_tile(sch, sums, 4)
    spread(sch, (ii, oi, yi, xi, b))
    unroll_tile(sch, sch.decompose_reduction(product, ci), 4)
    return (*panels, yo, xo, ci, io)


def _prefetch(sch: s_tir.Schedule, anchor: Anchor, config: Config, loops: tuple[LoopRV, ...], parts: int) -> None:
    """Prefetch the next panel of U while the tiles of the current one are computed."""
    *panels, yo, xo, ci, io = loops
    panel: tirx.Expr = tirx.const(0, "int64")
    for loop in panels:
        panel = panel * sch.get(loop).extent + sch.get(loop).loop_var
    down, across = sch.get(yo), sch.get(xo)
    vectors = config.integer("to") * anchor.reduction[0] * anchor.reduction[3]
    tile, tiles = down.loop_var * across.extent + across.loop_var, int(down.extent) * int(across.extent)
    if parts > 1:
        tile, tiles, panel = panel % parts * tiles + tile, parts * tiles, panel // parts
    prefetch_next(sch, anchor.weight, anchor.spatial[4], [ci, io], Panel(vectors, [(panel + 1) * vectors], tile, tiles))


def _schedule_input(sch: s_tir.Schedule, chunk: Any, pieces: int) -> None:
    transform = sch.get_sblock(INPUT)
    if chunk is not None:
        sch.compute_at(transform, chunk, preserve_unit_loops=True)
    else:
        c, ty, tx, *_ = sch.get_loops(transform)
        more = [sch.split(tx, [pieces, None])[0]] if pieces > 1 else []
        sch.parallel(sch.fuse(c, ty, *more))
