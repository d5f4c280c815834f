"""All steps of an LSTM, or a GRU, in one kernel; hand-scheduled, nothing to tune.

Input: the product of all steps with the input weights, biases added. What is left per step is h·R and the gates:

    for step:                             one after the other
      for group of chunks: parallel       a thread gets the same chunks every step, so their weights stay in its L2
        for chunk of 32 units:            there and back: what was read last is read first in the next step
          acc[4 gates · 2][16] = x[step, chunk]
          for k in hidden:  acc += h[k] · R[chunk, k]        8 vectors: enough to hide the latency of an FMA
          c = σ(f)·c + σ(i)·tanh(g);  h = σ(o)·tanh(c)

Weights that are a little larger than L2 and are read in the same order in every step are evicted just before they are
needed, all of them. Read to and fro, only what does not fit is: 2 MiB of weights per core of 2 MiB of L2 take 2.2
instead of 3.1 ms for 100 steps, 4 MiB on one core 9.6 instead of 15 ms.

R is packed [chunk][k][gate][32], so that a chunk is read as one stream. Step t writes row t + 1 (walking backwards:
row t of the same step) of ``out`` (2, steps + 1, batch, hidden), h first, then c; one row holds the initial state.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

UNITS = 32
"""Hidden units of a chunk."""

LANES = 16
VECTORS = 4 * UNITS // LANES

SCHEDULED = "tune.scheduled"
"""Attribute of functions that are scheduled as they stand."""


def _walk(steps: int, backwards: bool) -> tuple[int, int, int, int]:
    """Row of ``out`` with the initial state; the first step; from a step to the next one, and to the row it writes."""
    return (steps, steps - 1, -1, 0) if backwards else (0, 0, 1, 1)


def _groups_of(chunks: int, groups: int) -> tuple[int, int]:
    """Groups and the chunks of each; chunks that cannot be dealt evenly are a group each."""
    groups = groups if groups and chunks % groups == 0 else chunks
    return groups, chunks // groups


BACKWARDS = " backwards"


def _label(kind: str, backwards: bool) -> str:
    return kind + (BACKWARDS if backwards else "")


def for_threads(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """A kernel of this module for so many threads: each has one group of chunks, if they can be dealt evenly."""
    label = str(func.attrs[SCHEDULED])
    steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
    make = {"lstm": lstm_steps, "gru": gru_steps}[label.removesuffix(BACKWARDS)]
    return make(steps, batch, chunks * UNITS, label.endswith(BACKWARDS), threads)


def lstm_steps(steps: int, batch: int, hidden: int, backwards: bool, groups: int = 0) -> tirx.PrimFunc:
    """The kernel: x (steps, batch, hidden/32, 8, 16), r (hidden/32, hidden, 8, 16), h0 and c0 (batch, hidden) → out.

    Args:
        steps, batch: of the sequence.
        hidden: a multiple of ``UNITS``.
        backwards: from the last step to the first.
        groups: into which the chunks are dealt; 0 makes each chunk one.
    """
    chunks = hidden // UNITS
    groups, each = _groups_of(chunks, groups)
    start, first, sign, row = _walk(steps, backwards)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, hidden, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
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
                        r[0:chunks, 0:hidden, 0:VECTORS, 0:LANES],
                        out[0:2, 0 : steps + 1, 0:batch, 0:hidden],
                    )
                    T.writes(out[0:2, 0 : steps + 1, 0:batch, 0:hidden])
                    acc = T.alloc_buffer((VECTORS, LANES), "float32", scope="local")
                    for c in range(each):
                        chunk = T.meta_var(group * each + c + t % 2 * (each - 1 - 2 * c))
                        for b in range(batch):
                            for v in T.unroll(VECTORS):
                                for u in T.vectorized(LANES):
                                    acc[v, u] = x[first + sign * t, b, chunk, v, u]
                            for k in range(hidden):
                                for v in T.unroll(VECTORS):
                                    for u in T.vectorized(LANES):
                                        acc[v, u] = acc[v, u] + out[0, start + sign * t, b, k] * r[chunk, k, v, u]
                            for p in T.unroll(2):
                                for u in T.vectorized(LANES):
                                    out[1, first + sign * t + row, b, chunk * UNITS + p * LANES + u] = T.sigmoid(
                                        acc[4 + p, u]
                                    ) * out[1, start + sign * t, b, chunk * UNITS + p * LANES + u] + T.sigmoid(
                                        acc[p, u]
                                    ) * T.tanh(acc[6 + p, u])
                                for u in T.vectorized(LANES):
                                    out[0, first + sign * t + row, b, chunk * UNITS + p * LANES + u] = T.sigmoid(
                                        acc[2 + p, u]
                                    ) * T.tanh(out[1, first + sign * t + row, b, chunk * UNITS + p * LANES + u])

    return kernel.with_attr(SCHEDULED, _label("lstm", backwards)).with_attr("op_pattern", 8)


def gru_steps(steps: int, batch: int, hidden: int, backwards: bool, groups: int = 0) -> tirx.PrimFunc:
    """The kernel of a GRU that resets after the product (``linear_before_reset``).

    z, r = σ(x + h·R), n = tanh(x + r∘(h·R + b)), h' = (1 − z)∘n + z∘h; x (steps, batch, hidden/32, 6, 16),
    r (hidden/32, hidden, 6, 16), b (hidden/32, 2, 16), h0 (batch, hidden) → out (1, steps + 1, batch, hidden).

    Args:
        steps, batch: of the sequence.
        hidden: a multiple of ``UNITS``.
        backwards: from the last step to the first.
        groups: into which the chunks are dealt; 0 makes each chunk one.
    """
    chunks = hidden // UNITS
    groups, each = _groups_of(chunks, groups)
    vectors = 3 * UNITS // LANES
    start, first, sign, row = _walk(steps, backwards)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, vectors, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, hidden, vectors, LANES), "float32"),  # type: ignore[valid-type]
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
                        r[0:chunks, 0:hidden, 0:vectors, 0:LANES],
                        bias[0:chunks, 0:2, 0:LANES],
                        out[0:1, 0 : steps + 1, 0:batch, 0:hidden],
                    )
                    T.writes(out[0:1, 0 : steps + 1, 0:batch, 0:hidden])
                    acc = T.alloc_buffer((vectors, LANES), "float32", scope="local")
                    for c in range(each):
                        chunk = T.meta_var(group * each + c + t % 2 * (each - 1 - 2 * c))
                        for b in range(batch):
                            for v in T.unroll(4):
                                for u in T.vectorized(LANES):
                                    acc[v, u] = x[first + sign * t, b, chunk, v, u]
                            for v in T.unroll(2):
                                for u in T.vectorized(LANES):
                                    acc[4 + v, u] = bias[chunk, v, u]
                            for k in range(hidden):
                                for v in T.unroll(vectors):
                                    for u in T.vectorized(LANES):
                                        acc[v, u] = acc[v, u] + out[0, start + sign * t, b, k] * r[chunk, k, v, u]
                            for p in T.unroll(2):
                                for u in T.vectorized(LANES):
                                    acc[4 + p, u] = T.tanh(
                                        x[first + sign * t, b, chunk, 4 + p, u]
                                        + T.sigmoid(acc[2 + p, u]) * acc[4 + p, u]
                                    )
                                for u in T.vectorized(LANES):
                                    out[0, first + sign * t + row, b, chunk * UNITS + p * LANES + u] = acc[4 + p, u] + (
                                        T.sigmoid(acc[p, u])
                                        * (out[0, start + sign * t, b, chunk * UNITS + p * LANES + u] - acc[4 + p, u])
                                    )

    return kernel.with_attr(SCHEDULED, _label("gru", backwards)).with_attr("op_pattern", 8)
