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

An R in int8 stays so. Each step then quantises h as ONNX Runtime's DynamicQuantizeLSTM does, by the range of the whole
batch, and sums bytes in int32. The bound is again reading R, of a quarter of the bytes.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from tvm import s_tir, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates import scripted
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, parameter_shapes
from schedules.templates.common.vector_math import tanh_inside, tanh_over, tanh_under
from schedules.templates.instructions.dots import U8S8, best_symbol
from schedules.templates.template import OneAlgorithm

OP = "recurrent"

UNITS = 32
"""Hidden units of a chunk."""

LANES = 16
VECTORS = 4 * UNITS // LANES

TILES = (1, 2, 3)
"""Sequences that share what is read of R, which the first cache does not hold: 8 sums each, in 32 registers."""

JOIN_NS = 600
"""Nanoseconds that threads take to meet after a step, for the first guess: what the two threads above lose.
It orders rightly a GRU of 64 units (one thread), and the LSTM and the GRU of ``tests.models`` (two threads)."""

TERMS_PER_NS = 40
"""Multiply-adds of a step per nanosecond and thread, for the first guess: what the one thread above does."""

BYTE_TERMS_PER_NS = 100
"""The same of bytes: what one thread does with R of 256 units, which L2 holds, on a Zen 4: 2.6 µs for 2¹⁸."""

SCHEDULED = "tune.scheduled"
"""Attribute of functions that are scheduled as they stand."""


def walk_rows(steps: int, backwards: bool) -> tuple[int, int, int, int]:
    """The walk over the steps: (row of the initial state, first step, step increment, written row minus step)."""
    return (steps, steps - 1, -1, 0) if backwards else (0, 0, 1, 1)


def _groups_of(chunks: int, groups: int) -> tuple[int, int]:
    """(groups, chunks per group); if ``groups`` is 0 or does not divide ``chunks``, each chunk is a group."""
    groups = groups if groups and chunks % groups == 0 else chunks
    return groups, chunks // groups


BACKWARDS = " backwards"

BYTES = "lstm8"
"""First word of the attribute of a kernel with R in int8."""

BYTE_AXES = ("chunk", "k/4", "vector", "lane", "k%4")
"""Axes of R in int8."""

BYTE_DOT = best_symbol(U8S8, LANES)

SUMS = 3
"""Parameter of a kernel with R in int8 that is as long as R has rows of corrections."""


def label_of(kind: str, backwards: bool) -> str:
    """The value of ``SCHEDULED`` for a kernel of this module."""
    return kind + (BACKWARDS if backwards else "")


def for_threads(func: tirx.PrimFunc, threads: int, tile: int = 1) -> tirx.PrimFunc:
    """The same kernel for ``threads`` threads, one group of chunks each if it divides them; bytes have no ``tile``."""
    label = str(func.attrs[SCHEDULED])
    kind, backwards = label.removesuffix(BACKWARDS), label.endswith(BACKWARDS)
    steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
    if kind == BYTES:
        shifted = int(func.params[SUMS].ty.shape[0]) > 1
        return byte_lstm_steps(steps, batch, chunks * UNITS, backwards, threads, shifted, by_dots=True)
    return MAKERS[kind](steps, batch, int(func.params[1].ty.shape[1]), backwards, threads, tile)


class RecurrentTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for the kernels of this module."""

    name = OP
    version = 2

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The whole function, if this module made it."""
        label = str(func.attrs[SCHEDULED]) if func.attrs and SCHEDULED in func.attrs else ""
        if label.removesuffix(BACKWARDS) not in (*MAKERS, BYTES):
            return None
        steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
        shapes = parameter_shapes(func)
        summed = chunks * UNITS if len(shapes[1]) == len(BYTE_AXES) else shapes[1][1]
        return Anchor("step", (steps, batch, chunks), (summed,), (), (), shapes)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Groups of chunks, one for each thread or for fewer, and how many sequences share what is read of R."""
        _, batch, chunks = anchor.spatial
        groups, _ = _groups_of(chunks, target.threads)
        fewer = (count for count in range(target.threads - 1, 0, -1) if chunks % count == 0)
        knob = Knob("groups", tuple(dict.fromkeys((groups, *fewer))))
        terms = batch * math.prod(anchor.shapes[0][3:]) * anchor.reduction[0]  # of a chunk in a step
        is_bytes = len(anchor.shapes[1]) == len(BYTE_AXES)
        rate = BYTE_TERMS_PER_NS if is_bytes else TERMS_PER_NS
        most = TILES[-1] if target.lanes() == LANES and not is_bytes else 1
        tiles = Knob("tile", tuple(size for size in TILES if size <= most and batch % size == 0))

        def step_ns(columns: Columns, _: Columns) -> Columns:
            count = columns["groups"]
            per_thread = np.ceil(count / target.threads) * (chunks / count)
            return {"step": (per_thread * terms / rate + JOIN_NS * (count > 1)) / columns["tile"] ** 0.5}

        return ranked(Space(OP, self.version, (knob, tiles)), step_ns, len(knob.choices))

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` for the config's groups."""
        return for_threads(func, config.integer("groups"), config.integer("tile"))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Nothing is left to do."""


@scripted.inline
def _add_products(acc, h, at, r, chunk):  # type: ignore[no-untyped-def]
    """Add h·R of a chunk to the sums of some sequences; ``at`` is the row of ``h`` and the first sequence."""
    for k in range(r.shape[1]):
        for v in T.unroll(acc.shape[1]):
            for s in T.unroll(acc.shape[0]):
                for u in T.vectorized(LANES):
                    acc[s, v, u] = acc[s, v, u] + h[0, at[0], at[1] + s, k] * r[chunk, k, v, u]


@cache  # TVM's parser takes half a second
def lstm_steps(steps: int, batch: int, units: int, backwards: bool, groups: int = 0, tile: int = 1) -> tirx.PrimFunc:
    """The kernel: x (steps, batch, chunks, 8, 16), r (chunks, units, 8, 16), h0 and c0 (batch, 32 · chunks) → out.

    Args:
        steps, batch: of the sequence.
        units: hidden units. The states of those that fill up the last chunk are 0.
        backwards: from the last step to the first.
        groups: into which the chunks are dealt; 0 makes each chunk one.
        tile: sequences that share what is read of R; divides the batch.
    """
    hidden = UNITS * (chunks := -(-units // UNITS))
    groups, per_group = _groups_of(chunks, groups)
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
                with T.sblock("step"):
                    T.reads(
                        x[0:steps, 0:batch, 0:chunks, 0:VECTORS, 0:LANES],
                        r[0:chunks, 0:units, 0:VECTORS, 0:LANES],
                        out[0:2, 0 : steps + 1, 0:batch, 0:hidden],
                    )
                    T.writes(out[0:2, 0 : steps + 1, 0:batch, 0:hidden])
                    acc = T.alloc_buffer((tile, VECTORS, LANES), "float32", scope="local")
                    before, step = T.meta_var(start + sign * t), T.meta_var(first + sign * t)
                    for c, bs in T.grid(per_group, batch // tile):
                        chunk = T.meta_var(group * per_group + c + t % 2 * (per_group - 1 - 2 * c))
                        for s in T.unroll(tile):
                            for v in T.unroll(VECTORS):
                                for u in T.vectorized(LANES):
                                    acc[s, v, u] = x[step, bs * tile + s, chunk, v, u]
                        _add_products(acc, out, (before, bs * tile), r, chunk)
                        for s in T.unroll(tile):
                            for p in T.unroll(2):
                                b, unit = T.meta_var(bs * tile + s), T.meta_var(chunk * UNITS + p * LANES)
                                for u in T.vectorized(LANES):
                                    out[1, step + row, b, unit + u] = T.sigmoid(acc[s, 4 + p, u]) * out[
                                        1, before, b, unit + u
                                    ] + T.sigmoid(acc[s, p, u]) * T.tanh(acc[s, 6 + p, u])
                                    out[0, step + row, b, unit + u] = T.sigmoid(acc[s, 2 + p, u]) * T.tanh(
                                        out[1, step + row, b, unit + u]
                                    )

    return kernel.with_attr(SCHEDULED, label_of("lstm", backwards)).with_attr("op_pattern", 8)


@dataclass(frozen=True)
class ByteTile:
    """How products of bytes are computed.

    Attributes:
        rows: sequences that are multiplied at once.
        parts: in which their sums are computed: 8 to 24 vectors lie in registers.
        shifted: whether R has zero points.
        by_dots: by the processor's dot product; else as a plain loop, which says what is computed.
    """

    rows: int
    parts: int
    shifted: bool
    by_dots: bool


@scripted.inline
def _quantise(q, h, at, step, ends):  # type: ignore[no-untyped-def]
    """Q = h[0, at] in uint8; step = its scale and zero point, which quantise 0 exactly; as DynamicQuantizeLinear."""
    for e in T.unroll(2):
        for u in T.vectorized(LANES):
            ends[e, u] = T.float32(0)
    for b in range(q.shape[0]):
        for k in range(q.shape[1] // LANES):
            for u in T.vectorized(LANES):
                ends[0, u] = T.min(ends[0, u], h[0, at, b, k * LANES + u])
            for u in T.vectorized(LANES):
                ends[1, u] = T.max(ends[1, u], h[0, at, b, k * LANES + u])
    for fold in T.unroll(4):
        for u in T.vectorized(LANES):
            ends[0, u] = T.min(ends[0, u], ends[0, (u + (8 >> fold)) % LANES])
        for u in T.vectorized(LANES):
            ends[1, u] = T.max(ends[1, u], ends[1, (u + (8 >> fold)) % LANES])
    step[0] = T.Select(ends[1, 0] == ends[0, 0], T.float32(1), (ends[1, 0] - ends[0, 0]) / T.float32(255))
    step[1] = T.nearbyint(T.float32(0) - ends[0, 0] / step[0])
    for b in range(q.shape[0]):
        for k in range(q.shape[1] // LANES):
            for u in T.vectorized(LANES):
                level = T.meta_var(T.nearbyint(h[0, at, b, k * LANES + u] / step[0]) + step[1])
                q[b, k * LANES + u] = T.Cast("uint8", T.max(T.min(level, T.float32(255)), T.float32(0)))


@scripted.inline
def _add_up(total, q, step):  # type: ignore[no-untyped-def]
    """Total = Σ (q − zero point)."""
    for b in range(q.shape[0]):
        total[b] = T.Cast("int32", step[1]) * -q.shape[1]
        for k in range(q.shape[1]):
            total[b] = total[b] + T.Cast("int32", q[b, k])


@scripted.inline
def _multiply(acc, operands, places, step, tile):  # type: ignore[no-untyped-def]
    """Acc = Σ (q − zero point) · (r − zero points), for the sequences from ``places[0]`` on and chunk ``places[1]``."""
    first, chunk = T.meta_var(places[0]), T.meta_var(places[1])
    q, total, r, sums = (
        T.meta_var(operands[0]),
        T.meta_var(operands[1]),
        T.meta_var(operands[2]),
        T.meta_var(operands[3]),
    )
    vectors = T.meta_var(VECTORS // tile.parts)
    for part in T.unroll(tile.parts):
        for i in T.unroll(tile.rows):
            for v in T.unroll(vectors):
                at = T.meta_var(part * vectors + v)
                for u in T.vectorized(LANES):
                    acc[i, at, u] = T.Cast("int32", step[1]) * -1 * sums[0, chunk, at, u]
                if tile.shifted:
                    for u in T.vectorized(LANES):
                        acc[i, at, u] = acc[i, at, u] - total[first + i] * sums[1, chunk, at, u]
        for k in range(r.shape[1]):
            for v in T.unroll(vectors):
                for i in T.unroll(tile.rows):
                    at = T.meta_var(part * vectors + v)
                    if tile.by_dots:
                        acc[i, at, T.ramp(0, 1, LANES)] = T.call_pure_extern(
                            "int32x16",
                            BYTE_DOT,
                            acc[i, at, T.ramp(0, 1, LANES)],
                            T.address_of(q[first + i, k * 4]),
                            T.address_of(r[chunk, k, at, 0, 0]),
                        )
                    else:
                        for u, j in T.grid(LANES, 4):
                            product = T.meta_var(
                                T.Cast("int32", q[first + i, k * 4 + j]) * T.Cast("int32", r[chunk, k, at, u, j])
                            )
                            acc[i, at, u] = acc[i, at, u] + product


@scripted.inline
def _byte_gates(out, rows, at, over, under):  # type: ignore[no-untyped-def]
    """out[:, rows[1]] = c' and h' of two vectors of units at ``at``, from gates in ``over`` and out[1, rows[0]].

    σ(x) = (1 + tanh(x/2)) / 2, and tanh is ``over`` by ``under``: two divisions in place of five.
    """
    for v in T.unroll(VECTORS):
        for u in T.vectorized(LANES):
            under[v, u] = tanh_under(over[v, u])
        for u in T.vectorized(LANES):
            over[v, u] = tanh_over(over[v, u])
    for p in T.unroll(2):
        unit = T.meta_var(at[1] + p * LANES)
        for u in T.vectorized(LANES):
            out[1, rows[1], at[0], unit + u] = (
                (over[4 + p, u] + under[4 + p, u]) * (under[p, u] * under[6 + p, u]) * out[1, rows[0], at[0], unit + u]
                + (over[p, u] + under[p, u]) * (over[6 + p, u] * under[4 + p, u])
            ) / (T.float32(2) * under[4 + p, u] * (under[p, u] * under[6 + p, u]))
        for u in T.vectorized(LANES):
            over[p, u] = tanh_inside(out[1, rows[1], at[0], unit + u])
        for u in T.vectorized(LANES):
            out[0, rows[1], at[0], unit + u] = (
                (over[2 + p, u] + under[2 + p, u])
                * tanh_over(over[p, u])
                / (T.float32(2) * under[2 + p, u] * tanh_under(over[p, u]))
            )


@cache  # TVM's parser takes half a second
def byte_lstm_steps(
    steps: int, batch: int, hidden: int, backwards: bool, groups: int = 0, shifted: bool = False, by_dots: bool = False
) -> tirx.PrimFunc:
    """The kernel of an LSTM with R in int8, which quantises h to uint8 in every step.

    h·R = scale of h · scale · (Σ q·r − zero point of h · Σ r − zero points · Σ (q − zero point of h)); the sums are
    int32. The parameters are x (steps, batch, hidden/32, 8, 16), r (hidden/32, hidden/4, 8, 16, 4), scale
    (hidden/32, 8, 16), sums (1 or 2, hidden/32, 8, 16), h0 and c0 (batch, hidden) → out. The rows of ``sums`` are Σ r
    and the zero points of r. Every thread quantises the whole of h: that takes less time than to meet once more.

    Args:
        steps, batch: of the sequence.
        hidden: a multiple of ``UNITS``.
        backwards: from the last step to the first.
        groups: into which the chunks are dealt; 0 makes each chunk one.
        shifted, by_dots: as ``ByteTile``.
    """
    chunks, tile = hidden // UNITS, _byte_tile(batch, shifted, by_dots)
    groups, per_group = _groups_of(chunks, groups)
    start, first, sign, row = walk_rows(steps, backwards)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, hidden // 4, VECTORS, LANES, 4), "int8"),  # type: ignore[valid-type]
        scale: T.Buffer((chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        sums: T.Buffer((1 + shifted, chunks, VECTORS, LANES), "int32"),  # type: ignore[valid-type]
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
                with T.sblock("step"):
                    T.reads(
                        x[0:steps, 0:batch, 0:chunks, 0:VECTORS, 0:LANES],
                        r[0:chunks, 0 : hidden // 4, 0:VECTORS, 0:LANES, 0:4],
                        scale[0:chunks, 0:VECTORS, 0:LANES],
                        sums[0 : 1 + shifted, 0:chunks, 0:VECTORS, 0:LANES],
                        out[0:2, 0 : steps + 1, 0:batch, 0:hidden],
                    )
                    T.writes(out[0:2, 0 : steps + 1, 0:batch, 0:hidden])
                    ends = T.alloc_buffer((2, LANES), "float32", scope="local")
                    step = T.alloc_buffer((2,), "float32", scope="local")
                    q = T.alloc_buffer((batch, hidden), "uint8", scope="local")
                    total = T.alloc_buffer((batch,), "int32", scope="local")
                    acc = T.alloc_buffer((tile.rows, VECTORS, LANES), "int32", scope="local")
                    over = T.alloc_buffer((VECTORS, LANES), "float32", scope="local")
                    under = T.alloc_buffer((VECTORS, LANES), "float32", scope="local")
                    read, now = T.meta_var(start + sign * t), T.meta_var(first + sign * t)
                    _quantise(q, out, read, step, ends)
                    if shifted:
                        _add_up(total, q, step)
                    for c in range(per_group):
                        chunk = T.meta_var(group * per_group + c + t % 2 * (per_group - 1 - 2 * c))
                        for bs in range(batch // tile.rows):
                            _multiply(acc, (q, total, r, sums), (bs * tile.rows, chunk), step, tile)
                            for i in T.unroll(tile.rows):
                                b = T.meta_var(bs * tile.rows + i)
                                for v in T.unroll(VECTORS):
                                    for u in T.vectorized(LANES):
                                        over[v, u] = tanh_inside(
                                            (
                                                x[now, b, chunk, v, u]
                                                + T.Cast("float32", acc[i, v, u]) * (step[0] * scale[chunk, v, u])
                                            )
                                            * T.Select(v < 6, T.float32(0.5), T.float32(1))
                                        )
                                _byte_gates(out, (read, now + row), (b, chunk * UNITS), over, under)

    return kernel.with_attr(SCHEDULED, label_of(BYTES, backwards)).with_attr("op_pattern", 8)


def _byte_tile(batch: int, shifted: bool, by_dots: bool) -> ByteTile:
    """Sequences that share what is read of R, if as many divide the batch."""
    rows, parts = next(split for split in ((4, 2), (3, 1), (2, 1), (1, 1)) if batch % split[0] == 0)
    return ByteTile(rows, parts, shifted, by_dots)


@cache  # TVM's parser takes half a second
def gru_steps(steps: int, batch: int, units: int, backwards: bool, groups: int = 0, tile: int = 1) -> tirx.PrimFunc:
    """The kernel of a GRU that resets after the product (``linear_before_reset``).

    z, r = σ(x + h·R), n = tanh(x + r∘(h·R + b)), h' = (1 − z)∘n + z∘h; x (steps, batch, chunks, 6, 16),
    r (chunks, units, 6, 16), b (chunks, 2, 16), h0 (batch, 32 · chunks) → out (1, steps + 1, batch, 32 · chunks).

    Args:
        steps, batch, units, backwards, groups: as ``lstm_steps``.
    """
    hidden = UNITS * (chunks := -(-units // UNITS))
    groups, per_group = _groups_of(chunks, groups)
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
                with T.sblock("step"):
                    T.reads(
                        x[0:steps, 0:batch, 0:chunks, 0:vectors, 0:LANES],
                        r[0:chunks, 0:units, 0:vectors, 0:LANES],
                        bias[0:chunks, 0:2, 0:LANES],
                        out[0:1, 0 : steps + 1, 0:batch, 0:hidden],
                    )
                    T.writes(out[0:1, 0 : steps + 1, 0:batch, 0:hidden])
                    acc = T.alloc_buffer((tile, vectors, LANES), "float32", scope="local")
                    before, step = T.meta_var(start + sign * t), T.meta_var(first + sign * t)
                    for c, bs in T.grid(per_group, batch // tile):
                        chunk = T.meta_var(group * per_group + c + t % 2 * (per_group - 1 - 2 * c))
                        for s in T.unroll(tile):
                            for v in T.unroll(4):
                                for u in T.vectorized(LANES):
                                    acc[s, v, u] = x[step, bs * tile + s, chunk, v, u]
                            for v in T.unroll(2):
                                for u in T.vectorized(LANES):
                                    acc[s, 4 + v, u] = bias[chunk, v, u]
                        _add_products(acc, out, (before, bs * tile), r, chunk)
                        for s in T.unroll(tile):
                            for p in T.unroll(2):
                                b, unit = T.meta_var(bs * tile + s), T.meta_var(chunk * UNITS + p * LANES)
                                for u in T.vectorized(LANES):
                                    acc[s, 4 + p, u] = T.tanh(
                                        x[step, b, chunk, 4 + p, u] + T.sigmoid(acc[s, 2 + p, u]) * acc[s, 4 + p, u]
                                    )
                                    out[0, step + row, b, unit + u] = acc[s, 4 + p, u] + (
                                        T.sigmoid(acc[s, p, u]) * (out[0, before, b, unit + u] - acc[s, 4 + p, u])
                                    )

    return kernel.with_attr(SCHEDULED, label_of("gru", backwards)).with_attr("op_pattern", 8)


MAKERS = {"lstm": lstm_steps, "gru": gru_steps}
"""Beginning of a kernel's attribute → function that makes the kernel."""
