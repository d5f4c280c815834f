"""Steps of attention whose lanes are rows: keys and values are broadcast, and a row needs no other lane.

Softmax is online, as ``attention.py`` says. Queries and results are turned, 16 × 16 numbers at a time.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from typing import NamedTuple

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import LANES
from schedules.templates.by_hand.turning import turn

LOWEST = -3.4028234663852886e38
"""Maximum of nothing. Finite, so that a row of which every score is −∞ becomes 0 ÷ 0, as it does in ONNX Runtime."""


class Job(NamedTuple):
    """Work of a job: ``count`` tiles of one head of one entry of the batch, from row ``line`` on."""

    b: tirx.Expr
    h: tirx.Expr
    line: tirx.Expr
    count: tirx.Expr

    def row(self, s: tirx.Expr, tile: int, rows: int) -> tirx.Expr:
        """The first row of tile ``s``."""
        return T.min(self.line + s * tile, rows - tile)


class Laid(NamedTuple):
    """Queries, keys, values or the result, and whether heads come before rows in it."""

    buffer: tirx.Buffer
    by_head: bool

    @property
    def rows(self) -> int:
        """Count those of a head."""
        return int(self.buffer.shape[2 if self.by_head else 1])

    def at(self, job: Job, row: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        """Element ``e`` of a row of the job's head."""
        return self.buffer[job.b, job.h, row, e] if self.by_head else self.buffer[job.b, row, job.h, e]


class Tiles(NamedTuple):
    """Buffers of the tiles of a job: turned queries, weighted values, their sum and the largest score per row."""

    query: tirx.Buffer
    acc: tirx.Buffer
    total: tirx.Buffer
    top: tirx.Buffer


@scripted.inline
def begin(tiles, q, job, scale, square, other):  # type: ignore[no-untyped-def]
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


@scripted.inline
def multiply(part, query, keys, s, g):  # type: ignore[no-untyped-def]
    """``part``: products of the queries of tile ``s`` and of its share ``g`` of the keys of a block."""
    for c in T.unroll(part.shape[0]):
        for u in T.vectorized(part.shape[1]):
            part[c, u] = T.float32(0)
    for e in range(query.shape[1]):
        for c in T.unroll(part.shape[0]):
            for u in T.vectorized(part.shape[1]):
                part[c, u] = part[c, u] + query[s, e, u] * keys[g * part.shape[0] + c, e]


@scripted.inline
def soften(score, total, top, scaled, s):  # type: ignore[no-untyped-def]
    """Scores become weights under the new maximum; ``scaled``: that, and the factor of what was summed so far."""
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


@scripted.inline
def weigh(acc, part, weight, values, scaled, s):  # type: ignore[no-untyped-def]
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


@scripted.inline
def finish(out, tiles, job, vain, square, other):  # type: ignore[no-untyped-def]
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
