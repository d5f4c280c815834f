"""Both directions of an LSTM or a GRU in one kernel, which is told how many steps to compute.

A step of each direction may have a thread of its own: threads then meet half as often as where they share the chunks of
one direction after the other, and a thread that comes late misses some steps only.

The parameters are those of ``recurrent_steps.py``. Chunks of units, and sequences of states, of the second direction
lie behind those of the first: x (steps, batch, 2 · chunks, vectors, 16), r (2 · chunks, units, vectors, 16), the
bias of a GRU (2 · chunks, 2, 16), h0 and an LSTM's c0 (2 · batch, 32 · chunks), the number of steps (1,) in int32 → out
(states, steps + 2, 2 · batch, 32 · chunks). The state after step t is row t + 1 in both directions. The one to begin
with is row 0 forwards, and the row behind the last step backwards.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from functools import cache

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.recurrent_steps import (
    LANES,
    SCHEDULED,
    UNITS,
    VECTORS,
    groups_of,
    gru_chunks,
    lstm_chunks,
)

BOTH = " both"
"""End of the attribute of these kernels."""

APART = 0
"""Groups of a kernel in which the directions walk side by side, on a thread each."""


def rows_of(t: tirx.Expr, last: tirx.Expr, d: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
    """The row read, the step and the row written at turn ``t`` of direction ``d``, of ``last`` turns."""
    turn = last - 1 - 2 * t
    return t + d * (turn + 2), t + d * turn, t + 1 + d * turn


@cache  # TVM's parser takes half a second
def lstm_both_ways(steps: int, batch: int, units: int, groups: int = 1, tile: int = 1) -> tirx.PrimFunc:
    """The kernel of an LSTM; arguments are those of ``lstm_steps``, ``groups`` may be ``APART``."""
    hidden, apart = UNITS * (chunks := -(-units // UNITS)), groups == APART
    groups, per_group = (1, chunks) if apart else groups_of(chunks, groups)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, 2 * chunks, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((2 * chunks, units, VECTORS, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((2 * batch, hidden), "float32"),  # type: ignore[valid-type]
        c0: T.Buffer((2 * batch, hidden), "float32"),  # type: ignore[valid-type]
        last: T.Buffer((1,), "int32"),  # type: ignore[valid-type]
        out: T.Buffer((2, steps + 2, 2 * batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for d in range(2):
            for b in range(batch):
                for k in range(hidden):
                    out[0, d * (last[0] + 1), d * batch + b, k] = h0[d * batch + b, k]
                    out[1, d * (last[0] + 1), d * batch + b, k] = c0[d * batch + b, k]
        if apart:
            for t in range(last[0]):
                for d in T.parallel(2):
                    with T.sblock("step"):
                        lstm_chunks(x, r, out, rows_of(t, last[0], d), (t, 0, d), (per_group, tile))
        else:
            for d in range(2):
                for t in range(last[0]):
                    for group in T.parallel(groups):
                        with T.sblock("step"):
                            lstm_chunks(x, r, out, rows_of(t, last[0], d), (t, group, d), (per_group, tile))

    return kernel.with_attr(SCHEDULED, f"lstm{BOTH}").with_attr("op_pattern", 8)


@cache  # TVM's parser takes half a second
def gru_both_ways(steps: int, batch: int, units: int, groups: int = 1, tile: int = 1) -> tirx.PrimFunc:
    """The kernel of a GRU; arguments are those of ``gru_steps``, ``groups`` may be ``APART``."""
    hidden, apart = UNITS * (chunks := -(-units // UNITS)), groups == APART
    vectors = 3 * UNITS // LANES
    groups, per_group = (1, chunks) if apart else groups_of(chunks, groups)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, 2 * chunks, vectors, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((2 * chunks, units, vectors, LANES), "float32"),  # type: ignore[valid-type]
        bias: T.Buffer((2 * chunks, 2, LANES), "float32"),  # type: ignore[valid-type]
        h0: T.Buffer((2 * batch, hidden), "float32"),  # type: ignore[valid-type]
        last: T.Buffer((1,), "int32"),  # type: ignore[valid-type]
        out: T.Buffer((1, steps + 2, 2 * batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for d in range(2):
            for b in range(batch):
                for k in range(hidden):
                    out[0, d * (last[0] + 1), d * batch + b, k] = h0[d * batch + b, k]
        if apart:
            for t in range(last[0]):
                for d in T.parallel(2):
                    with T.sblock("step"):
                        gru_chunks(x, r, bias, out, rows_of(t, last[0], d), (t, 0, d), (per_group, tile))
        else:
            for d in range(2):
                for t in range(last[0]):
                    for group in T.parallel(groups):
                        with T.sblock("step"):
                            gru_chunks(x, r, bias, out, rows_of(t, last[0], d), (t, group, d), (per_group, tile))

    return kernel.with_attr(SCHEDULED, f"gru{BOTH}").with_attr("op_pattern", 8)


MAKERS_BOTH = {"lstm": lstm_both_ways, "gru": gru_both_ways}
"""Beginning of a kernel's attribute → function that makes the kernel."""
