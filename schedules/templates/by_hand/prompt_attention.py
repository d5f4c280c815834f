"""Attention of a prompt over a cache that the kernel appends to: lanes are rows, where ``attention.py`` has positions.

Up to 32 rows, queries of one head, are computed at a time. Keys and values are broadcast to them, so only queries and
results are turned, once, and maxima and sums of a row need no exchange between lanes (``row_tiles.py``). A core that
begins two multiply-adds a cycle begins one that broadcasts from memory, so two vectors of rows share each broadcast.
Softmax, and what is read, are as in ``attention.py``; where there is no mask, new positions behind a tile's last row
are not looked at.

    for task in batch · groups · tiles: parallel
      the first task of a group appends its new keys and values to the cache
      for block of 32 positions: of the cache below ``starts``, then of the new ones
        scores; running maximum m and sum l per row, weighted values
      the sum of the values ÷ l
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import BLOCK, LANES, LEAST, AttentionShape, all_of, append
from schedules.templates.by_hand.row_tiles import Job, Laid, Tiles, begin, finish, multiply, soften, weigh

SUMS = 16
"""Vectors of sums that stay in registers: two multiply-adds a cycle of a latency of 4 need 8."""


@scripted.inline
def _begin(place, first):  # type: ignore[no-untyped-def]
    """The rows' places among the new positions, that of the first being ``first``."""
    for u in T.vectorized(place.shape[0]):
        place[u] = T.Cast("int32", first + u)


