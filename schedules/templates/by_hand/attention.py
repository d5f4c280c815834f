"""Attention over a cache of keys and values that the kernel appends to, in one kernel. It is scheduled by hand.

A *row* is one query of one head. Query heads of a group share keys and values, so the rows of a group (heads of the
group × new positions) are computed together, a tile of some rows at a time. Softmax is online (M. Milakov and
N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022, algorithm 1):
scores exist for one block of positions only. Where there are fewer tiles than threads, the positions of the cache are
dealt to several tasks, whose sums are joined at the end (T. Dao et al., "Flash-Decoding", 2023).

    for task in batch · groups · tiles · splits: parallel
      the first task of a group appends its new keys and values to the cache
      for block of 32 positions: of the cache below ``starts``, then of the new ones
        keys turned, so that lanes are positions; scores; running maximum m, sum l per lane, weighted values
      the sum of the values ÷ l

Only positions below ``starts`` are read, so a call costs what the cache holds, not what it could hold, and memory
behind is never looked at. The cache is an input that is written to: nothing else of a program may read it.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import json
from dataclasses import asdict, dataclass

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates.cpu.recurrent import SCHEDULED

LANES = 16
BLOCK = 32
"""Positions whose scores exist at a time: two vectors per row."""

ACCUMULATORS = 28
"""Vectors of sums that stay in registers beside operands, of 32."""

LEAST = -3.0e38
"""Score of what is hidden. Finite, so that differences of scores are numbers."""

LABEL = "attention "


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of the kernel, and what it hides.

    Attributes:
        heads, groups: of queries, and of keys and values.
        length: new positions.
        size: elements of a head, a multiple of ``LANES``.
        capacity: positions that the cache can hold.
        mask: shape of the mask, each of its first three axes 1 or full: (batch, heads, length, positions). Column j is
            position j of the cache; the new ones begin at column ``new_at``. No positions: a query sees what is before
            it, and itself.
        new_at: −1 for ``starts`` of the row's batch.
        scale: of the scores.
        window: positions that a query sees, its own included; 0 for all. Without a mask only.
        softcap: c of scores c · tanh(score / c); 0 for none.
    """

    batch: int
    heads: int
    groups: int
    length: int
    size: int
    capacity: int
    mask: tuple[int, int, int, int] = (1, 1, 1, 0)
    new_at: int = -1
    scale: float = 1.0
    window: int = 0
    softcap: float = 0.0

    @property
    def rows(self) -> int:
        """Of one group."""
        return self.heads // self.groups * self.length

    @property
    def tile(self) -> int:
        """Rows that are computed together: as many as keep their sums in registers, and divide the rows."""
        most = max(1, min(ACCUMULATORS * LANES // self.size, ACCUMULATORS * LANES // BLOCK))
        return next(tile for tile in range(min(most, self.rows), 0, -1) if self.rows % tile == 0)


def for_threads(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """The same kernel with as many tasks as ``threads``, or more."""
    fields = json.loads(str(func.attrs[SCHEDULED]).removeprefix(LABEL))
    shape = AttentionShape(**{**fields, "mask": tuple(fields["mask"])})
    tasks = shape.batch * shape.groups * (shape.rows // shape.tile)
    return cached_attention(shape, -(-threads // tasks))


def cached_attention(shape: AttentionShape, splits: int = 1) -> tirx.PrimFunc:
    """The kernel: q (batch, heads, length, size), keys and values that are new (batch, groups, length, size), the
    cache of both (batch, groups, capacity, size), starts (batch,) int32, mask → out (batch, heads, length, size).

    New key i of row b of the batch becomes position starts[b] + i of the cache; what lies beyond the capacity is
    dropped.

    Args:
        splits: tasks that share the positions of one tile.
    """
    batch, heads, groups, length = shape.batch, shape.heads, shape.groups, shape.length
    size, capacity, rows, tile = shape.size, shape.capacity, shape.rows, shape.tile
    per, vectors, tiles = heads // groups, size // LANES, rows // tile
    masked = shape.mask[3] > 0
    mask_shape = (*shape.mask[:3], max(1, shape.mask[3]))
    of_batch, of_heads, of_rows = (int(extent > 1) for extent in shape.mask[:3])
    columns, new_at, scale, window = mask_shape[3], shape.new_at, shape.scale, shape.window
    softcap = shape.softcap
    halves = BLOCK // LANES
    tasks = batch * groups * tiles

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        q: T.Buffer((batch, heads, length, size), "float32"),  # type: ignore[valid-type]
        new_k: T.Buffer((batch, groups, length, size), "float32"),  # type: ignore[valid-type]
        new_v: T.Buffer((batch, groups, length, size), "float32"),  # type: ignore[valid-type]
        k: T.Buffer((batch, groups, capacity, size), "float32"),  # type: ignore[valid-type]
        v: T.Buffer((batch, groups, capacity, size), "float32"),  # type: ignore[valid-type]
        starts: T.Buffer((batch,), "int32"),  # type: ignore[valid-type]
        mask: T.Buffer(mask_shape, "float32"),  # type: ignore[valid-type]
        out: T.Buffer((batch, heads, length, size), "float32"),  # type: ignore[valid-type]
    ):
        sums = T.alloc_buffer((tasks, splits, tile, size), "float32")
        tops = T.alloc_buffer((tasks, splits, tile, 2), "float32")
        for job in T.parallel(tasks * splits):
            with T.sblock("attend"):
                T.reads(
                    q[0:batch, 0:heads, 0:length, 0:size],
                    new_k[0:batch, 0:groups, 0:length, 0:size],
                    new_v[0:batch, 0:groups, 0:length, 0:size],
                    k[0:batch, 0:groups, 0:capacity, 0:size],
                    v[0:batch, 0:groups, 0:capacity, 0:size],
                    starts[0:batch],
                    mask[0 : mask_shape[0], 0 : mask_shape[1], 0 : mask_shape[2], 0:columns],
                )
                T.writes(
                    sums[job // splits, job % splits, 0:tile, 0:size],
                    tops[job // splits, job % splits, 0:tile, 0:2],
                    out[0:batch, 0:heads, 0:length, 0:size],
                )
                query = T.alloc_buffer((tile, size), "float32", scope="local")
                turned = T.alloc_buffer((size, BLOCK), "float32", scope="local")
                values = T.alloc_buffer((BLOCK, vectors, LANES), "float32", scope="local")
                hidden = T.alloc_buffer((tile, BLOCK), "float32", scope="local")
                score = T.alloc_buffer((tile, halves, LANES), "float32", scope="local")
                weight = T.alloc_buffer((tile, BLOCK), "float32", scope="local")
                acc = T.alloc_buffer((tile, vectors, LANES), "float32", scope="local")
                total = T.alloc_buffer((tile, LANES), "float32", scope="local")
                top = T.alloc_buffer((tile,), "float32", scope="local")
                fold = T.alloc_buffer((LANES,), "float32", scope="local")
                factor = T.alloc_buffer((2,), "float32", scope="local")
                split = T.meta_var(job % splits)
                part = T.meta_var(job // splits % tiles)
                g = T.meta_var(job // splits // tiles % groups)
                b = T.meta_var(job // splits // tiles // groups)
                begin = T.meta_var(T.min(T.max(starts[b], 0), capacity))
                share = T.meta_var((begin + (splits * BLOCK - 1)) // (splits * BLOCK) * BLOCK)
                low = T.meta_var(T.min(split * share, begin))
                high = T.meta_var(T.min(split * share + share, begin))
                kept = T.meta_var((high - low + BLOCK - 1) // BLOCK)
                fresh = T.meta_var(T.if_then_else(split == splits - 1, (length + BLOCK - 1) // BLOCK, 0))
                if job % (tiles * splits) == 0:
                    for i in range(length):
                        if begin + i < capacity:
                            for e in T.vectorized(size):
                                k[b, g, begin + i, e] = new_k[b, g, i, e]
                            for e in T.vectorized(size):
                                v[b, g, begin + i, e] = new_v[b, g, i, e]
                for r in range(tile):
                    for e in range(size):
                        query[r, e] = scale * q[b, g * per + (part * tile + r) // length, (part * tile + r) % length, e]
                for e in range(size):
                    for c in T.vectorized(BLOCK):
                        turned[e, c] = T.float32(0)
                for r in T.unroll(tile):
                    top[r] = T.float32(LEAST)
                    for u in T.vectorized(LANES):
                        total[r, u] = T.float32(0)
                    for w in T.unroll(vectors):
                        for u in T.vectorized(LANES):
                            acc[r, w, u] = T.float32(0)
                for block in range(kept + fresh):
                    first = T.meta_var(T.if_then_else(block < kept, low + block * BLOCK, (block - kept) * BLOCK))
                    count = T.meta_var(T.min(BLOCK, T.if_then_else(block < kept, high, length) - first))
                    if block < kept:
                        for c in range(count):
                            for e in range(size):
                                turned[e, c] = k[b, g, first + c, e]
                            for w in T.unroll(vectors):
                                for u in T.vectorized(LANES):
                                    values[c, w, u] = v[b, g, first + c, w * LANES + u]
                    else:
                        for c in range(count):
                            for e in range(size):
                                turned[e, c] = new_k[b, g, first + c, e]
                            for w in T.unroll(vectors):
                                for u in T.vectorized(LANES):
                                    values[c, w, u] = new_v[b, g, first + c, w * LANES + u]
                    for r in range(tile):
                        for c in T.vectorized(BLOCK):
                            hidden[r, c] = T.float32(LEAST)
                        for c in range(count):
                            if masked:
                                hidden[r, c] = mask[
                                    b * of_batch,
                                    (g * per + (part * tile + r) // length) * of_heads,
                                    (part * tile + r) % length * of_rows,
                                    T.min(
                                        first
                                        + c
                                        + T.if_then_else(block < kept, 0, T.if_then_else(new_at < 0, begin, new_at)),
                                        columns - 1,
                                    ),
                                ]
                            else:
                                # How far behind the query the key is.
                                hidden[r, c] = T.Select(
                                    T.And(
                                        (part * tile + r) % length - first - c + T.if_then_else(block < kept, begin, 0)
                                        >= 0,
                                        T.Or(
                                            window == 0,
                                            (part * tile + r) % length
                                            - first
                                            - c
                                            + T.if_then_else(block < kept, begin, 0)
                                            < window,
                                        ),
                                    ),
                                    T.float32(0),
                                    T.float32(LEAST),
                                )
                    for r in T.unroll(tile):
                        for h in T.unroll(halves):
                            for u in T.vectorized(LANES):
                                score[r, h, u] = T.float32(0)
                    for e in range(size):
                        for r in T.unroll(tile):
                            for h in T.unroll(halves):
                                for u in T.vectorized(LANES):
                                    score[r, h, u] = score[r, h, u] + query[r, e] * turned[e, h * LANES + u]
                    for r in T.unroll(tile):
                        for h in T.unroll(halves):
                            for u in T.vectorized(LANES):
                                if softcap > 0:
                                    score[r, h, u] = (
                                        softcap * T.tanh(score[r, h, u] / softcap) + hidden[r, h * LANES + u]
                                    )
                                else:
                                    score[r, h, u] = score[r, h, u] + hidden[r, h * LANES + u]
                        for u in T.vectorized(LANES):
                            fold[u] = T.max(score[r, 0, u], score[r, 1, u])
                        for u in T.vectorized(8):
                            fold[u] = T.max(fold[u], fold[u + 8])
                        for u in T.vectorized(4):
                            fold[u] = T.max(fold[u], fold[u + 4])
                        factor[0] = T.max(T.max(T.max(fold[0], fold[1]), T.max(fold[2], fold[3])), top[r])
                        factor[1] = T.exp(top[r] - factor[0])
                        top[r] = factor[0]
                        for h in T.unroll(halves):
                            for u in T.vectorized(LANES):
                                weight[r, h * LANES + u] = T.exp(score[r, h, u] - factor[0])
                        for u in T.vectorized(LANES):
                            total[r, u] = total[r, u] * factor[1] + weight[r, u] + weight[r, LANES + u]
                        for w in T.unroll(vectors):
                            for u in T.vectorized(LANES):
                                acc[r, w, u] = acc[r, w, u] * factor[1]
                    for c in range(count):
                        for r in T.unroll(tile):
                            for w in T.unroll(vectors):
                                for u in T.vectorized(LANES):
                                    acc[r, w, u] = acc[r, w, u] + weight[r, c] * values[c, w, u]
                for r in T.unroll(tile):
                    for u in T.vectorized(8):
                        total[r, u] = total[r, u] + total[r, u + 8]
                    for u in T.vectorized(4):
                        total[r, u] = total[r, u] + total[r, u + 4]
                    factor[0] = total[r, 0] + total[r, 1] + (total[r, 2] + total[r, 3])
                    if splits == 1:
                        for w in T.unroll(vectors):
                            for u in T.vectorized(LANES):
                                out[
                                    b,
                                    g * per + (part * tile + r) // length,
                                    (part * tile + r) % length,
                                    w * LANES + u,
                                ] = acc[r, w, u] / factor[0]
                    else:
                        tops[job // splits, split, r, 0] = top[r]
                        tops[job // splits, split, r, 1] = factor[0]
                        for w in T.unroll(vectors):
                            for u in T.vectorized(LANES):
                                sums[job // splits, split, r, w * LANES + u] = acc[r, w, u]
        if splits > 1:
            for job in range(tasks):
                with T.sblock("join"):
                    T.reads(sums[job, 0:splits, 0:tile, 0:size], tops[job, 0:splits, 0:tile, 0:2])
                    T.writes(out[0:batch, 0:heads, 0:length, 0:size])
                    both = T.alloc_buffer((2,), "float32", scope="local")
                    total_values = T.alloc_buffer((size,), "float32", scope="local")
                    for r in range(tile):
                        both[0] = tops[job, 0, r, 0]
                        for s in range(splits - 1):
                            both[0] = T.max(both[0], tops[job, s + 1, r, 0])
                        both[1] = T.float32(0)
                        for e in T.vectorized(size):
                            total_values[e] = T.float32(0)
                        for s in range(splits):
                            both[1] = both[1] + tops[job, s, r, 1] * T.exp(tops[job, s, r, 0] - both[0])
                            for e in T.vectorized(size):
                                total_values[e] = total_values[e] + sums[job, s, r, e] * T.exp(
                                    tops[job, s, r, 0] - both[0]
                                )
                        for e in T.vectorized(size):
                            out[
                                job // tiles // groups,
                                job // tiles % groups * per + (job % tiles * tile + r) // length,
                                (job % tiles * tile + r) % length,
                                e,
                            ] = total_values[e] / both[1]

    label = LABEL + json.dumps(asdict(shape), sort_keys=True)
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)
