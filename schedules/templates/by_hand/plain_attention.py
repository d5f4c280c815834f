"""Attention without a cache in one kernel, softmax(scale · q·kᵀ + mask) · v. It is scheduled by hand.

Scores exist for one block of positions and one tile of rows only: softmax is online, as in ``attention.py``. Lanes are
rows, as in ``prompt_attention.py``: keys and values are broadcast, and maxima and sums of a row need no exchange
between lanes. Queries and results are turned, 16 × 16 numbers at a time, once per job.

    for job in batch · heads · groups of tiles: parallel
      turned queries of the tiles, scaled
      for block of positions
        its keys and values are copied side by side: rows far apart in memory share few places in L1
        for tile of the job
          scores; running maximum m and sum l per row; weighted values
      the sum of the values ÷ l, turned

The last tile of a sequence begins early enough to fit, and computes some rows again. A block that the mask hides from a
whole tile is left out once each of its rows has seen something: its weights are zeros. So padding behind a sequence,
and what a causal mask hides, cost next to nothing. Where keys or values of such a block are not finite, it is computed
all the same, for 0 · NaN is NaN.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.target import Target
from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import LANES, all_of
from schedules.templates.by_hand.turning import turn
from schedules.templates.cpu.recurrent import SCHEDULED

NAME = "plain-attention"
"""Name that stands for the template of such kernels."""

LABEL = f"{NAME} "

TILE = 2 * LANES
"""Rows of a tile, which share each broadcast; the least length."""

BLOCKS = (40, 32, 24)
"""Positions of a block: the first of those that leave fewest positions of the last block unused. Keys, values, scores
and a tile of queries and of results fit in 48 KiB of L1 for heads of 64 elements."""

MOST_TILES = 8
"""Tiles of a job. Copying keys and values costs 6 % of one tile's work, and is done once per job."""

LARGEST_SIZE = 128
"""Elements of the largest query or value. With more, L1 does not hold keys and values of a block."""

TILES_BYTES = 64 * 1024
"""Bytes of the queries and results of a job, on the stack: half of the least that a thread has, with musl."""

MOST_IDLE = 1.1
"""Rounds of jobs times threads, per job, up to which jobs have as many tiles as they can. Heuristic, not measured."""

LOWEST = -3.4028234663852886e38
"""Maximum of nothing. Finite, so that a row of which every score is −∞ becomes 0 ÷ 0, as it does in ONNX Runtime."""

HIDDEN = -1e30
"""Masks below this hide: a weight under them is zero once something else was seen."""


@dataclass(frozen=True)
class PlainShape:
    """Sizes of the kernel, and where its operands lie.

    Attributes:
        length: queries, ``TILE`` or more.
        positions: keys and values.
        size, width: elements of a query or key, and of a value: multiples of ``LANES``.
        scale: of the scores.
        mask: shape of what is added to the scores, each of its first three axes 1 or full: (batch, heads, length,
            positions). No positions: nothing.
        by_head: of queries, keys, values and the result: whether they lie as (batch, heads, rows, size) instead of
            (batch, rows, heads, size).
        chosen: whether a mask that hides takes the place of the score, which may be NaN, instead of being added to it.
        zero_unseen: whether all weights of a row without a number as their sum are 0; times NaN or infinities among the
            values they are NaN.
    """

    batch: int
    heads: int
    length: int
    positions: int
    size: int
    width: int
    scale: float = 1.0
    mask: tuple[int, int, int, int] = (1, 1, 1, 0)
    by_head: tuple[bool, bool, bool, bool] = (False, False, False, False)
    chosen: bool = False
    zero_unseen: bool = False

    def tensor(self, index: int) -> tuple[int, int, int, int]:
        """The shape of queries (0), keys (1), values (2) or the result (3)."""
        rows = self.positions if index in (1, 2) else self.length
        last = self.width if index in (2, 3) else self.size
        middle = (self.heads, rows) if self.by_head[index] else (rows, self.heads)
        return self.batch, *middle, last


@dataclass(frozen=True)
class Tiling:
    """How the work is cut.

    Attributes:
        block: positions whose scores exist at a time.
        tile: rows that are computed together.
        tiles: the most of a job.
        at_once: rows of broadcasts whose sums stay in registers.
    """

    block: int = BLOCKS[1]
    tile: int = TILE
    tiles: int = 1
    at_once: int = 8