@scripted.inline
def _load(keys, values, k, v, row, first, count):  # type: ignore[no-untyped-def]
    """Keys and values of ``count`` positions of one group, from ``first`` on."""
    for c in range(count):
        for e in T.vectorized(keys.shape[1]):
            keys[c, e] = k[row // k.shape[1], row % k.shape[1], first + c, e]
        for e in T.vectorized(keys.shape[1]):
            values[c, e] = v[row // k.shape[1], row % k.shape[1], first + c, e]


@scripted.inline
def _load_new(keys, values, new, row, first, count):  # type: ignore[no-untyped-def]
    """Work like ``_load``, of what is not in the cache yet."""
    for c in range(count):
        for e in T.vectorized(keys.shape[1]):
            keys[c, e] = new[0, row // new.shape[2], row % new.shape[2], first + c, e]
        for e in T.vectorized(keys.shape[1]):
            values[c, e] = new[1, row // new.shape[2], row % new.shape[2], first + c, e]


@scripted.inline
def _clear(keys, values, count):  # type: ignore[no-untyped-def]
    """Zeros behind the ``count`` positions of a block."""
    for c in range(BLOCK - count):
        for e in T.vectorized(keys.shape[1]):
            keys[count + c, e] = T.float32(0)
            values[count + c, e] = T.float32(0)


@scripted.inline
def _masked(score, mask, b, line, column, count, length):  # type: ignore[no-untyped-def]
    """Add the mask to the scores."""
    for c in range(BLOCK):
        for u in T.vectorized(score.shape[1]):
            score[c, u] = T.float32(LEAST)
    for r in range(score.shape[1]):
        for c in range(count):
            score[c, r] = mask[
                T.min(b, mask.shape[0] - 1),
                T.min(line // length, mask.shape[1] - 1),
                T.min(line % length + r, mask.shape[2] - 1),
                T.min(column + c, mask.shape[3] - 1),
            ]


@scripted.inline
def _causal(score, place, ahead, count, window):  # type: ignore[no-untyped-def]
    """Hide later positions in the scores: a query sees itself and ``window`` − 1 positions before it, or all of them.

    Query 0 of the call is ``ahead`` positions behind the block's first.
    """
    for c in range(BLOCK):
        for u in T.vectorized(score.shape[1]):
            score[c, u] = T.Select(
                T.And(
                    T.And(c < count, place[u] + ahead - c >= 0),
                    T.Or(window == 0, place[u] + ahead - c < window),
                ),
                T.float32(0),
                T.float32(LEAST),
            )


@scripted.inline
def _score(score, part, query, keys, softcap):  # type: ignore[no-untyped-def]
    """Scores of a block, added to what hides them."""
    for g in range(BLOCK // part.shape[0]):
        multiply(part, query, keys, 0, g)
        for c in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                if softcap > 0:
                    score[g * part.shape[0] + c, u] = score[g * part.shape[0] + c, u] + softcap * T.tanh(
                        part[c, u] / softcap
                    )
                else:
                    score[g * part.shape[0] + c, u] = score[g * part.shape[0] + c, u] + part[c, u]


def prompt_attention(shape: AttentionShape) -> tirx.PrimFunc:
    """The kernel, with parameters as ``attention.cached_attention``; ``shape`` has a ``prompt_tile``."""
    batch, heads, groups, length, size = shape.batch, shape.heads, shape.groups, shape.length, shape.size
    capacity, rows, tile, new_at, scale = shape.capacity, shape.rows, shape.prompt_tile, shape.new_at, shape.scale
    tiles, masked, softcap, window = rows // tile, shape.mask[3] > 0, shape.softcap, shape.window
    mask_shape, at_once = (*shape.mask[:3], max(1, shape.mask[3])), SUMS * LANES // tile

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
        for job in T.parallel(batch * groups * tiles):
            with T.sblock("attend"):
                T.reads(all_of(q), all_of(new), all_of(k), all_of(v), all_of(starts), all_of(mask))
                T.writes(all_of(out))
                query = T.alloc_buffer((1, size, tile), "float32", scope="local")
                place = T.alloc_buffer((tile,), "int32", scope="local")
                keys = T.alloc_buffer((BLOCK, size), "float32", scope="local")
                values = T.alloc_buffer((BLOCK, size), "float32", scope="local")
                score = T.alloc_buffer((BLOCK, tile), "float32", scope="local")
                part = T.alloc_buffer((at_once, tile), "float32", scope="local")
                acc = T.alloc_buffer((1, size, tile), "float32", scope="local")
                total = T.alloc_buffer((1, tile), "float32", scope="local")
                top = T.alloc_buffer((1, tile), "float32", scope="local")
                scaled = T.alloc_buffer((2, tile), "float32", scope="local")
                vain = T.alloc_buffer((1,), "float32", scope="local")
                square = T.alloc_buffer((LANES, LANES), "float32", scope="local")
                other = T.alloc_buffer((LANES, LANES), "float32", scope="local")
                row = T.meta_var(job // tiles)
                line = T.meta_var(row % groups * rows + job % tiles * tile)
                start = T.meta_var(T.min(T.max(starts[row // groups], 0), capacity))
                kept = T.meta_var((start + BLOCK - 1) // BLOCK)
                seen = T.meta_var(length if masked else line % length + tile)
                if job % tiles == 0:
                    append(k, new, 0, row, start)
                    append(v, new, 1, row, start)
                sums = T.meta_var(Tiles(query, acc, total, top))
                of = T.meta_var(Job(row // groups, line // length, line % length, 1))
                begin(sums, Laid(q, True), of, scale, square, other)
                _begin(place, line % length)
                for block in range(kept + (seen + BLOCK - 1) // BLOCK):
                    first = T.meta_var(T.if_then_else(block < kept, block, block - kept) * BLOCK)
                    count = T.meta_var(T.min(BLOCK, T.if_then_else(block < kept, start, length) - first))
                    if block < kept:
                        _load(keys, values, k, v, row, first, count)
                    else:
                        _load_new(keys, values, new, row, first, count)
                    _clear(keys, values, count)
                    if masked:
                        column = T.meta_var(first + T.if_then_else(block < kept, 0, start if new_at < 0 else new_at))
                        _masked(score, mask, row // groups, line, column, count, length)
                    else:
                        _causal(score, place, T.if_then_else(block < kept, start, 0) - first, count, window)
                    _score(score, part, query, keys, softcap)
                    soften(score, total, top, scaled, 0)
                    weigh(acc, part, score, values, scaled, 0)
                finish(Laid(out, True), sums, of, vain, square, other)

    return kernel
