"""All steps of an LSTM whose R is in int8 in one kernel (``recurrent_steps.py`` has those of floats).

Each step quantises h as ONNX Runtime's DynamicQuantizeLSTM does, by the range of the whole batch, and sums bytes in
int32. The bound is reading R, as with floats, of a quarter of the bytes.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from dataclasses import dataclass
from functools import cache

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.recurrent_steps import LANES, UNITS, VECTORS, groups_of, labelled, walk_rows
from schedules.templates.common.vector_math import tanh_inside, tanh_over, tanh_under
from schedules.templates.instructions.dots import U8S8, best_symbol

BYTES = "lstm8"
"""First word of the attribute of a kernel with R in int8."""

BYTE_AXES = ("chunk", "k/4", "vector", "lane", "k%4")
"""Axes of R in int8."""

BYTE_DOT = best_symbol(U8S8, LANES)

SUMS = 3
"""Parameter of a kernel with R in int8 that is as long as R has rows of corrections."""


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
    groups, per_group = groups_of(chunks, groups)
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

    return labelled(kernel, BYTES, backwards)


def _byte_tile(batch: int, shifted: bool, by_dots: bool) -> ByteTile:
    """Sequences that share what is read of R, if as many divide the batch."""
    rows, parts = next(split for split in ((4, 2), (3, 1), (2, 1), (1, 1)) if batch % split[0] == 0)
    return ByteTile(rows, parts, shifted, by_dots)
