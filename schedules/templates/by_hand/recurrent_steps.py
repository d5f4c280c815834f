"""All steps of an LSTM or a GRU in one kernel. It is scheduled by hand, but for the number of threads.

The input x is the product of all steps with the input weights, with the biases added. Each step then computes h·R and
the gates:

    for step:                             one after another
      for group of chunks: parallel       a thread gets the same chunks in every step, so their weights stay in its L2
        for chunk of 32 units:            in alternating order: what was read last is read first in the next step
          acc[4 gates · 2][16] = x[step, chunk]
          for k in hidden:  acc += h[k] · R[chunk, k]        8 vectors: enough to hide the latency of an FMA
          c = σ(f)·c + σ(i)·tanh(g);  h = σ(o)·tanh(c)

The alternating order matters when the weights are slightly larger than L2. Read in the same order every time, all of
them are evicted just before they are needed again; in alternating order, only the part that does not fit is. Measured
for 100 steps with 2 MiB of L2 per core: 2 MiB of weights per core take 2.2 ms instead of 3.1 ms, and 4 MiB on one core
9.6 ms instead of 15 ms.

R is packed as [chunk][k][gate][32], so a chunk is read as one stream. The result ``out`` (2, steps + 1, batch, hidden)
holds h at index 0 and c at index 1. Step t writes row t + 1, or row t when walking backwards; the remaining row holds
the initial state.

Threads meet after every step, so short steps are faster on fewer of them: 20 steps of an LSTM of 64 units took 8.4 µs
on one thread and 16.4 µs on two (Zen 5).
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from functools import cache

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted

UNITS = 32
"""Hidden units of a chunk."""

LANES = 16
VECTORS = 4 * UNITS // LANES

SCHEDULED = "tune.scheduled"
"""Attribute of functions that are scheduled as they stand."""


def walk_rows(steps: int, backwards: bool) -> tuple[int, int, int, int]:
    """The walk over the steps: (row of the initial state, first step, step increment, written row minus step)."""
    return (steps, steps - 1, -1, 0) if backwards else (0, 0, 1, 1)


def groups_of(chunks: int, groups: int) -> tuple[int, int]:
    """(groups, chunks per group); if ``groups`` is 0 or does not divide ``chunks``, each chunk is a group."""
    groups = groups if groups and chunks % groups == 0 else chunks
    return groups, chunks // groups


BACKWARDS, LIMITED = " backwards", " limited"
"""Ends of the attribute of a kernel that walks backwards, and of one that is told how many steps to compute."""


def label_of(kind: str, backwards: bool) -> str:
    """The value of ``SCHEDULED`` for a kernel of this module."""
    return kind + (BACKWARDS if backwards else "")


def labelled(kernel: tirx.PrimFunc, kind: str, backwards: bool, limited: bool = False) -> tirx.PrimFunc:
    """Return ``kernel``, which says what it is."""
    label = label_of(kind, backwards) + LIMITED * limited
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)


@scripted.inline
def _add_products(acc, h, at, r, chunk):  # type: ignore[no-untyped-def]
    """Add h·R of a chunk to the sums of some sequences; ``at`` is the row of ``h`` and the first sequence."""
    for k in range(r.shape[1]):
        for v in T.unroll(acc.shape[1]):
            for s in T.unroll(acc.shape[0]):
                for u in T.vectorized(LANES):
                    acc[s, v, u] = acc[s, v, u] + h[0, at[0], at[1] + s, k] * r[chunk, k, v, u]


@scripted.inline
def lstm_chunks(x, r, out, rows, place, sizes):  # type: ignore[no-untyped-def]
    """A step of a group's chunks, in a block: reads row ``rows[0]`` and x of step ``rows[1]``, writes row ``rows[2]``.

    ``place`` is the number of the step, the group and the direction, whose chunks and sequences lie behind the other's.
    """
    T.reads(
        x[0 : x.shape[0], 0 : x.shape[1], 0 : x.shape[2], 0:VECTORS, 0:LANES],
        r[0 : r.shape[0], 0 : r.shape[1], 0:VECTORS, 0:LANES],
        out[0:2, 0 : out.shape[1], 0 : out.shape[2], 0 : out.shape[3]],
    )
    T.writes(out[0:2, 0 : out.shape[1], 0 : out.shape[2], 0 : out.shape[3]])
    per_group, tile = T.meta_var(sizes[0]), T.meta_var(sizes[1])
    ahead, before = T.meta_var(place[2] * (x.shape[2] // 2)), T.meta_var(place[2] * x.shape[1])
    acc = T.alloc_buffer((tile, VECTORS, LANES), "float32", scope="local")
    for c, bs in T.grid(per_group, x.shape[1] // tile):
        chunk = T.meta_var(place[1] * per_group + c + place[0] % 2 * (per_group - 1 - 2 * c))
        for s in T.unroll(tile):
            for v in T.unroll(VECTORS):
                for u in T.vectorized(LANES):
                    acc[s, v, u] = x[rows[1], bs * tile + s, ahead + chunk, v, u]
        _add_products(acc, out, (rows[0], before + bs * tile), r, ahead + chunk)
        for s in T.unroll(tile):
            for p in T.unroll(2):
                b, unit = T.meta_var(before + bs * tile + s), T.meta_var(chunk * UNITS + p * LANES)
                for u in T.vectorized(LANES):
                    out[1, rows[2], b, unit + u] = T.sigmoid(acc[s, 4 + p, u]) * out[
                        1, rows[0], b, unit + u
                    ] + T.sigmoid(acc[s, p, u]) * T.tanh(acc[s, 6 + p, u])
                    out[0, rows[2], b, unit + u] = T.sigmoid(acc[s, 2 + p, u]) * T.tanh(out[1, rows[2], b, unit + u])


@cache  # TVM's parser takes half a second
def lstm_steps(
    steps: int, batch: int, units: int, backwards: bool, groups: int = 0, tile: int = 1, limited: bool = False
) -> tirx.PrimFunc:
    """The kernel: x (steps, batch, chunks, 8, 16), r (chunks, units, 8, 16), h0 and c0 (batch, 32 · chunks) → out.

    Args:
        steps, batch: of the sequence.
        units: hidden units. The states of those that fill up the last chunk are 0.
        backwards: from the last step to the first.
        groups: into which the chunks are dealt; 0 makes each chunk one.
        tile: sequences that share what is read of R; divides the batch.
        limited: whether a parameter before ``out``, (1,) of int32, says how many steps are computed; forwards only.
    """
    hidden = UNITS * (chunks := -(-units // UNITS))
    groups, per_group = groups_of(chunks, groups)
    start, first, sign, row = walk_rows(steps, backwards)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, units, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        c0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((2, steps + 1, batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for b in range(batch):
            for k in range(hidden):
                out[0, start, b, k] = h0[b, k]
                out[1, start, b, k] = c0[b, k]
        for t in range(steps):
            for group in T.parallel(groups):
                step = T.meta_var(first + sign * t)
                with T.sblock("step"):
                    lstm_chunks(x, r, out, (start + sign * t, step, step + row), (t, group, 0), (per_group, tile))

    @scripted.prim_func(s_tir=True)
    def kernel_limited(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, units, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        c0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        limit: T.Buffer((1,), "int32"),  # type: ignore[valid-type]
        out: T.Buffer((2, steps + 1, batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for b in range(batch):
            for k in range(hidden):
                out[0, 0, b, k] = h0[b, k]
                out[1, 0, b, k] = c0[b, k]
        for t in range(limit[0]):
            for group in T.parallel(groups):
                with T.sblock("step"):
                    lstm_chunks(x, r, out, (t, t, t + 1), (t, group, 0), (per_group, tile))

    return labelled(kernel_limited if limited else kernel, "lstm", backwards, limited)


@scripted.inline
def gru_chunks(x, r, bias, out, rows, place, sizes):  # type: ignore[no-untyped-def]
    """A step of a group's chunks, in a block: reads row ``rows[0]`` and x of step ``rows[1]``, writes row ``rows[2]``.

    ``place`` is the number of the step, the group and the direction, whose chunks and sequences lie behind the other's.
    """
    T.reads(
        x[0 : x.shape[0], 0 : x.shape[1], 0 : x.shape[2], 0 : x.shape[3], 0:LANES],
        r[0 : r.shape[0], 0 : r.shape[1], 0 : r.shape[2], 0:LANES],
        bias[0 : bias.shape[0], 0:2, 0:LANES],
        out[0:1, 0 : out.shape[1], 0 : out.shape[2], 0 : out.shape[3]],
    )
    T.writes(out[0:1, 0 : out.shape[1], 0 : out.shape[2], 0 : out.shape[3]])
    per_group, tile = T.meta_var(sizes[0]), T.meta_var(sizes[1])
    ahead, before = T.meta_var(place[2] * (x.shape[2] // 2)), T.meta_var(place[2] * x.shape[1])
    acc = T.alloc_buffer((tile, x.shape[3], LANES), "float32", scope="local")
    for c, bs in T.grid(per_group, x.shape[1] // tile):
        chunk = T.meta_var(place[1] * per_group + c + place[0] % 2 * (per_group - 1 - 2 * c))
        for s in T.unroll(tile):
            for v in T.unroll(4):
                for u in T.vectorized(LANES):
                    acc[s, v, u] = x[rows[1], bs * tile + s, ahead + chunk, v, u]
            for v in T.unroll(2):
                for u in T.vectorized(LANES):
                    acc[s, 4 + v, u] = bias[ahead + chunk, v, u]
        _add_products(acc, out, (rows[0], before + bs * tile), r, ahead + chunk)
        for s in T.unroll(tile):
            for p in T.unroll(2):
                b, unit = T.meta_var(before + bs * tile + s), T.meta_var(chunk * UNITS + p * LANES)
                for u in T.vectorized(LANES):
                    acc[s, 4 + p, u] = T.tanh(
                        x[rows[1], bs * tile + s, ahead + chunk, 4 + p, u]
                        + T.sigmoid(acc[s, 2 + p, u]) * acc[s, 4 + p, u]
                    )
                    out[0, rows[2], b, unit + u] = acc[s, 4 + p, u] + (
                        T.sigmoid(acc[s, p, u]) * (out[0, rows[0], b, unit + u] - acc[s, 4 + p, u])
                    )


@cache  # TVM's parser takes half a second
def gru_steps(
    steps: int, batch: int, units: int, backwards: bool, groups: int = 0, tile: int = 1, limited: bool = False
) -> tirx.PrimFunc:
    """The kernel of a GRU that resets after the product (``linear_before_reset``).

    z, r = σ(x + h·R), n = tanh(x + r∘(h·R + b)), h' = (1 − z)∘n + z∘h; x (steps, batch, chunks, 6, 16),
    r (chunks, units, 6, 16), b (chunks, 2, 16), h0 (batch, 32 · chunks) → out (1, steps + 1, batch, 32 · chunks).

    Args:
        steps, batch, units, backwards, groups, tile, limited: as for ``lstm_steps``.
    """
    hidden = UNITS * (chunks := -(-units // UNITS))
    groups, per_group = groups_of(chunks, groups)
    vectors = 3 * UNITS // LANES
    start, first, sign, row = walk_rows(steps, backwards)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, vectors, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, units, vectors, LANES), "float32"),  # type: ignore[valid-type]
        bias: T.Buffer((chunks, 2, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((1, steps + 1, batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for b in range(batch):
            for k in range(hidden):
                out[0, start, b, k] = h0[b, k]
        for t in range(steps):
            for group in T.parallel(groups):
                step = T.meta_var(first + sign * t)
                with T.sblock("step"):
                    gru_chunks(x, r, bias, out, (start + sign * t, step, step + row), (t, group, 0), (per_group, tile))

    @scripted.prim_func(s_tir=True)
    def kernel_limited(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, vectors, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, units, vectors, LANES), "float32"),  # type: ignore[valid-type]
        bias: T.Buffer((chunks, 2, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        limit: T.Buffer((1,), "int32"),  # type: ignore[valid-type]
        out: T.Buffer((1, steps + 1, batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for b in range(batch):
            for k in range(hidden):
                out[0, 0, b, k] = h0[b, k]
        for t in range(limit[0]):
            for group in T.parallel(groups):
                with T.sblock("step"):
                    gru_chunks(x, r, bias, out, (t, t, t + 1), (t, group, 0), (per_group, tile))

    return labelled(kernel_limited if limited else kernel, "gru", backwards, limited)


MAKERS = {"lstm": lstm_steps, "gru": gru_steps}
"""Beginning of a kernel's attribute → function that makes the kernel."""
