"""Scatters as one kernel: what updates change is copied, then every update is applied in the order of its index.

    out = data                                       rows: one place for a whole row of ``width`` elements
    for n in count:                                  elements: a place of its own for every element
      out[place[n]] = out[place[n]] op updates[n]

Updates of one destination keep their order, as in ONNX Runtime, so results do not depend on the number of threads.
Threads share the work without meeting each other: slabs are apart, and the threads of one slab share it in the first
of these ways that fits.

    columns         each has some columns of every row, a multiple of a vector, and walks all updates
    destinations    each has some rows, walks all updates and skips those of others

The bound is memory: data once, updates once, the result once; places are read once per thread.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted
from schedules.templates.by_hand.recurrent_steps import SCHEDULED

LABEL = "scatter "

LANES = 16
"""Elements of a vector operation, and the least columns of a thread: a line of the cache in fp32."""

LEAST = 1 << 15
"""Elements that are read and written below which one thread does all: some 5 µs, several times what waking costs."""

LEAST_SKIPPED = 8
"""Elements of a row from which threads walk all updates to skip those of others: skipping costs a mispredicted jump."""

REDUCTIONS = ("none", "add", "mul", "min", "max")

TYPES = frozenset({"float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"})
"""Types that the kernels take."""


@dataclass(frozen=True)
class ScatterShape:
    """The tensors of a kernel that scatters: data (slabs, ``sizes`` …, width) and updates (slabs, count, width).

    Attributes:
        sizes: of the axes that a place has an index for.
        whole_rows: whether places (slabs, count, indices) are of whole rows; else they are (slabs, count, width).
        dtype, index: of the elements, and of the places.
        reduction: one of ``REDUCTIONS``.
    """

    slabs: int
    sizes: tuple[int, ...]
    count: int
    width: int
    whole_rows: bool
    dtype: str
    index: str
    reduction: str

    @property
    def rows(self) -> int:
        """Destinations of a slab."""
        product = 1
        for size in self.sizes:
            product *= size
        return product

    def split(self, threads: int) -> tuple[int, int]:
        """(columns, destinations) into which every slab is cut for ``threads`` threads; (0, 0) for one thread."""
        moved = self.slabs * self.width * (2 * self.rows + self.count)
        if threads == 1 or moved < LEAST:
            return 0, 0
        share = -(-threads // self.slabs)  # threads per slab
        step = LANES if self.whole_rows else 1
        for columns in range(min(share, max(1, self.width // LANES)), 1, -1):
            if self.width % (columns * step) == 0:
                return columns, 1
        if share > 1 and self.whole_rows and self.width >= LEAST_SKIPPED and self.rows >= share:
            return 1, share
        return (1, 1) if self.slabs > 1 else (0, 0)


def for_threads(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """The same kernel for ``threads`` threads."""
    fields = json.loads(str(func.attrs[SCHEDULED]).removeprefix(LABEL))
    return scatter(ScatterShape(**{**fields, "sizes": tuple(fields["sizes"])}), threads)


@lru_cache(maxsize=64)  # TVM's script takes some time for each, and the layers of a graph network have one shape
def scatter(shape: ScatterShape, threads: int = 1) -> tirx.PrimFunc:
    """The kernel: data, places, updates → out, all of the shapes that ``ScatterShape`` says; sizes are one axis."""
    columns, parts = shape.split(threads)
    loop = T.parallel if columns else T.serial
    columns = max(columns, 1)
    kernel = _rows(shape, loop, columns, max(parts, 1)) if shape.whole_rows else _elements(shape, loop, columns)
    label = LABEL + json.dumps(asdict(shape), sort_keys=True)
    return kernel.with_attr(SCHEDULED, label).with_attr("op_pattern", 8)


def _applied(reduction: str, old: tirx.Expr, new: tirx.Expr) -> tirx.Expr:
    """Return the new value of an element; a comparison keeps the second operand at NaN, as ONNX Runtime's does."""
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    if reduction == "min":
        return tirx.Select(old < new, old, new)
    return tirx.Select(old > new, old, new) if reduction == "max" else new


def _within(place: tirx.Expr, size: int) -> tirx.Expr:
    """A place counted from the start, held within its axis."""
    place = tirx.Cast("int64", place)
    wrapped = tirx.Select(place < 0, place + size, place)
    return tirx.max(tirx.min(wrapped, tirx.const(size - 1, "int64")), tirx.const(0, "int64"))


