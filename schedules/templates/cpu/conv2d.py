"""Direct convolution in channel-blocked layouts, dense and grouped.

Notation (b = channels in one block, fp32 AVX-512: 16):
    data    (n, ceil(C/b), h, w, b), or plain (n, C, h, w) for the first layer
    weight  (O/b, C'/i, kh, kw, i, b): C' input channels of one group, i of them innermost
    output  (n, O/b, oh, ow, b)

Short types are multiplied by dot products (``instructions/dots.py``), whose Q numbers are input channels: weights are
(O/b, C'/(i·Q), kh, kw, i, b, Q), the innermost loops b and Q become one instruction, and all that is said here of
vectors of weights holds for them, 4 bytes a lane. Few channels are not plain then, but one block of a multiple of Q.

The rewrite (``c``: reduction over ci, kh, kw, i):

    for n, o, oh, ow, b:                     parallel for n·o/to·oh/th:
        for ci, kh, kw, i:                       pad rows (knob ``pad``)
            c += data * weight                   for ow/tw:
    epilogue                          →              for ci, kh, kw, i/u:
                                                         unroll u: unroll to, th, tw: vectorize b
                                                     epilogue on the to·th·tw tile while it is in registers

The knob ``depth`` cuts the sum over ci into chunks of ``depth`` input blocks. All tiles of a job use one chunk of the
weights, which stays in L1, before the next is read; partial sums are kept in memory between chunks. This pays where
tiles have few pixels, as on 7 × 7 maps: without chunks, such a kernel is limited by how fast L2 delivers weights.

For more than two threads, the knob ``parts`` divides the columns of each row among jobs of their own, where rows alone
make too few jobs.

A tile has to·th·tw sums, each one vector. There must be enough of them to hide the latency of a multiply-add (ports ×
cycles, at least 8), and they must fit the register file together with their operands (``tile_registers``): of 32
registers, 28 sums leave room for two vectors of weights and one broadcast number. A larger tile needs fewer loads per
multiply-add and depends less on L2. Tiles that do not fit the registers are not in the space.

Where the processor has AMX, an algorithm more (``amx_conv2d``) computes parts of ``th`` rows in its tiles; a job goes
over its rows in ``turns`` groups of ``to`` blocks, one after another.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.ir import Call

from schedules.config import Config
from schedules.space import ENUMERATION_LIMIT, Columns, Knob, Space
from schedules.target import Target
from schedules.templates.amx import amx_conv2d
from schedules.templates.amx.amx_ir import MOST_ROWS
from schedules.templates.amx.amx_product import ALGORITHM, MOST_COLUMNS, has_amx
from schedules.templates.assembly.winograd_assembly import WinogradAssembly
from schedules.templates.common.prefetch import FEWEST_TILES
from schedules.templates.common.register_tile import MOST_NUMBERS, registers_of, tile_registers
from schedules.templates.common.splice import replace_anchor
from schedules.templates.common.structure import (
    MOST_BLOCKS,
    MOST_UNROLLED,
    Anchor,
    Repack,
    blocks_in_order,
    divisors,
    divisors_of_any,
    find_anchor,
    is_choice,
    job_parts,
    nodes_below,
)
from schedules.templates.common.windows import Window, group_span, pad_spatial, touches
from schedules.templates.common.winograd_transforms import BT
from schedules.templates.cpu import winograd
from schedules.templates.cpu.conv2d_features import features, first_guesses
from schedules.templates.instructions.dots import depth_axes, form_of, multiplied
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nested_template import NestedTemplate
from schedules.templates.nests.product_nests import conv2d_nest

OP = "conv2d"

CHUNKS = 64, 384
"""Fewest and most terms of a chunk of the sum; see ``depth`` above."""

LONG = 256
"""Sums with fewer terms are not cut. From this length on, the weights of a tile of two to four vectors do not stay in
L1, or their first read from beyond L2 takes so long that prefetching the next chunk repays an extra pass over the sums.
Measured on 832 → 128 channels, 7 × 7, inside a model: from 45 to 56 % of the machine's peak."""

