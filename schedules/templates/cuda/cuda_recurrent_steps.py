"""The kernels of ``cuda_recurrent``, written by hand.

A function is one kernel for all steps, or one launch per step. It has an outer loop over launches and an inner loop
over the steps of a launch; one of the two has a single iteration. TVM inserts ``__syncthreads`` between the phases of a
step, because it sees which threads read what others wrote to shared memory.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from dataclasses import dataclass

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.recurrent_steps import BACKWARDS, LANES, SCHEDULED, UNITS, label_of, walk_rows

GATES = {"lstm": 4, "gru": 3}
VECTOR = 4  # floats of one 16-byte load from shared memory


@dataclass(frozen=True)
class Walk:
    """A recurrent layer in one direction.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden: units, a multiple of ``UNITS``.
    """

    kind: str
    steps: int
    batch: int
    hidden: int
    backwards: bool

    @property
    def label(self) -> str:
        """The value of ``SCHEDULED``."""
        return label_of(self.kind, self.backwards)

    @property
    def gates(self) -> int:
        """Products of a unit with the state in every step."""
        return GATES[self.kind]


@dataclass(frozen=True)
class Tile:
    """How a step is shared among threads; see the module.

    Attributes:
        keep: whether R is kept in registers.
    """

    rows: int
    units: int
    ways: int
    keep: bool


def walk_of(func: tirx.PrimFunc) -> Walk | None:
    """Return the layer that ``func`` computes; None if it is no recurrent layer."""
    label = str(func.attrs[SCHEDULED]) if func.attrs and SCHEDULED in func.attrs else ""
    kind = label.removesuffix(BACKWARDS)
    if kind not in GATES:
        return None
    steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
    return Walk(kind, steps, batch, chunks * UNITS, label.endswith(BACKWARDS))


def untuned(layer: Walk) -> tirx.PrimFunc:
    """Return the layer with one launch per step and one thread per sum."""
    return steps_of(layer, Tile(1, UNITS, 1, keep=False))


@dataclass(frozen=True)
class _Thread:
    """The work of one thread of a block; expressions of the kernel, but for ``tile`` and ``threads``.

    Attributes:
        threads: of the block; ``number`` of this one.
        way: the part of every sum that is its own.
        b0, u0: first sequence and first unit of the block.
        chunk, packed: where the weights of its gate lie: chunk of units, and place in it.
    """

    tile: Tile
    threads: int
    number: tirx.Expr
    way: tirx.Expr
    b0: tirx.Expr
    u0: tirx.Expr
    chunk: tirx.Expr
    packed: tirx.Expr

    @staticmethod
    def of(layer: Walk, tile: Tile, block: tirx.Expr, way: tirx.Expr, column: tirx.Expr) -> "_Thread":
        """Return the thread (``column``, ``way``) of ``block``."""
        columns, groups = layer.gates * tile.units, layer.hidden // tile.units
        u0 = block % groups * tile.units
        unit = u0 + column % tile.units
        packed = column // tile.units * UNITS + unit % UNITS
        number, b0 = way * columns + column, block // groups * tile.rows
        return _Thread(tile, columns * tile.ways, number, way, b0, u0, unit // UNITS, packed)

    def item(self, i: int) -> tirx.Expr:
        """Return the number of the ``i``-th pair of sequence and unit whose state the thread computes."""
        return i * self.threads + self.number

    def has(self, i: int) -> tirx.Expr:
        """Return whether there is an ``i``-th one."""
        return self.item(i) < self.tile.rows * self.tile.units

    def b(self, i: int) -> tirx.Expr:
        """Return its sequence, counted within the block."""
        return self.item(i) // self.tile.units

    def u(self, i: int) -> tirx.Expr:
        """Return its unit, counted within the block."""
        return self.item(i) % self.tile.units

    def k(self, piece: tirx.Expr) -> tirx.Expr:
        """Return the first of the ``VECTOR`` numbers along k of the thread's ``piece``."""
        return (piece * self.tile.ways + self.way) * VECTOR