@scripted.inline
def _move(out, row, source, line, first, reduction):  # type: ignore[no-untyped-def]
    """Elements of ``source`` join those of a row; both are (slab, row), and ``first`` is (first element, count)."""
    for w in range(first[1] // LANES):
        for u in T.vectorized(LANES):
            out[row[0], row[1], first[0] + w * LANES + u] = _applied(
                reduction,
                out[row[0], row[1], first[0] + w * LANES + u],
                source[line[0], line[1], first[0] + w * LANES + u],
            )
    if first[1] % LANES > 0:
        for u in T.vectorized(first[1] % LANES):
            out[row[0], row[1], first[0] + first[1] // LANES * LANES + u] = _applied(
                reduction,
                out[row[0], row[1], first[0] + first[1] // LANES * LANES + u],
                source[line[0], line[1], first[0] + first[1] // LANES * LANES + u],
            )


def _row(places: tirx.Buffer, slab: tirx.Expr, n: tirx.Expr, sizes: tuple[int, ...]) -> tirx.Expr:
    """The row that an update goes to."""
    row = tirx.const(0, "int64")
    for axis, size in enumerate(sizes):
        row = row * size + _within(places[slab, n, axis], size)
    return row


def _rows(shape: ScatterShape, loop, columns: int, parts: int) -> tirx.PrimFunc:  # type: ignore[no-untyped-def]
    """Whole rows: every job has some columns and some destinations of a slab."""
    slabs, count, width, dtype, rows = shape.slabs, shape.count, shape.width, shape.dtype, shape.rows
    own, share = width // columns, -(-rows // parts)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        data: T.Buffer((slabs, rows, width), dtype),  # type: ignore[valid-type]
        places: T.Buffer((slabs, count, len(shape.sizes)), shape.index),  # type: ignore[valid-type]
        updates: T.Buffer((slabs, count, width), dtype),  # type: ignore[valid-type]
        out: T.Buffer((slabs, rows, width), dtype),  # type: ignore[valid-type]
    ):
        for job in loop(slabs * columns * parts):
            with T.sblock("scatter"):
                T.reads(
                    data[0:slabs, 0:rows, 0:width],
                    places[0:slabs, 0:count, 0 : len(shape.sizes)],
                    updates[0:slabs, 0:count, 0:width],
                )
                T.writes(out[0:slabs, 0:rows, 0:width])
                row = T.alloc_buffer((1,), "int64", scope="local")
                slab = T.meta_var(job // (columns * parts))
                first = T.meta_var(job // parts % columns * own)
                start = T.meta_var(T.Cast("int64", job % parts * share))
                for r in range(share):
                    if start + r < rows:
                        _move(out, (slab, start + r), data, (slab, start + r), (first, own), "none")
                for n in range(count):
                    row[0] = _row(places, slab, n, shape.sizes)
                    if parts == 1:
                        _move(out, (slab, row[0]), updates, (slab, n), (first, own), shape.reduction)
                    else:
                        if T.And(row[0] >= start, row[0] < start + share):
                            _move(out, (slab, row[0]), updates, (slab, n), (first, own), shape.reduction)

    return kernel


def _elements(shape: ScatterShape, loop, columns: int) -> tirx.PrimFunc:  # type: ignore[no-untyped-def]
    """A place for every element: every job has some columns of a slab."""
    slabs, count, width, dtype, rows = shape.slabs, shape.count, shape.width, shape.dtype, shape.rows
    own = width // columns

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        data: T.Buffer((slabs, rows, width), dtype),  # type: ignore[valid-type]
        places: T.Buffer((slabs, count, width), shape.index),  # type: ignore[valid-type]
        updates: T.Buffer((slabs, count, width), dtype),  # type: ignore[valid-type]
        out: T.Buffer((slabs, rows, width), dtype),  # type: ignore[valid-type]
    ):
        for job in loop(slabs * columns):
            with T.sblock("scatter"):
                T.reads(
                    data[0:slabs, 0:rows, 0:width],
                    places[0:slabs, 0:count, 0:width],
                    updates[0:slabs, 0:count, 0:width],
                )
                T.writes(out[0:slabs, 0:rows, 0:width])
                row = T.alloc_buffer((1,), "int64", scope="local")
                slab = T.meta_var(job // columns)
                first = T.meta_var(job % columns * own)
                for r in range(rows):
                    _move(out, (slab, r), data, (slab, r), (first, own), "none")
                for n in range(count):
                    for u in range(own):
                        row[0] = _within(places[slab, n, first + u], rows)
                        out[slab, row[0], first + u] = _applied(
                            shape.reduction, out[slab, row[0], first + u], updates[slab, n, first + u]
                        )

    return kernel