PLAINEST = Tiling()
"""The tiling of the program that stands for the kernel until a processor is known."""


def tiling_for(shape: PlainShape, target: Target) -> Tiling:
    """The tiling for a processor: sums fill half of its registers, and each thread has about as many jobs."""
    wide = target.vector_registers * target.vector_bytes >= 4 * TILE * LANES
    tile, at_once = (TILE, 8) if wide else (LANES, 4)
    # Masks of every row are turned 16 positions at a time.
    blocks = [block for block in BLOCKS if shape.mask[2] == 1 or block % LANES == 0]
    block = min(blocks, key=lambda block: _padded(shape.positions, block))
    rows = -(-shape.length // tile)

    def idle(tiles: int) -> float:
        jobs = shape.batch * shape.heads * -(-rows // tiles)
        return -(-jobs // target.threads) * target.threads / jobs

    most = max(1, min(MOST_TILES, TILES_BYTES // ((shape.size + shape.width) * tile * 4)))
    fitting = (tiles for tiles in range(most, 0, -1) if idle(tiles) <= MOST_IDLE)
    return Tiling(block, tile, min(next(fitting, 1), rows), at_once)


def waste(length: int, positions: int) -> float:
    """Multiply-adds per one that is needed, where tiles have ``TILE`` rows and nothing is masked by row."""
    rows, columns = -(-length // TILE) * TILE, min(_padded(positions, block) for block in BLOCKS)
    return rows * columns / (length * positions)


def _padded(positions: int, block: int) -> int:
    return -(-positions // block) * block


def for_target(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Return the kernel with the tiling for ``target``."""
    fields = json.loads(str(func.attrs[SCHEDULED]).removeprefix(LABEL))
    fields |= {name: tuple(fields[name]) for name in ("mask", "by_head")}
    shape = PlainShape(**fields)
    return plain_attention(shape, tiling_for(shape, target))


class _Laid(NamedTuple):
    """Queries, keys, values or the result, and whether heads come before rows in it."""

    buffer: tirx.Buffer
    by_head: bool

    @property
    def rows(self) -> int:
        return int(self.buffer.shape[2 if self.by_head else 1])

    def at(self, job: Any, row: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        """Element ``e`` of a row of the job's head."""
        return self.buffer[job.b, job.h, row, e] if self.by_head else self.buffer[job.b, row, job.h, e]


class _Job(NamedTuple):
    """Work of a job: ``count`` tiles of one head of one entry of the batch, from row ``line`` on."""

    b: tirx.Expr
    h: tirx.Expr
    line: tirx.Expr
    count: tirx.Expr

    def row(self, s: tirx.Expr, tile: int, rows: int) -> tirx.Expr:
        """The first row of tile ``s``."""
        return T.min(self.line + s * tile, rows - tile)


class _Tiles(NamedTuple):
    """Buffers of the tiles of a job: turned queries, weighted values, their sum and the largest score per row."""

    query: tirx.Buffer
    acc: tirx.Buffer
    total: tirx.Buffer
    top: tirx.Buffer


@T.inline
def _begin(tiles, q, job, scale, square, other):  # type: ignore[no-untyped-def]
    """Queries, scaled and turned; sums of nothing."""
    for s in range(job.count):
        for x in range(tiles.query.shape[2] // LANES):
            row = T.meta_var(job.row(s, tiles.query.shape[2], q.rows) + x * LANES)
            for y in range(tiles.query.shape[1] // LANES):
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        square[r, u] = scale * q.at(job, row + r, y * LANES + u)
                turn(square, other)
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        tiles.query[s, y * LANES + r, x * LANES + u] = square[r, u]
        for e in range(tiles.acc.shape[1]):
            for u in T.vectorized(tiles.acc.shape[2]):
                tiles.acc[s, e, u] = T.float32(0)
        for u in T.vectorized(tiles.acc.shape[2]):
            tiles.total[s, u] = T.float32(0)
            tiles.top[s, u] = T.float32(LOWEST)


@T.inline
def _load(to, odd, nothing, of, job, first, count):  # type: ignore[no-untyped-def]
    """Copy ``count`` keys or values from position ``first`` on, zeros behind them.

    ``odd`` becomes NaN if some are not finite. ``nothing[0]`` is 0, which TVM must not know: it takes 0 · x for 0.
    """
    for c in range(count):
        for e in T.vectorized(to.shape[1]):
            to[c, e] = of.at(job, first + c, e)
        for w in T.unroll(to.shape[1] // LANES):
            for u in T.vectorized(LANES):
                odd[u] = odd[u] + nothing[0] * to[c, w * LANES + u]
    for c in range(to.shape[0] - count):
        for e in T.vectorized(to.shape[1]):
            to[count + c, e] = T.float32(0)


@T.inline
def _note_odd(vain, values, nothing, count):  # type: ignore[no-untyped-def]
    """Zeros times the values of a block are added to ``vain``."""
    for c in range(count):
        for e in T.vectorized(vain.shape[0]):
            vain[e] = vain[e] + nothing[0] * values[c, e]


@T.inline
def _load_mask(cover, square, other, mask, job, row, first):  # type: ignore[no-untyped-def]
    """Turn what is added to the scores of a block, where rows differ: rows from ``row`` on."""
    for x in range(cover.shape[1] // LANES):
        for y in range(cover.shape[0] // LANES):
            if first + y * LANES + LANES <= mask.shape[3]:
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        square[r, u] = mask[
                            T.min(job.b, mask.shape[0] - 1),
                            T.min(job.h, mask.shape[1] - 1),
                            row + x * LANES + r,
                            first + y * LANES + u,
                        ]
                turn(square, other)
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        cover[y * LANES + r, x * LANES + u] = square[r, u]
            else:
                for c in range(mask.shape[3] - first - y * LANES):
                    for u in range(LANES):
                        cover[y * LANES + c, x * LANES + u] = mask[
                            T.min(job.b, mask.shape[0] - 1),
                            T.min(job.h, mask.shape[1] - 1),
                            row + x * LANES + u,
                            first + y * LANES + c,
                        ]


@T.inline
def _spread_mask(cover, mask, job, first, count):  # type: ignore[no-untyped-def]
    """Spread what is added to the scores of a block, where all rows have the same."""
    for c in range(count):
        for u in T.vectorized(cover.shape[1]):
            cover[c, u] = mask[T.min(job.b, mask.shape[0] - 1), T.min(job.h, mask.shape[1] - 1), 0, first + c]


@T.inline
def _find_hidden(hidden, seen, odd, cover, top, s, count):  # type: ignore[no-untyped-def]
    """``hidden[0]``: 1 if no score of the block can count: all hidden, and each row has seen something before."""
    for u in T.vectorized(cover.shape[1]):
        seen[u] = T.Select(top[s, u] > T.float32(HIDDEN), T.float32(0), T.float32(1))
    for c in range(count):
        for u in T.vectorized(cover.shape[1]):
            seen[u] = T.Select(cover[c, u] <= T.float32(HIDDEN), seen[u], T.float32(1))
    for x in T.unroll(cover.shape[1] // LANES - 1):
        for u in T.vectorized(LANES):
            seen[u] = seen[u] + seen[(x + 1) * LANES + u]
    for u in T.vectorized(LANES):
        seen[u] = seen[u] + odd[u]
    for u in T.vectorized(8):
        seen[u] = seen[u] + seen[8 + u]
    for u in T.vectorized(4):
        seen[u] = seen[u] + seen[4 + u]
    # An equality, which is false of NaN; TVM's inequality of floats is as well.
    hidden[0] = T.Select(seen[0] + seen[1] + (seen[2] + seen[3]) == T.float32(0), 1, 0)


@T.inline
def _score(score, part, cover, query, keys, s, shape):  # type: ignore[no-untyped-def]
    """Scores of a block, ``part.shape[0]`` positions at a time."""
    for g in range(score.shape[0] // part.shape[0]):
        for c in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                part[c, u] = T.float32(0)
        for e in range(query.shape[1]):
            for c in T.unroll(part.shape[0]):
                for u in T.vectorized(part.shape[1]):
                    part[c, u] = part[c, u] + query[s, e, u] * keys[g * part.shape[0] + c, e]
        for c in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                if shape.chosen:
                    score[g * part.shape[0] + c, u] = T.Select(
                        cover[g * part.shape[0] + c, u] <= T.float32(HIDDEN),
                        cover[g * part.shape[0] + c, u],
                        part[c, u],
                    )
                elif shape.mask[3] > 0:
                    score[g * part.shape[0] + c, u] = part[c, u] + cover[g * part.shape[0] + c, u]
                else:
                    score[g * part.shape[0] + c, u] = part[c, u]


@T.inline
def _soften(score, total, top, scaled, s, count):  # type: ignore[no-untyped-def]
    """Scores become weights under the new maximum; ``scaled``: that, and the factor of what was summed so far."""
    for c in range(score.shape[0] - count):
        for u in T.vectorized(score.shape[1]):
            score[count + c, u] = T.float32(-math.inf)
    for u in T.vectorized(score.shape[1]):
        scaled[0, u] = top[s, u]
    for c in range(score.shape[0]):
        for u in T.vectorized(score.shape[1]):
            scaled[0, u] = T.max(scaled[0, u], score[c, u])
    for u in T.vectorized(score.shape[1]):
        scaled[1, u] = T.exp(top[s, u] - scaled[0, u])
    for u in T.vectorized(score.shape[1]):
        top[s, u] = scaled[0, u]
        total[s, u] = total[s, u] * scaled[1, u]
    for c in range(score.shape[0]):
        for u in T.vectorized(score.shape[1]):
            score[c, u] = T.exp(score[c, u] - scaled[0, u])
    for c in range(score.shape[0]):
        for u in T.vectorized(score.shape[1]):
            total[s, u] = total[s, u] + score[c, u]


@T.inline
def _weigh(acc, part, weight, values, scaled, s):  # type: ignore[no-untyped-def]
    """The block's weighted values are added to the sums, ``part.shape[0]`` elements of a head at a time."""
    for g in range(acc.shape[1] // part.shape[0]):
        for e in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                part[e, u] = acc[s, g * part.shape[0] + e, u] * scaled[1, u]
        for c in range(weight.shape[0]):
            for e in T.unroll(part.shape[0]):
                for u in T.vectorized(part.shape[1]):
                    part[e, u] = part[e, u] + weight[c, u] * values[c, g * part.shape[0] + e]
        for e in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                acc[s, g * part.shape[0] + e, u] = part[e, u]


@T.inline
def _finish(out, tiles, job, vain, square, other):  # type: ignore[no-untyped-def]
    """The results, turned; ``vain``, if it has any, where a sum is no number."""
    for s in range(job.count):
        for x in range(tiles.acc.shape[2] // LANES):
            row = T.meta_var(job.row(s, tiles.acc.shape[2], out.rows) + x * LANES)
            for y in range(tiles.acc.shape[1] // LANES):
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        total = T.meta_var(tiles.total[s, x * LANES + u])
                        weighted = T.meta_var(tiles.acc[s, y * LANES + r, x * LANES + u])
                        if vain.shape[0] > 1:
                            square[r, u] = T.Select(total > T.float32(0), weighted / total, vain[y * LANES + r])
                        else:
                            square[r, u] = weighted / total
                turn(square, other)
                for r in T.unroll(LANES):
                    for u in T.vectorized(LANES):
                        # Others are of a tile before the last one, which begins early: its job may round otherwise.
                        if row + r >= job.line + s * tiles.acc.shape[2]:
                            if out.by_head:
                                out.buffer[job.b, job.h, row + r, y * LANES + u] = square[r, u]
                            else:
                                out.buffer[job.b, row + r, job.h, y * LANES + u] = square[r, u]


@lru_cache(maxsize=64)  # TVM's script takes about a second for each, and the layers of a model have one shape
def plain_attention(shape: PlainShape, tiling: Tiling = PLAINEST) -> tirx.PrimFunc:
    """The kernel: q, k, v, mask → out, of the shapes that ``shape.tensor`` has."""
    batch, heads, length, positions = shape.batch, shape.heads, shape.length, shape.positions
    size, width, scale, by_head = shape.size, shape.width, shape.scale, shape.by_head
    block, tile, at_once = tiling.block, tiling.tile, tiling.at_once
    tiles = -(-length // tile)
    most = min(tiling.tiles, tiles)
    groups, masked, by_row = -(-tiles // most), shape.mask[3] > 0, shape.mask[2] > 1
    zero_unseen, mask_shape = shape.zero_unseen, (*shape.mask[:3], max(1, shape.mask[3]))
    q_shape, k_shape, v_shape, out_shape = (shape.tensor(index) for index in range(4))

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        q: T.Buffer(q_shape, "float32"),  # type: ignore[valid-type]
        k: T.Buffer(k_shape, "float32"),  # type: ignore[valid-type]
        v: T.Buffer(v_shape, "float32"),  # type: ignore[valid-type]
        mask: T.Buffer(mask_shape, "float32"),  # type: ignore[valid-type]
        out: T.Buffer(out_shape, "float32"),  # type: ignore[valid-type]
    ):
        for number in T.parallel(batch * heads * groups):
            with T.sblock("attend"):
                T.reads(all_of(q), all_of(k), all_of(v), all_of(mask))
                T.writes(all_of(out))
                query = T.alloc_buffer((most, size, tile), "float32", scope="local")
                keys = T.alloc_buffer((block, size), "float32", scope="local")
                values = T.alloc_buffer((block, width), "float32", scope="local")
                cover = T.alloc_buffer((block if masked else 1, tile), "float32", scope="local")
                score = T.alloc_buffer((block, tile), "float32", scope="local")
                part = T.alloc_buffer((at_once, tile), "float32", scope="local")
                acc = T.alloc_buffer((most, width, tile), "float32", scope="local")
                total = T.alloc_buffer((most, tile), "float32", scope="local")
                top = T.alloc_buffer((most, tile), "float32", scope="local")
                scaled = T.alloc_buffer((2, tile), "float32", scope="local")
                hidden = T.alloc_buffer((1,), "int32", scope="local")
                seen = T.alloc_buffer((tile,), "float32", scope="local")
                odd = T.alloc_buffer((LANES,), "float32", scope="local")
                nothing = T.alloc_buffer((1,), "float32", scope="local")
                vain = T.alloc_buffer((width if zero_unseen else 1,), "float32", scope="local")
                square = T.alloc_buffer((LANES, LANES), "float32", scope="local")
                other = T.alloc_buffer((LANES, LANES), "float32", scope="local")
                sums = T.meta_var(_Tiles(query, acc, total, top))
                job = T.meta_var(
                    _Job(
                        number // (heads * groups),
                        number // groups % heads,
                        number % groups * (most * tile),
                        T.min(most, tiles - number % groups * most),
                    )
                )
                nothing[0] = T.float32(0)
                for e in T.vectorized(vain.shape[0]):
                    vain[e] = T.float32(0)
                _begin(sums, _Laid(q, by_head[0]), job, scale, square, other)
                for n in range((positions + block - 1) // block):
                    first = T.meta_var(n * block)
                    used = T.meta_var(T.min(block, positions - first))
                    for u in T.vectorized(LANES):
                        odd[u] = T.float32(0)
                    _load(keys, odd, nothing, _Laid(k, by_head[1]), job, first, used)
                    _load(values, odd, nothing, _Laid(v, by_head[2]), job, first, used)
                    if zero_unseen:
                        _note_odd(vain, values, nothing, used)
                    if masked and not by_row:
                        _spread_mask(cover, mask, job, first, used)
                    for s in range(job.count):
                        if by_row:
                            _load_mask(cover, square, other, mask, job, job.row(s, tile, length), first)
                        if masked:
                            _find_hidden(hidden, seen, odd, cover, top, s, used)
                        else:
                            hidden[0] = 0
                        if hidden[0] == 0:
                            _score(score, part, cover, query, keys, s, shape)
                            _soften(score, total, top, scaled, s, used)
                            _weigh(acc, part, score, values, scaled, s)
                _finish(_Laid(out, by_head[3]), sums, job, vain, square, other)

    label = LABEL + json.dumps(asdict(shape), sort_keys=True)
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)