@scripted.inline
def _fetch_state(h, out, row, thread):  # type: ignore[no-untyped-def]
    """Copy a row of h to shared memory, by all threads of the block."""
    for i in range((h.shape[0] * h.shape[1] + thread.threads - 1) // thread.threads):
        at = T.meta_var(thread.item(i))
        if at < h.shape[0] * h.shape[1]:
            h[at // h.shape[1], at % h.shape[1]] = out[0, row, thread.b0 + at // h.shape[1], at % h.shape[1]]


@scripted.inline
def _fetch_own(c, out, row, thread):  # type: ignore[no-untyped-def]
    """Copy the last state (c of an LSTM, h of a GRU) of the thread's own sequences and units to its registers."""
    for i in T.unroll(c.shape[0]):
        if thread.has(i):
            c[i] = out[out.shape[0] - 1, row, thread.b0 + thread.b(i), thread.u0 + thread.u(i)]


@scripted.inline
def _keep_weights(kept, r, thread):  # type: ignore[no-untyped-def]
    for piece in T.unroll(kept.shape[0]):
        for q in T.unroll(VECTOR):
            kept[piece, q] = r[thread.chunk, thread.k(piece) + q, thread.packed // LANES, thread.packed % LANES]


@scripted.inline
def _multiply(acc, state, h, kept, r, thread):  # type: ignore[no-untyped-def]
    """The thread's share of h · R, for every sequence of the block."""
    for i in T.unroll(acc.shape[0]):
        acc[i] = T.float32(0)
    if thread.tile.keep:
        for piece in T.unroll(kept.shape[0]):
            for i in T.unroll(acc.shape[0]):
                for q in T.vectorized(VECTOR):
                    state[q] = h[i, thread.k(piece) + q]
                for q in T.unroll(VECTOR):
                    acc[i] = acc[i] + state[q] * kept[piece, q]
    else:
        for piece in range(h.shape[1] // thread.tile.ways // VECTOR):
            for q in T.unroll(VECTOR):
                kept[0, q] = r[thread.chunk, thread.k(piece) + q, thread.packed // LANES, thread.packed % LANES]
            for i in T.unroll(acc.shape[0]):
                for q in T.vectorized(VECTOR):
                    state[q] = h[i, thread.k(piece) + q]
                for q in T.unroll(VECTOR):
                    acc[i] = acc[i] + state[q] * kept[0, q]


@scripted.inline
def _fetch_input(share, x, t, thread):  # type: ignore[no-untyped-def]
    """Copy the input's share of the thread's own sequences and units: it takes as long as the sums, which come next."""
    for i in T.unroll(share.shape[0]):
        u = T.meta_var(thread.u0 + thread.u(i))
        if thread.has(i):
            for g in T.unroll(share.shape[1]):
                share[i, g] = x[t, thread.b0 + thread.b(i), u // UNITS, (g * UNITS + u % UNITS) // LANES, u % LANES]


@scripted.inline
def _sum_ways(total, parts, b, u, units):  # type: ignore[no-untyped-def]
    for g in T.unroll(total.shape[0]):
        total[g] = parts[0, b, g * units + u]
        for w in T.unroll(parts.shape[0] - 1):
            total[g] = total[g] + parts[w + 1, b, g * units + u]


@scripted.inline
def _lstm_gates(total, share, c, i):  # type: ignore[no-untyped-def]
    """c' = σ(f)·c + σ(i)·tanh(g); total[0] = h' = σ(o)·tanh(c')."""
    for g in T.unroll(4):
        total[g] = total[g] + share[i, g]
    c[i] = T.sigmoid(total[2]) * c[i] + T.sigmoid(total[0]) * T.tanh(total[3])
    total[0] = T.sigmoid(total[1]) * T.tanh(c[i])


@scripted.inline
def _gru_gates(total, share, c, i, bias, u):  # type: ignore[no-untyped-def]
    """n = tanh(x + σ(r)·(h·R + bias)); total[0] = h' = (1 − σ(z))·n + σ(z)·h."""
    for g in T.unroll(2):
        total[g] = total[g] + share[i, g]
    total[2] = T.tanh(share[i, 2] + T.sigmoid(total[1]) * (total[2] + bias[u // UNITS, u % UNITS // LANES, u % LANES]))
    c[i] = total[2] + T.sigmoid(total[0]) * (c[i] - total[2])
    total[0] = c[i]


def steps_of(layer: Walk, tile: Tile) -> tirx.PrimFunc:
    """Return the layer for a GPU, with the parameters of ``by_hand/recurrent_steps.py``.

    ``one`` and ``two`` are the third and the fourth: h0 and c0 of an LSTM, the bias and h0 of a GRU.
    """
    steps, batch, hidden, gates = layer.steps, layer.batch, layer.hidden, layer.gates
    lstm, chunks, vectors = layer.kind == "lstm", hidden // UNITS, gates * UNITS // LANES
    rows, units = tile.rows, tile.units
    start, first, sign, row = walk_rows(steps, layer.backwards)
    launches, inner = (1, steps) if units == hidden else (steps, 1)
    columns, states = gates * units, 2 if lstm else 1
    own = -(-rows // (gates * tile.ways))
    pieces = hidden // tile.ways // VECTOR if tile.keep else 1
    shape_one = (batch, hidden) if lstm else (chunks, 2, LANES)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((steps, batch, chunks, vectors, LANES), "float32"),  # type: ignore[valid-type]
        r: T.Buffer((chunks, hidden, vectors, LANES), "float32"),  # type: ignore[valid-type]
        one: T.Buffer(shape_one, "float32"),  # type: ignore[valid-type]
        two: T.Buffer((batch, hidden), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((states, steps + 1, batch, hidden), "float32"),  # type: ignore[valid-type]
    ):
        for block in T.thread_binding(batch * chunks, thread="blockIdx.x"):
            for unit in T.thread_binding(UNITS, thread="threadIdx.x"):
                with T.sblock("begin"):
                    b = T.meta_var(block // chunks)
                    u = T.meta_var(block % chunks * UNITS + unit)
                    T.reads(one[b, u] if lstm else two[b, u], two[b, u])
                    T.writes(out[0:states, start, b, u])
                    if lstm:
                        out[0, start, b, u] = one[b, u]
                        out[1, start, b, u] = two[b, u]
                    else:
                        out[0, start, b, u] = two[b, u]
        for launch in range(launches):
            for block in T.thread_binding(batch // rows * (hidden // units), thread="blockIdx.x"):
                for way in T.thread_binding(tile.ways, thread="threadIdx.y"):
                    for column in T.thread_binding(columns, thread="threadIdx.x"):
                        with T.sblock("step"):
                            T.reads(
                                x[0:steps, 0:batch, 0:chunks, 0:vectors, 0:LANES],
                                r[0:chunks, 0:hidden, 0:vectors, 0:LANES],
                                out[0:states, 0 : steps + 1, 0:batch, 0:hidden],
                            )
                            T.writes(out[0:states, 0 : steps + 1, 0:batch, 0:hidden])
                            h = T.alloc_buffer((rows, hidden), "float32", scope="shared")
                            c = T.alloc_buffer((own,), "float32", scope="local")
                            parts = T.alloc_buffer((tile.ways, rows, columns), "float32", scope="shared")
                            acc = T.alloc_buffer((rows,), "float32", scope="local")
                            state = T.alloc_buffer((VECTOR,), "float32", scope="local")
                            kept = T.alloc_buffer((pieces, VECTOR), "float32", scope="local")
                            share = T.alloc_buffer((own, gates), "float32", scope="local")
                            total = T.alloc_buffer((gates,), "float32", scope="local")
                            thread = T.meta_var(_Thread.of(layer, tile, block, way, column))
                            _fetch_state(h, out, start + sign * launch, thread)
                            _fetch_own(c, out, start + sign * launch, thread)
                            if tile.keep:
                                _keep_weights(kept, r, thread)
                            for step in range(inner):
                                t = T.meta_var(first + sign * (launch * inner + step))
                                _fetch_input(share, x, t, thread)
                                _multiply(acc, state, h, kept, r, thread)
                                for i in T.unroll(rows):
                                    parts[way, i, column] = acc[i]
                                for i in T.unroll(own):
                                    b = T.meta_var(thread.b(i))
                                    u = T.meta_var(thread.u0 + thread.u(i))
                                    if thread.has(i):
                                        _sum_ways(total, parts, b, thread.u(i), units)
                                        if lstm:
                                            _lstm_gates(total, share, c, i)
                                            out[1, t + row, thread.b0 + b, u] = c[i]
                                        else:
                                            _gru_gates(total, share, c, i, one, u)
                                        out[0, t + row, thread.b0 + b, u] = total[0]
                                        if inner > 1:
                                            h[b, u] = total[0]

    return kernel.with_attr(SCHEDULED, layer.label).with_attr("op_pattern", 8)
