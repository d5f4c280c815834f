"""The kernel of ``cuda_tensor``, written by hand: copies that run ahead, permuted tiles, ``ldmatrix`` and ``mma.sync``.

A *piece* is 16 bytes of a row of a tile. Piece c of row r lies at c ^ f(r), so that the eight rows of a matrix that
``ldmatrix`` loads, and the pieces that eight threads copy, lie in different banks (``PermutedTile``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import Call, Range, Var
from tvm.ir.expr import TensorLoad
from tvm.tirx.op import tvm_storage_sync

from schedules.templates.common.structure import Anchor, rooted
from schedules.templates.cuda.cuda_mma import (
    COLUMNS,
    PIECE_BYTES,
    ROWS,
    Multiply,
    commit,
    copy,
    load,
    load_word,
    multiply,
    round_word,
    wait,
)
from schedules.templates.cuda.cuda_structure import WARP
from schedules.templates.cuda.cuda_tensor_parts import (
    BANK_BYTES,
    Gather,
    Index,
    PermutedTile,
    ProductParts,
    TensorTile,
    product_parts,
)

SUM_THREADS = 128
"""Threads of a block that adds up the parts of a shared depth."""

CONDITION = "prim.if_then_else"


def tensor_kernel(func: tirx.PrimFunc, anchor: Anchor, kind: Multiply, tile: TensorTile) -> tirx.PrimFunc:
    """Return ``func`` as one kernel, and one more that adds up where the depth is shared."""
    kernel = _Kernel(kind, tile, product_parts(func, anchor, kind.bytes), anchor)
    nests, allocated = kernel.nests(), kernel.allocated
    regions = [tirx.BufferRegion(param, [Range(0, size) for size in param.ty.shape]) for param in func.params]
    reads, writes = regions[:-1], regions[-1:]
    blocks = []
    for number, (loops, body, locals_) in enumerate(nests):
        passed = [tirx.BufferRegion(b, [Range(0, size) for size in b.ty.shape]) for b in allocated]
        inner = s_tir.SBlock(
            [],
            [*reads, *(passed if number else [])],
            writes if number == len(nests) - 1 else passed,
            f"tile_{number}",
            body,
            alloc_buffers=locals_,
        )
        nest: tirx.Stmt = s_tir.SBlockRealize([], True, inner)
        for var, extent, thread in reversed(loops):
            nest = _bound(var, extent, thread, nest)
        blocks.append(nest)
    body = rooted(blocks, allocated)
    module = tvm.IRModule({"main": tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)})
    return tirx.transform.ForceNarrowIndexToInt32()(module)["main"]


def _bound(var: Var, extent: int, thread: str, body: tirx.Stmt) -> tirx.Stmt:
    axis = tirx.IterVar(None, Var("", var.ty), tirx.IterVar.ThreadIndex, thread)
    return tirx.For(var, tirx.const(0, var.ty), tirx.const(extent, var.ty), tirx.ForKind.THREAD_BINDING, body, axis)


Nest = tuple[list[tuple[Var, int, str]], tirx.Stmt, list[Var]]
"""Bound loops, what they run, and the buffers of a block."""


class _Kernel:
    """The kernel's statements.

    Attributes:
        allocated: buffers between kernels.
    """

    def __init__(self, kind: Multiply, tile: TensorTile, parts: ProductParts, anchor: Anchor) -> None:
        self._kind, self._tile, self._parts = kind, tile, parts
        self._groups, self._m, self._n = anchor.spatial
        self._k = anchor.reduction[0]
        self._steps = math.ceil(math.ceil(self._k / tile.k) / tile.split)
        size, turned = kind.bytes, not parts.columns.contiguous or kind.sums == "int32"
        self._turned = turned  # columns lie in shared memory as (n, k)
        self._rows = PermutedTile(tile.m, tile.k, size)
        self._columns = (
            PermutedTile(tile.n, tile.k, size) if turned else PermutedTile(tile.k, tile.n, size, single=kind.words)
        )
        self._stage = self._rows.elements + self._columns.elements
        self._mt, self._nt = tile.m // tile.warps_m // ROWS, tile.n // tile.warps_n // COLUMNS
        self.allocated: list[Var] = []
        if tile.split > 1:
            self.allocated = [tirx.decl_buffer((tile.split, *anchor.spatial), kind.sums, "parts")]
        local = partial(tirx.decl_buffer, scope="local")
        # Tiles of both types of bytes lie in one buffer: addresses are all that is taken of it.
        elements = (tile.stages * self._stage,)
        self._shared = tirx.decl_buffer(elements, kind.types[0], "tiles", scope="shared.dyn", data_alignment=BANK_BYTES)
        self._sums = local((self._mt * self._nt * 4,), kind.sums, "sums")
        self._a = local((self._mt * 4,), "uint32", "a")
        self._b = local((self._nt * 2,), "uint32", "b")

    def nests(self) -> list[Nest]:
        """Return the product's nest, and the one that adds up."""
        tile, parts = self._tile, self._parts
        tiles_m, tiles_n = math.ceil(self._m / tile.m), math.ceil(self._n / tile.n)
        block, warp, lane = (Var(name, parts.index) for name in ("block", "warp", "lane"))
        self._warp, self._lane, self._thread = warp, lane, warp * WARP + lane
        n0, m0 = block % tiles_n * tile.n, block // tiles_n % tiles_m * tile.m
        outer = block // (tiles_n * tiles_m)
        g, part = outer % self._groups, outer // self._groups
        self._at = (g, m0, n0, part * (self._steps * tile.k))
        loops = [
            (block, tile.split * self._groups * tiles_m * tiles_n, "blockIdx.x"),
            (warp, tile.warps_m * tile.warps_n, "threadIdx.y"),
            (lane, WARP, "threadIdx.x"),
        ]
        body = tirx.SeqStmt([*self._prologue(), self._loop(), self._results(part)])
        nests: list[Nest] = [(loops, body, [self._shared, self._sums, self._a, self._b])]
        if tile.split > 1:
            nests.append(self._added())
        return nests

    # -- copies --------------------------------------------------------------------------------------------------------

    def _prologue(self) -> list[tirx.Stmt]:
        zero = tirx.const(0, self._kind.sums)
        fill = self._loops((self._mt * self._nt * 4,), lambda at: tirx.BufferStore(self._sums, zero, [at]))
        ahead = []
        for step in range(self._tile.stages - 1):
            ahead += [*self._fetch(step, step), commit()] if step < self._steps else [commit()]
        return [fill, *ahead]

    def _fetch(self, step: Index, stage: Index) -> list[tirx.Stmt]:
        """Copy the tiles of ``step``, counted from this block's first."""
        g, m0, n0, k0 = self._at
        k = k0 + step * self._tile.k
        rows, columns = self._parts.rows, self._parts.columns
        base = stage * self._stage
        return [
            self._fetch_tile(rows, self._rows, (g, m0, k), base, False),
            self._fetch_tile(columns, self._columns, (g, k, n0), base + self._rows.elements, self._turned),
        ]

    def _fetch_tile(
        self, gather: Gather, tile: PermutedTile, begin: tuple[Index, Index, Index], base: Index, turned: bool
    ) -> tirx.Stmt:
        """Copy a tile by all threads; neighbours in memory are neighbouring threads'.

        Args:
            turned: whether rows of the tile in shared memory are the gather's inner axis.
        """
        g, outer0, inner0 = begin
        shape = (tile.width, tile.rows) if turned else (tile.rows, tile.width)
        follows = gather.contiguous == (0 if turned else 1)  # along rows of the tile in shared memory
        run = gather.run if follows else 1
        last = shape[gather.contiguous] // run
        pieces = tile.elements // run
        count = math.ceil(pieces / self._tile.threads)

        def one(turn: Index) -> tirx.Stmt:
            number = turn * self._tile.threads + self._thread
            quick, slow = number % last * run, number // last
            outer, inner = (slow, quick) if gather.contiguous else (quick, slow)
            to = base + (tile.at(inner, outer) if turned else tile.at(outer, inner))
            at = (g, outer0 + outer, inner0 + inner)
            bounds = self._inside(gather, at, shape)
            stored = self._copied(gather.element(*at), bounds, to, run)
            ragged = pieces % self._tile.threads != 0
            return tirx.IfThenElse(number < pieces, stored, None) if ragged else stored

        return self._loops((count,), one)

    def _inside(self, gather: Gather, at: tuple[Index, ...], shape: tuple[int, int]) -> list[tirx.Expr]:
        """Return conditions that an element lies inside; steps may go past the depth, tiles past rows and columns."""
        is_rows = gather is self._parts.rows
        k_axis = 1 if is_rows else 0
        whole = self._tile.k * self._steps * self._tile.split
        conditions = []
        for axis, size in enumerate(gather.sizes):
            covered = whole if axis == k_axis else math.ceil(size / shape[axis]) * shape[axis]
            if covered > size:
                conditions.append(at[1 + axis] < size)
        return conditions

    def _copied(self, value: tirx.Expr, bounds: list[tirx.Expr], to: Index, run: int) -> tirx.Stmt:
        """Store an element, or begin to copy ``run``."""
        if run > 1:
            conditions, load_ = list(bounds), value
            while isinstance(load_, Call) and load_.op.name == CONDITION:
                conditions.append(load_.args[0])
                load_ = load_.args[1]
            assert isinstance(load_, TensorLoad), "a gather that a copy takes reads a buffer"
            wanted = tirx.all(*conditions) if conditions else tirx.const(True, "bool")
            return copy((self._shared, to), tirx.address_of(load_), run * self._kind.bytes, wanted)
        if bounds:
            value = tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, value.ty))
        return tirx.BufferStore(self._shared, value.astype(self._kind.types[0]), [to])

    # -- products ------------------------------------------------------------------------------------------------------

    def _loop(self) -> tirx.Stmt:
        stages, step = self._tile.stages, Var("step", self._parts.index)
        after = step + (stages - 1)
        body: list[tirx.Stmt] = [
            wait(stages - 2),
            tirx.Evaluate(tvm_storage_sync("shared")),
        ]
        if self._steps >= stages:
            ahead = tirx.SeqStmt(self._fetch(after, after % stages))
            body.append(tirx.IfThenElse(after < self._steps, ahead, None))
        body.append(commit())
        body.append(self._multiplied(step % stages * self._stage))
        return tirx.For(step, self._number(0), self._number(self._steps), tirx.ForKind.SERIAL, tirx.SeqStmt(body))

    def _multiplied(self, base: Index) -> tirx.Stmt:
        """The products of one tile, by the warp's share of it."""
        warps_n, lane = self._tile.warps_n, self._lane
        m0 = self._warp // warps_n * (self._mt * ROWS)
        n0 = self._warp % warps_n * (self._nt * COLUMNS)
        depth, run = self._kind.depth, PIECE_BYTES // self._kind.bytes

        def part(number: Index) -> tirx.Stmt:
            k0 = number * depth

            def load_a(i: Index) -> tirx.Stmt:
                at = base + self._rows.at(m0 + i * ROWS + lane % 16, k0 + lane // 16 * run)
                return load((self._a, i * 4), (self._shared, at), transposed=False)

            def load_b(j: Index) -> tirx.Stmt:
                n, half, row = n0 + j * 2 * COLUMNS, lane // 8 % 2, lane % 8
                start = base + self._rows.elements
                if self._turned:
                    at = start + self._columns.at(n + lane // 16 * 8 + row, k0 + half * run)
                    return load((self._b, j * 4), (self._shared, at), transposed=False)
                at = start + self._columns.at(k0 + half * 8 + row, n + lane // 16 * 8)
                return load((self._b, j * 4), (self._shared, at), transposed=True)

            def load_word_b(j: Index, high: Index) -> tirx.Stmt:
                at = self._columns.at(k0 + high * 4 + lane % 4, n0 + j * COLUMNS + lane // 4)
                return load_word((self._b, j * 2 + high), (self._shared, base + self._rows.elements + at))

            def product(i: Index, j: Index) -> tirx.Stmt:
                sums = (self._sums, (i * self._nt + j) * 4)
                return multiply(self._kind, sums, (self._a, i * 4), (self._b, j * 2))

            single = self._columns.single
            steps = [
                self._loops((self._mt,), load_a),
                self._loops((self._nt, 2), load_word_b) if single else self._loops((self._nt // 2,), load_b),
            ]
            if self._kind.words:
                for registers, count in ((self._a, self._mt * 4), (self._b, self._nt * 2)):
                    steps.append(self._loops((count,), lambda i, registers=registers: round_word((registers, i))))
            return tirx.SeqStmt([*steps, self._loops((self._mt, self._nt), product)])

        return self._loops((self._tile.k // depth,), part)

    # -- results -------------------------------------------------------------------------------------------------------

    def _results(self, part: Index) -> tirx.Stmt:
        """Every thread stores its own sums, two neighbours at a time."""
        g, m0, n0, _ = self._at
        lane, warps_n = self._lane, self._tile.warps_n
        first_m = m0 + self._warp // warps_n * (self._mt * ROWS) + lane // 4
        first_n = n0 + self._warp % warps_n * (self._nt * COLUMNS) + lane % 4 * 2
        pair = self._n % 2 == 0

        def two(i: Index, j: Index, half: Index) -> tirx.Stmt:
            m, n = first_m + i * ROWS + half * 8, first_n + j * COLUMNS

            def one(e: Index) -> tirx.Stmt:
                total = tirx.BufferLoad(self._sums, [((i * self._nt + j) * 2 + half) * 2 + e])
                if self.allocated:
                    return tirx.BufferStore(self.allocated[0], total, [part, g, m, n + e])
                return self._parts.end(g, m, n + e, total)

            conditions = []
            if self._m % self._tile.m:
                conditions.append(m < self._m)
            if not pair:
                stored = self._loops((2,), lambda e: self._if([n + e < self._n], one(e)))
            else:
                if self._n % self._tile.n:
                    conditions.append(n < self._n)
                stored = self._loops((2,), one, tirx.ForKind.VECTORIZED)
            return self._if(conditions, stored)

        return self._loops((self._mt, self._nt, 2), two)

    def _added(self) -> Nest:
        """One thread adds up the parts of one element."""
        block, thread = Var("sum_block", self._parts.index), Var("sum_thread", self._parts.index)
        elements = self._groups * self._m * self._n
        number = block * SUM_THREADS + thread
        g, m, n = number // (self._m * self._n), number // self._n % self._m, number % self._n
        total = tirx.decl_buffer((1,), self._kind.sums, "total", scope="local")
        zero = self._number(0)
        first = tirx.BufferLoad(self.allocated[0], [zero, g, m, n])

        def add(part: Index) -> tirx.Stmt:
            more = tirx.BufferLoad(self.allocated[0], [part + 1, g, m, n])
            return tirx.BufferStore(total, tirx.BufferLoad(total, [zero]) + more, [zero])

        body = [
            tirx.BufferStore(total, first, [zero]),
            self._loops((self._tile.split - 1,), add),
            self._parts.end(g, m, n, tirx.BufferLoad(total, [zero])),
        ]
        loops = [(block, math.ceil(elements / SUM_THREADS), "blockIdx.x"), (thread, SUM_THREADS, "threadIdx.x")]
        guard = [number < elements] if elements % SUM_THREADS else []
        return loops, self._if(guard, tirx.SeqStmt(body)), [total]

    def _number(self, value: int) -> tirx.Expr:
        return tirx.const(value, self._parts.index)

    @staticmethod
    def _if(conditions: list[tirx.Expr], body: tirx.Stmt) -> tirx.Stmt:
        return tirx.IfThenElse(tirx.all(*conditions), body, None) if conditions else body

    def _loops(
        self,
        extents: tuple[int, ...],
        body: Callable[..., tirx.Stmt],
        kind: tirx.ForKind = tirx.ForKind.UNROLLED,
    ) -> tirx.Stmt:
        """Loops that the CUDA compiler unrolls: registers cannot be indexed."""
        indices = [Var(f"i{number}", self._parts.index) for number in range(len(extents))]
        nest = body(*indices)
        notes: Mapping[str, Any] = {"pragma_unroll_explicit": 0} if kind == tirx.ForKind.UNROLLED else {}
        for index, extent in zip(reversed(indices), reversed(extents), strict=True):
            nest = tirx.For(index, self._number(0), self._number(extent), kind, nest, annotations=notes)
        return nest