MOST_TILE_ROWS, MOST_JOB_ROWS = 7, 16
"""Rows of pixels in a tile and in a parallel job. Heuristic, not measured: they bound the size of the space."""


def conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    groups: int = 1,
    outputs: int = 0,
    border: int = 0,
    dealt: int = 0,
) -> te.Tensor:
    """The compute in clean axes.

    Args:
        data: (n, C/b, h, w, b), or (n, C, h, w) if the input is plain.
        weight: (O/b, C'/i, kh, kw, i, b), and Q innermost for a dot product; C' spans ``group_span`` groups.
        outputs: channels that are not padding; only groups whose channels no block divides need it.
        border: what the padding holds.
        dealt: channel k of what is convolved is channel k % D · (C / D) + k // D of ``data``, for D = ``dealt``: a
            channel shuffle that is read in place. Of several groups and blocked data only.

    Returns:
        (n, O/b, oh, ow, b).
    """
    blocks, depth, kh_size, kw_size, inner, lanes, *quad = (int(x) for x in weight.shape)
    form = form_of(str(data.dtype), str(weight.dtype), *quad)
    width = window.output_size(int(data.shape[2]), int(data.shape[3]))[1]
    if form is not None and width % form.rows:  # a column more, which is computed and left out
        window = replace(window, padding=(*window.padding[:3], window.padding[3] + window.strides[1]))
    strides, padding, dilation = window.strides, window.padding, window.dilation
    packed = math.prod(quad)  # channels that one lane of a vector of weights holds
    oh_size, ow_size = window.output_size(int(data.shape[2]), int(data.shape[3]))
    padded = pad_spatial(data, padding, border, words="uint16" if str(data.dtype) == "bfloat16" else "")
    ci = te.reduce_axis((0, depth), "ci")
    kh = te.reduce_axis((0, kh_size), "kh")
    kw = te.reduce_axis((0, kw_size), "kw")
    i = te.reduce_axis((0, inner), "i")
    within = depth_axes(form)
    plain = len(data.shape) == 4
    lane_count = 1 if plain else int(data.shape[4]) // packed
    per_group = (outputs or blocks * lanes) // groups
    span = group_span(per_group, groups, lanes)
    geometry = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    geometry |= {"outputs": per_group, "span": span} if span > 1 else {}
    geometry |= {"dealt": dealt} if dealt else {}
    if form is not None:
        geometry["dot"] = form.name

    def source(n: tirx.Var, o: tirx.Var, y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
        channel = ci * inner + i
        if groups > 1:
            first = tirx.min(o * lanes // per_group, groups - span)
            channel = channel + first * (depth * inner // span)
        if dealt:
            channel = channel % dealt * (groups * depth * inner // span // dealt) + channel // dealt
        if plain:
            return padded[n, channel, y, x]
        if groups == 1 and inner == lane_count:
            return padded[n, ci, y, x, _in_lane(i, within)]
        value = padded[n, channel // lane_count, y, x, _in_lane(channel % lane_count, within)]
        return value if within else where_touched(value, o)

    def where_touched(value: tirx.Expr, o: tirx.Var) -> tirx.Expr:
        if span == 1:
            return value
        zero = tirx.const(0, form.sum if form else data.dtype)
        return tirx.Select(touches(o, ci // (depth // span), per_group, groups, lanes), value, zero)

    def product(n: tirx.Var, o: tirx.Var, oh: tirx.Var, ow: tirx.Var, b: tirx.Var) -> tirx.Expr:
        number = source(n, o, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1])
        value = multiplied(number, weight[(o, ci, kh, kw, i, b, *within)], form)
        return where_touched(value, o) if within else value  # a dot product is known by its operands

    out = te.compute(
        (data.shape[0], blocks, oh_size, ow_size, lanes),
        lambda n, o, oh, ow, b: te.sum(product(n, o, oh, ow, b), axis=[ci, kh, kw, i, *within]),
        name="conv2d",
        attrs={"tune.anchor": OP, "tune.geometry": json.dumps(geometry)},
    )
    if ow_size == width:
        return out
    return te.compute((*out.shape[:3], width, lanes), lambda *at: out(*at), name="crop")


def _in_lane(channel: tirx.Expr, within: list[te.IterVar]) -> tirx.Expr:
    """The channel, or the first of a lane's channels and which of them."""
    return channel * within[0].dom.extent + within[0] if within else channel


def left_out(func: tirx.PrimFunc) -> int:
    """Operations of ``func`` that no config executes: multiply-adds of groups that a block does not overlap."""
    anchor = find_anchor(func, OP)
    if anchor is None or "span" not in anchor.geometry:
        return 0
    lanes, blocks = anchor.spatial[-1], anchor.spatial[1]
    per_group, groups, span = int(anchor.geometry["outputs"]), anchor.groups, int(anchor.geometry["span"])
    pairs = itertools.product(*([tirx.const(i, "int64") for i in range(extent)] for extent in (blocks, span)))
    empty = sum(not touches(o, index, per_group, groups, lanes).value for o, index in pairs)  # of numbers, a number
    return 2 * empty * (math.prod(anchor.spatial) // blocks) * (math.prod(anchor.reduction) // span)


class Conv2dTemplate(NestedTemplate):
    """Match, space and rewrite for ``conv2d``."""

    name = OP
    version = 4

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Register tiles that fit ``target``, reduction unrolling, where padding happens, the grain, the algorithm."""
        batch, blocks, height, width, lanes = anchor.spatial
        inner = anchor.reduction[3]
        per_block = registers_of(lanes, target)
        pairs = anchor.form is not None and anchor.form.rows == 2
        group_blocks = blocks // anchor.groups if blocks % anchor.groups == 0 else blocks
        most_blocks = 1 if "span" in anchor.geometry else MOST_BLOCKS
        algorithms = (0, *(m for m in (2, 4) if winograd.applies(anchor, target) and min(height, width) > m))
        tiles_h = {m: batch * -(-height // m) for m in algorithms if m}
        tiles_w = {m: -(-width // m) for m in algorithms if m}
        ragged = () if pairs else _ragged(width, target)
        amx = _amx_applies(anchor, target)
        turns = divisors(blocks) if amx else (1,)
        algorithms = (*algorithms, ALGORITHM) if amx else algorithms
        knobs = _listable(
            Knob("algorithm", algorithms),
            Knob("to", divisors(group_blocks, most_blocks)),
            Knob("th", divisors_of_any((height, *tiles_h.values()), MOST_TILE_ROWS)),
            Knob("tw", tuple(sorted({*divisors_of_any((width, *tiles_w.values()), MOST_NUMBERS), *ragged}))),
            Knob("unroll", tuple(d for d in (1, 2, 4, 8, 16) if inner % d == 0)),
            Knob("rows", divisors_of_any((height, *tiles_h.values()), MOST_JOB_ROWS)),
            Knob("pad", (0, 1) if anchor.padded else (0,)),
            Knob("outer", (0, 1)),
            Knob("depth", _chunks(anchor)),
            *((Knob("turns", turns),) if amx else ()),
            *job_parts((width, *tiles_h.values()), batch * blocks * height, target.threads),
        )
        whole = anchor.reduction[0]

        def fits(columns: Columns) -> NDArray[np.bool_]:
            m = columns["algorithm"]
            tile = columns["to"] * columns["th"] * columns["tw"]
            held = tile_registers(columns["to"] * per_block, columns["th"] * columns["tw"], target)
            allowed = (held <= target.vector_registers) & (columns["unroll"] * tile <= MOST_UNROLLED)
            fitting = (width % columns["tw"] == 0) | np.isin(columns["tw"], ragged)
            direct = (m == 0) & (height % columns["th"] == 0) & fitting
            direct &= (height % columns["rows"] == 0) & (columns["rows"] % columns["th"] == 0)
            parts = columns.get("parts", np.ones(len(m)))
            direct &= (parts == 1) | ((width % (parts * columns["tw"]) == 0) & (columns["pad"] == 0))
            if pairs:
                direct &= columns["tw"] % 2 == 0
            tiles = columns["rows"] / columns["th"] * np.ceil(width / (parts * columns["tw"]))
            placed = direct & ((columns["depth"] == whole) | (tiles >= FEWEST_TILES))
            for size in tiles_h:
                # A chunk (outer = 1) holds whole tile rows of one picture; phases have no chunk.
                chunk = (columns["outer"] == 1) & (columns["rows"] % columns["th"] == 0)
                chunk &= ((tiles_h[size] // batch) % columns["rows"] == 0) & (parts == 1)
                phases = (columns["outer"] == 0) & (columns["rows"] == 1)
                phases &= tiles_h[size] % (columns["th"] * parts) == 0
                product = (tiles_h[size] % columns["th"] == 0) & (tiles_w[size] % columns["tw"] == 0)
                product &= (columns["pad"] == 0) & (columns["depth"] == whole)
                placed = placed | ((m == size) & product & (chunk | phases))
            legal: NDArray[np.bool_] = allowed & placed
            if amx:
                own = (columns["tw"] == 1) & (columns["unroll"] == 1) & (columns["rows"] % columns["th"] == 0)
                own &= (columns["pad"] == 0) & (columns["depth"] == whole) & (height % columns["rows"] == 0)
                own &= (parts == 1) & (columns["to"] * (lanes // MOST_ROWS) <= MOST_COLUMNS)
                own &= blocks % (columns["to"] * columns["turns"]) == 0
                legal = np.where(m == ALGORITHM, own, legal & (columns["turns"] == 1))
            return legal

        space = Space(OP, self.version, knobs, fits, partial(features, anchor=anchor, target=target))
        first, saving = first_guesses(space, target.threads, batch * height * width)
        best = {config.integer("algorithm"): config for config in reversed(first)}
        seeds = tuple(config for config in first if config in best.values()) if len(best) > 1 else ()
        return replace(space, initial=first, seeds=seeds, saving=saving)

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with the convolution computed by the chosen algorithm."""
        m = config.integer("algorithm")
        if m == 0:
            return _bare(func, anchor) if anchor.form is not None and "span" in anchor.geometry else func
        border = _border(func) if anchor.padded and anchor.form is not None else 0
        if m == ALGORITHM:
            stages = amx_conv2d.stages(anchor, config.integer("th"), border)
        else:
            stages = winograd.stages(anchor, m, border)
        return replace_anchor(func, anchor.block, stages, anchor.data, anchor.weight)

    def repack(self, anchor: Anchor, config: Config) -> dict[int, Repack]:
        """Return how weights must be transformed for ``config``: parameter index → function."""
        m = config.integer("algorithm")
        if m == 0:
            return {}
        if m == ALGORITHM and anchor.form is not None:
            gather = amx_conv2d.geometry(anchor, anchor.form)
            assert gather is not None
            return {anchor.weight: Repack("amx", partial(amx_conv2d.pack, gather=gather, quad=anchor.form.depth))}
        return {anchor.weight: Repack(f"winograd-{m}", lambda packed: winograd.transform_weight(packed, m))}

    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """The loops of the direct algorithm."""
        return conv2d_nest(anchor, dict(config.items))

    def assembly(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> str:
        """Return the text for AVX-512 or AVX2; empty for AMX tiles."""
        if config.integer("algorithm") in BT:
            return WinogradAssembly(func, anchor, config, target, symbol).text()
        return "" if config.integer("algorithm") else super().assembly(func, anchor, config, target, symbol)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        if config.integer("algorithm") == ALGORITHM:
            amx_conv2d.apply(sch, anchor, config)
        elif config.integer("algorithm"):
            winograd.apply(sch, anchor, config)
        else:
            super().apply(sch, anchor, in_few_copies(config, anchor.spatial[3]), target)


def _bare(func: tirx.PrimFunc, anchor: Anchor) -> tirx.PrimFunc:
    """``func`` whose dot products read their operands without asking which groups a block overlaps.

    No instruction has the question in its pattern. ``_skip_untouched`` asks it once, around all products of a group.
    """

    def bare(block: s_tir.SBlock) -> s_tir.SBlock:
        if block.name_hint != anchor.block:
            return block
        return tvm_ffi.structural_map(block, (tirx.Select, lambda choice: choice.true_value))

    return tvm_ffi.structural_map(func, (s_tir.SBlock, bare))


def _chunks(anchor: Anchor) -> tuple[int, ...]:
    """Choices of the knob ``depth``: the whole sum, and the divisors of ci that give chunks of ``CHUNKS`` terms."""
    depth, kh, kw, inner = anchor.reduction[:4]
    if "span" in anchor.geometry or anchor.plain or (anchor.form is not None and anchor.form.rows > 1):
        return (depth,)
    terms = kh * kw * inner
    if depth * terms < LONG:
        return (depth,)
    return (*(d for d in divisors(depth) if d < depth and CHUNKS[0] <= d * terms <= CHUNKS[1]), depth)


def _listable(*knobs: Knob) -> tuple[Knob, ...]:
    """``knobs``, thinned until their product is at most ``ENUMERATION_LIMIT``.

    The knob with the most choices loses every other one first. Only narrow vectors, and heights or depths with many
    divisors, make products that large.
    """
    while math.prod(len(knob.choices) for knob in knobs) > ENUMERATION_LIMIT:
        finest = max((knob for knob in knobs if knob.name in ("rows", "unroll", "depth")), key=lambda k: len(k.choices))
        # Both ends stay: Winograd by phases needs a grain of one row, and all of a depth is always legal.
        thinner = Knob(finest.name, (finest.choices[0], *finest.choices[2:-1:2], finest.choices[-1]))
        knobs = tuple(thinner if knob is finest else knob for knob in knobs)
    return knobs


MOST_COPIES = 4
"""Most tiles in a row whose last tile is narrower: LLVM gets the loop over them unrolled, each compiled separately.
Heuristic, not measured."""
HANDY = (4, 12)
"""Narrowest and widest tile that leaves registers for several blocks of channels. Heuristic, not measured."""


def _ragged(width: int, target: Target) -> tuple[int, ...]:
    """Tile widths that do not divide ``width``, for rows where no divisor lies within ``HANDY``; else none.

    A row of 13 pixels could only be one tile of 13 or 13 tiles of 1. With 13 columns at most two blocks of channels fit
    the registers. Two tiles of 7 and 6 leave room for three blocks, tiles of 5 for four. A signal of 131 numbers has
    more tiles than the compiler gets copies of; in assembly all but the last are one loop.
    """
    least, most = HANDY
    if any(least <= d <= most for d in divisors(width)):
        return ()

    def fitting(widths: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(d for d in widths if least <= d <= min(most, width) and 2 * (width % d) >= d))

    in_copies = fitting({-(-width // copies) for copies in range(2, MOST_COPIES + 1)})
    return in_copies or (fitting(range(least, most + 1)) if target.broadcast_operands else ())


def in_few_copies(config: Config, width: int) -> Config:
    """``config`` for the compiler: whole tiles where the last of more than ``MOST_COPIES`` would be narrower."""
    tile = config.integer("tw")
    if width % tile == 0 or -(-width // tile) <= MOST_COPIES:
        return config
    whole = max(divisors(width, tile))
    return replace(config, items=tuple((name, whole if name == "tw" else value) for name, value in config.items))


def _amx_applies(anchor: Anchor, target: Target) -> bool:
    """Return whether the target has tiles for these types, and the convolution what they need."""
    form, lanes = anchor.form, anchor.spatial[4]
    if form is None or not has_amx(form, target) or lanes % MOST_ROWS or min(anchor.data, anchor.weight) < 0:
        return False
    return amx_conv2d.geometry(anchor, form) is not None


def _border(func: tirx.PrimFunc) -> int:
    """Return the content of the padding of a convolution of integers."""
    pad = next(block for block in blocks_in_order(func) if block.name_hint == "pad")
    return int(next(filter(is_choice, nodes_below(pad.body, Call))).args[2].value)
