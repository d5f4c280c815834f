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

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.target import Target
from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import LANES, all_of
from schedules.templates.by_hand.recurrent_steps import SCHEDULED
from schedules.templates.by_hand.row_tiles import Job, Laid, Tiles, begin, finish, multiply, soften, weigh
from schedules.templates.by_hand.turning import turn

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
"""Elements of the largest query or value that was measured: 512 positions take 0.91 of the time of three kernels."""

TILES_BYTES = 64 * 1024
"""Bytes of the queries and results of a job, on the stack: half of the least that a thread has, with musl."""

MOST_IDLE = 1.1
"""Rounds of jobs times threads, per job, up to which jobs have as many tiles as they can. Heuristic, not measured."""

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


@scripted.inline
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


@scripted.inline
def _note_odd(vain, values, nothing, count):  # type: ignore[no-untyped-def]
    """Zeros times the values of a block are added to ``vain``."""
    for c in range(count):
        for e in T.vectorized(vain.shape[0]):
            vain[e] = vain[e] + nothing[0] * values[c, e]


@scripted.inline
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


@scripted.inline
def _spread_mask(cover, mask, job, first, count):  # type: ignore[no-untyped-def]
    """Spread what is added to the scores of a block, where all rows have the same."""
    for c in range(count):
        for u in T.vectorized(cover.shape[1]):
            cover[c, u] = mask[T.min(job.b, mask.shape[0] - 1), T.min(job.h, mask.shape[1] - 1), 0, first + c]


@scripted.inline
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


@scripted.inline
def _score(score, part, cover, query, keys, s, shape):  # type: ignore[no-untyped-def]
    """Scores of a block, ``part.shape[0]`` positions at a time, under what hides them."""
    for g in range(score.shape[0] // part.shape[0]):
        multiply(part, query, keys, s, g)
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


@scripted.inline
def _end(score, count):  # type: ignore[no-untyped-def]
    """There are no scores behind the ``count`` positions of a block."""
    for c in range(score.shape[0] - count):
        for u in T.vectorized(score.shape[1]):
            score[count + c, u] = T.float32(-math.inf)


@lru_cache(maxsize=64)  # TVM's script takes 0.3 s for each, and the layers of a model have one shape
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
                sums = T.meta_var(Tiles(query, acc, total, top))
                job = T.meta_var(
                    Job(
                        number // (heads * groups),
                        number // groups % heads,
                        number % groups * (most * tile),
                        T.min(most, tiles - number % groups * most),
                    )
                )
                nothing[0] = T.float32(0)
                for e in T.vectorized(vain.shape[0]):
                    vain[e] = T.float32(0)
                begin(sums, Laid(q, by_head[0]), job, scale, square, other)
                for n in range((positions + block - 1) // block):
                    first = T.meta_var(n * block)
                    used = T.meta_var(T.min(block, positions - first))
                    for u in T.vectorized(LANES):
                        odd[u] = T.float32(0)
                    _load(keys, odd, nothing, Laid(k, by_head[1]), job, first, used)
                    _load(values, odd, nothing, Laid(v, by_head[2]), job, first, used)
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
                            _end(score, used)
                            soften(score, total, top, scaled, s)
                            weigh(acc, part, score, values, scaled, s)
                finish(Laid(out, by_head[3]), sums, job, vain, square, other)

    label = LABEL + json.dumps(asdict(shape), sort_keys=True)
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)
