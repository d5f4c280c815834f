"""Attention over a cache of keys and values that the kernel appends to, in one kernel. It is scheduled by hand.

This one is for few new positions; ``prompt_attention.py`` for as many as fill vectors.

A *row* is one query of one head. Query heads of a group share keys and values, so the rows of a group (heads of the
group × new positions) are computed together, a tile of some rows at a time. Softmax is online (M. Milakov and
N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022, algorithm 1):
scores exist for one block of positions only. Where there are fewer tiles than threads, the positions of the cache are
dealt to several tasks, whose sums are joined at the end (T. Dao et al., "Flash-Decoding", 2023).

    for task in batch · groups · tiles · splits: parallel
      the first task of a group appends its new keys and values to the cache
      for block of 32 positions: of the cache below ``starts``, then of the new ones
        scores, 16 at a time; running maximum m, sum l per lane, weighted values
      the sum of the values ÷ l

Only positions below ``starts`` are read, so a call costs what the cache holds, not what it could hold, and memory
behind is never looked at. The cache is an input that is written to: nothing else of a program may read it.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import json
from dataclasses import asdict
from functools import lru_cache

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import BLOCK, LANES, LEAST, AttentionShape, all_of, append
from schedules.templates.by_hand.prompt_attention import prompt_attention
from schedules.templates.by_hand.recurrent_steps import SCHEDULED

LABEL = "attention "


def for_threads(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """The same kernel with as many tasks as ``threads``, or more."""
    fields = json.loads(str(func.attrs[SCHEDULED]).removeprefix(LABEL))
    shape = AttentionShape(**{**fields, "mask": tuple(fields["mask"])})
    tasks = shape.batch * shape.groups * (shape.rows // shape.tile)
    return cached_attention(shape, -(-threads // tasks))


@scripted.inline
def _begin(query, q, line, b, scale, keys):  # type: ignore[no-untyped-def]
    """Queries of the rows from ``line`` on, scaled; keys of positions that do not come are zeros."""
    for r in range(query.shape[0]):
        for w in T.unroll(query.shape[1]):
            for u in T.vectorized(LANES):
                query[r, w, u] = scale * q[b, (line + r) // q.shape[2], (line + r) % q.shape[2], w * LANES + u]
    for c in range(keys.shape[0]):
        for w in T.unroll(keys.shape[1]):
            for u in T.vectorized(LANES):
                keys[c, w, u] = T.float32(0)


@scripted.inline
def _clear(acc, total, top):  # type: ignore[no-untyped-def]
    for r in T.unroll(acc.shape[0]):
        top[r, 0] = T.float32(LEAST)
        for u in T.vectorized(LANES):
            total[r, u] = T.float32(0)
        for w in T.unroll(acc.shape[1]):
            for u in T.vectorized(LANES):
                acc[r, w, u] = T.float32(0)


@scripted.inline
def _load(keys, values, k, v, row, first, count):  # type: ignore[no-untyped-def]
    """Keys and values of ``count`` positions of one group, from ``first`` on."""
    for c in range(count):
        for w in T.unroll(keys.shape[1]):
            for u in T.vectorized(LANES):
                keys[c, w, u] = k[row // k.shape[1], row % k.shape[1], first + c, w * LANES + u]
        for w in T.unroll(values.shape[1]):
            for u in T.vectorized(LANES):
                values[c, w, u] = v[row // k.shape[1], row % k.shape[1], first + c, w * LANES + u]


@scripted.inline
def _load_new(keys, values, new, row, first, count):  # type: ignore[no-untyped-def]
    """Work like ``_load``, of what is not in the cache yet."""
    for c in range(count):
        for w in T.unroll(keys.shape[1]):
            for u in T.vectorized(LANES):
                keys[c, w, u] = new[0, row // new.shape[2], row % new.shape[2], first + c, w * LANES + u]
        for w in T.unroll(values.shape[1]):
            for u in T.vectorized(LANES):
                values[c, w, u] = new[1, row // new.shape[2], row % new.shape[2], first + c, w * LANES + u]


@scripted.inline
def _masked(hidden, mask, b, line, column, count, length):  # type: ignore[no-untyped-def]
    """Add the mask to the scores."""
    for r in range(hidden.shape[0]):
        for c in T.vectorized(BLOCK):
            hidden[r, c] = T.float32(LEAST)
        for c in range(count):
            hidden[r, c] = mask[
                T.min(b, mask.shape[0] - 1),
                T.min((line + r) // length, mask.shape[1] - 1),
                T.min((line + r) % length, mask.shape[2] - 1),
                T.min(column + c, mask.shape[3] - 1),
            ]


@scripted.inline
def _causal(hidden, line, ahead, count, length, window):  # type: ignore[no-untyped-def]
    """Hide later positions in the scores: a query sees itself and ``window`` − 1 positions before it, or all of them.

    Query 0 of the call is ``ahead`` positions behind the block's first.
    """
    for r in range(hidden.shape[0]):
        for c in T.vectorized(BLOCK):
            hidden[r, c] = T.Select(
                T.And(
                    c < T.min(count, (line + r) % length + ahead + 1),
                    T.Or(window == 0, c > (line + r) % length + ahead - window),
                ),
                T.float32(0),
                T.float32(LEAST),
            )


def _merged(one: tirx.Expr, other: tirx.Expr, distance: int) -> tirx.Expr:
    """Sums over pairs of lanes ``distance`` apart of two vectors, those of ``one`` and of ``other`` in turn."""
    first = [lane for lane in range(LANES) if not lane & distance]
    runs = [first[at : at + distance] for at in range(0, len(first), distance)]
    halves = [[lane + at for run in runs for at in (0, LANES) for lane in run]]
    halves.append([lane + distance for lane in halves[0]])
    low, high = (tirx.Shuffle([one, other], [tirx.const(lane, "int32") for lane in half]) for half in halves)
    return low + high


@scripted.inline
def _sum_each(part, distance, count):  # type: ignore[no-untyped-def]
    for c in T.unroll(count):
        part[c, T.Ramp(0, 1, LANES)] = _merged(
            part[c, T.Ramp(0, 1, LANES)], part[c + count, T.Ramp(0, 1, LANES)], distance
        )


@scripted.inline
def _score(score, query, keys, part, hidden, softcap):  # type: ignore[no-untyped-def]
    """Scores of 16 positions at a time: a vector of products for each, whose sums a tree of shuffles brings together.

    Four levels of 8, 4, 2 and 1 additions of two half-summed vectors leave the sum of vector c in lane c. Turning the
    keys instead, number by number, took 1.1 to 1.6 times as long: behind 1,000 positions 551 for 339 µs (32 heads of 8
    groups, 128 elements), 125 for 94 (8 of 8, 64) and 47 for 43 (8 of 2, 64) on a two-core Sapphire Rapids.
    """
    for r in range(score.shape[0]):
        for h in range(score.shape[1]):
            for c in T.unroll(LANES):
                for u in T.vectorized(LANES):
                    part[c, u] = query[r, 0, u] * keys[h * LANES + c, 0, u]
                for w in T.unroll(query.shape[1] - 1):
                    for u in T.vectorized(LANES):
                        part[c, u] = part[c, u] + query[r, w + 1, u] * keys[h * LANES + c, w + 1, u]
            _sum_each(part, 8, 8)
            _sum_each(part, 4, 4)
            _sum_each(part, 2, 2)
            _sum_each(part, 1, 1)
            for u in T.vectorized(LANES):
                if softcap > 0:
                    score[r, h, u] = softcap * T.tanh(part[0, u] / softcap) + hidden[r, h * LANES + u]
                else:
                    score[r, h, u] = part[0, u] + hidden[r, h * LANES + u]


@scripted.inline
def _soften(score, weight, fold, acc, total, top):  # type: ignore[no-untyped-def]
    """Weights of a block under the new maximum; sums so far are brought to it. ``top``: maximum, new one, factor."""
    for r in T.unroll(score.shape[0]):
        for u in T.vectorized(LANES):
            fold[u] = T.max(score[r, 0, u], score[r, 1, u])
        for u in T.vectorized(8):
            fold[u] = T.max(fold[u], fold[u + 8])
        for u in T.vectorized(4):
            fold[u] = T.max(fold[u], fold[u + 4])
        top[r, 1] = T.max(T.max(T.max(fold[0], fold[1]), T.max(fold[2], fold[3])), top[r, 0])
        top[r, 2] = T.exp(top[r, 0] - top[r, 1])
        top[r, 0] = top[r, 1]
        for h in T.unroll(score.shape[1]):
            for u in T.vectorized(LANES):
                weight[r, h * LANES + u] = T.exp(score[r, h, u] - top[r, 1])
        for u in T.vectorized(LANES):
            total[r, u] = total[r, u] * top[r, 2] + weight[r, u] + weight[r, LANES + u]
        for w in T.unroll(acc.shape[1]):
            for u in T.vectorized(LANES):
                acc[r, w, u] = acc[r, w, u] * top[r, 2]


@scripted.inline
def _weigh(acc, weight, values, count):  # type: ignore[no-untyped-def]
    for c in range(count):
        for r in T.unroll(acc.shape[0]):
            for w in T.unroll(acc.shape[1]):
                for u in T.vectorized(LANES):
                    acc[r, w, u] = acc[r, w, u] + weight[r, c] * values[c, w, u]


@scripted.inline
def _keep(sums, tops, job, acc, total, top):  # type: ignore[no-untyped-def]
    """The sums of a task, with what they are relative to."""
    for r in T.unroll(acc.shape[0]):
        for u in T.vectorized(8):
            total[r, u] = total[r, u] + total[r, u + 8]
        for u in T.vectorized(4):
            total[r, u] = total[r, u] + total[r, u + 4]
        tops[job, r, 0] = top[r, 0]
        tops[job, r, 1] = total[r, 0] + total[r, 1] + (total[r, 2] + total[r, 3])
        for w in T.unroll(acc.shape[1]):
            for u in T.vectorized(LANES):
                sums[job, r, w * LANES + u] = acc[r, w, u]


@scripted.inline
def _join(out, sums, tops, splits, work, whole):  # type: ignore[no-untyped-def]
    """The tasks of every tile together; ``whole``: maximum, sum, and the factor of a task."""
    for row in range(out.shape[0] * out.shape[1] * out.shape[2]):
        job = T.meta_var(row // sums.shape[1] * splits)
        r = T.meta_var(row % sums.shape[1])
        whole[0] = tops[job, r, 0]
        for s in range(splits - 1):
            whole[0] = T.max(whole[0], tops[job + s + 1, r, 0])
        whole[1] = T.float32(0)
        for e in T.vectorized(out.shape[3]):
            work[e] = T.float32(0)
        for s in range(splits):
            whole[2] = T.exp(tops[job + s, r, 0] - whole[0])
            whole[1] = whole[1] + tops[job + s, r, 1] * whole[2]
            for e in T.vectorized(out.shape[3]):
                work[e] = work[e] + sums[job + s, r, e] * whole[2]
        for e in T.vectorized(out.shape[3]):
            out[row // (out.shape[1] * out.shape[2]), row // out.shape[2] % out.shape[1], row % out.shape[2], e] = (
                work[e] / whole[1]
            )


@lru_cache(maxsize=32)  # TVM's script takes about a second for each, and the layers of a decoder have one shape
def cached_attention(shape: AttentionShape, splits: int = 1) -> tirx.PrimFunc:
    """The kernel: q (batch, heads, length, size), new keys, then values (2, batch, groups, length, size), the
    cache of both (batch, groups, capacity, size), starts (batch,) int32, mask → out (batch, heads, length, size).

    New key i of row b becomes position starts[b] + i of the cache; what lies beyond the capacity is dropped.

    Args:
        splits: tasks that share the positions of one tile; a prompt has tiles enough.
    """
    kernel = prompt_attention(shape) if shape.prompt_tile else _for_few(shape, splits)
    label = LABEL + json.dumps(asdict(shape), sort_keys=True)
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)


def _for_few(shape: AttentionShape, splits: int) -> tirx.PrimFunc:
    """The kernel for few new positions."""
    batch, heads, groups, length, size = shape.batch, shape.heads, shape.groups, shape.length, shape.size
    capacity, rows, tile, new_at, scale = shape.capacity, shape.rows, shape.tile, shape.new_at, shape.scale
    tiles, masked, softcap, window = rows // tile, shape.mask[3] > 0, shape.softcap, shape.window
    mask_shape = (*shape.mask[:3], max(1, shape.mask[3]))
    tasks, vectors, halves = batch * groups * tiles * splits, size // LANES, BLOCK // LANES

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        q: T.Buffer((batch, heads, length, size), "float32"),  # type: ignore[valid-type]
        new: T.Buffer((2, batch, groups, length, size), "float32"),  # type: ignore[valid-type]
        k: T.Buffer((batch, groups, capacity, size), "float32"),  # type: ignore[valid-type]
        v: T.Buffer((batch, groups, capacity, size), "float32"),  # type: ignore[valid-type]
        starts: T.Buffer((batch,), "int32"),  # type: ignore[valid-type]
        mask: T.Buffer(mask_shape, "float32"),  # type: ignore[valid-type]
        out: T.Buffer((batch, heads, length, size), "float32"),  # type: ignore[valid-type]
    ):
        sums = T.alloc_buffer((tasks, tile, size), "float32")
        tops = T.alloc_buffer((tasks, tile, 2), "float32")
        for job in T.parallel(tasks):
            with T.sblock("attend"):
                T.reads(all_of(q), all_of(new), all_of(k), all_of(v), all_of(starts), all_of(mask))
                T.writes(sums[job, 0:tile, 0:size], tops[job, 0:tile, 0:2])
                query = T.alloc_buffer((tile, vectors, LANES), "float32", scope="local")
                keys = T.alloc_buffer((BLOCK, vectors, LANES), "float32", scope="local")
                part = T.alloc_buffer((LANES, LANES), "float32", scope="local")
                values = T.alloc_buffer((BLOCK, vectors, LANES), "float32", scope="local")
                hidden = T.alloc_buffer((tile, BLOCK), "float32", scope="local")
                score = T.alloc_buffer((tile, halves, LANES), "float32", scope="local")
                weight = T.alloc_buffer((tile, BLOCK), "float32", scope="local")
                acc = T.alloc_buffer((tile, vectors, LANES), "float32", scope="local")
                total = T.alloc_buffer((tile, LANES), "float32", scope="local")
                top = T.alloc_buffer((tile, 3), "float32", scope="local")
                fold = T.alloc_buffer((LANES,), "float32", scope="local")
                row = T.meta_var(job // (splits * tiles))
                line = T.meta_var(row % groups * rows + job // splits % tiles * tile)
                begin = T.meta_var(T.min(T.max(starts[row // groups], 0), capacity))
                share = T.meta_var((begin + (splits * BLOCK - 1)) // (splits * BLOCK) * BLOCK)
                low = T.meta_var(T.min(job % splits * share, begin))
                high = T.meta_var(T.min(job % splits * share + share, begin))
                kept = T.meta_var((high - low + BLOCK - 1) // BLOCK)
                fresh = T.meta_var(T.if_then_else(job % splits == splits - 1, (length + BLOCK - 1) // BLOCK, 0))
                if job % (tiles * splits) == 0:
                    append(k, new, 0, row, begin)
                    append(v, new, 1, row, begin)
                _begin(query, q, line, row // groups, scale, keys)
                _clear(acc, total, top)
                for block in range(kept + fresh):
                    first = T.meta_var(T.if_then_else(block < kept, low + block * BLOCK, (block - kept) * BLOCK))
                    count = T.meta_var(T.min(BLOCK, T.if_then_else(block < kept, high, length) - first))
                    if block < kept:
                        _load(keys, values, k, v, row, first, count)
                    else:
                        _load_new(keys, values, new, row, first, count)
                    if masked:
                        column = T.meta_var(first + T.if_then_else(block < kept, 0, begin if new_at < 0 else new_at))
                        _masked(hidden, mask, row // groups, line, column, count, length)
                    else:
                        _causal(hidden, line, T.if_then_else(block < kept, begin, 0) - first, count, length, window)
                    _score(score, query, keys, part, hidden, softcap)
                    _soften(score, weight, fold, acc, total, top)
                    _weigh(acc, weight, values, count)
                _keep(sums, tops, job, acc, total, top)
        with T.sblock("join"):
            T.reads(all_of(sums), all_of(tops))
            T.writes(all_of(out))
            work = T.alloc_buffer((size,), "float32", scope="local")
            whole = T.alloc_buffer((3,), "float32", scope="local")
            _join(out, sums, tops, splits, work, whole)

    return kernel
