"""A product of matrices whose loops become AMX instructions: what convolutions and dense layers have in common.

Both are written as a block ``wide`` whose sums lie as tiles store them, 16 columns together:

    wide[…, o, …, p, 16] = Σ numbers[… p …, K] · weight[o, …, 16, 16, Q]         K · size of a number = 64 bytes

for rows p that lie a fixed number of bytes apart. ``use_amx`` makes instructions of one such product: rows in tiles of
up to 16, ``columns`` tiles of columns beside each other, all terms of a sum one after another. The last tiles overlap
with those before them where a product has no whole number of tiles: their sums are computed twice, and are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.config import Config
from schedules.target import Target
from schedules.templates.amx.amx_ir import FEATURES, MOST_ROWS, MOST_SUMS, ROW_BYTES
from schedules.templates.common.register_tile import spread
from schedules.templates.common.structure import REDUCE, nodes_below, renamed
from schedules.templates.instructions.dots import DotForm
from schedules.templates.instructions.llvm_target import features_of

WIDE = "wide"
"""Name of the block that is computed in tiles."""

ALGORITHM = 1
"""Value of the knob ``algorithm`` for it."""

MOST_COLUMNS = MOST_SUMS
"""Tiles of columns beside each other."""

AMX_SHARE = 1 / 8
"""Time of products in AMX tiles over that of as many by dot products of vectors: 16 · 16 · 16 · Q in 16 cycles, and two
times 16 · Q in one (Sapphire Rapids)."""

LOAD_SHARE = 0.5
"""Time of loading a tile over that of multiplying it: 16 rows, two a cycle."""

Array = NDArray[np.generic]


def has_amx(form: DotForm | None, target: Target) -> bool:
    """Return whether ``target`` multiplies numbers of ``form`` in tiles."""
    return form is not None and form.name in FEATURES and features_of(target) >= FEATURES[form.name]


def chosen(config: Config) -> bool:
    """Return whether ``config`` computes a product in tiles."""
    return dict(config.items).get("algorithm") == ALGORITHM


def terms(form: DotForm) -> int:
    """Terms of a sum that one instruction adds: 64 bytes of numbers."""
    return MOST_ROWS * form.depth


def tile_rows(rows: int) -> int:
    """Rows of a tile, for a product of ``rows``: as few as so many tiles need."""
    return math.ceil(rows / math.ceil(rows / MOST_ROWS))


def amx_cycles(beside: NDArray[Any], rows: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.float64]:
    """(n,) cycles of products in AMX tiles over those of as many by dot products of vectors, by instructions alone.

    A tile takes 16 cycles or, with few beside each other, as long as loading its operands.

    Args:
        beside: tiles of columns beside each other.
        rows: of a product, and of these those that are ``wanted``.
    """
    beside = np.maximum(1, beside)
    together = np.maximum(1, MOST_SUMS // beside)
    loads = LOAD_SHARE * (beside + together) / (beside * together)
    used = wanted / (np.ceil(rows / MOST_ROWS) * MOST_ROWS)
    cycles: NDArray[np.float64] = AMX_SHARE * np.maximum(1.0, loads) / used
    return cycles


def last_tiles(rows: int, tile: int, before: int) -> list[tuple[int, int, int]]:
    """(first row, tiles, rows between them) of what is left of ``rows`` behind ``before`` tiles of ``tile`` rows."""
    left = math.ceil((rows - before * tile) / tile)
    if left <= 1 or rows >= left * tile:
        return [(rows - left * tile, left, tile)] if left else []
    if (rows - tile) % (left - 1) == 0:
        return [(0, left, (rows - tile) // (left - 1))]
    return [(0, left - 1, tile), (rows - tile, 1, tile)]


def pack_tiles(weight: Array, quad: int) -> Array:
    """(O/b, …, K/Q, b, Q) → (O/16, …, ceil(K/16Q), 16, 16, Q), with zeros behind K."""
    panels, *outer, depth, lanes, _ = weight.shape
    missing = [(0, 0)] * (1 + len(outer)) + [(0, -depth % MOST_ROWS), (0, 0), (0, 0)]
    whole = np.pad(weight, missing)
    split = whole.reshape(panels, *outer, -1, MOST_ROWS, lanes // MOST_ROWS, MOST_ROWS, quad)
    split = np.moveaxis(split, -3, 1)
    return np.ascontiguousarray(split.reshape(-1, *split.shape[2:]))


def use_amx(
    sch: s_tir.Schedule,
    outermost: LoopRV,
    job: LoopRV,
    shape: tuple[int, int, int],
    form: DotForm,
    turn: tuple[tirx.Var, int] | None = None,
    ahead: bool = True,
) -> None:
    """Compute the block below ``outermost``, its first loop for one product, in tiles. The last step of a schedule.

    Args:
        job: the parallel loop, at whose beginning the shapes of the tiles are set.
        shape: rows of the product, tiles of 16 columns, and bytes from a row's numbers to the next row's.
        turn: the loop in whose turns all is multiplied by the same weights, and its extent.
        ahead: whether weights of the next columns lie behind these, and are fetched meanwhile.
    """
    block = sch.blockize(outermost)
    outer = sch.get(block)
    inner = nodes_below(outer.body, s_tir.SBlockRealize)[-1]
    loops = nodes_below(outer.body, tirx.For)[::-1]  # they come innermost first
    body = _Product(inner, loops, shape, form, turn, ahead).in_tiles()
    replace_body(sch, block, body)
    begin, end = (_call(name) for name in (f"begin_{tile_rows(shape[0])}", "end"))
    _replace(sch, job, [begin, sch.get(job).body, end], {})


def tile_jobs(sch: s_tir.Schedule, tail: SBlockRV, config: Config) -> LoopRV:
    """The parallel loop over jobs of ``rows`` by ``tn`` tiles of columns of a matrix, which ``tail`` writes.

    Knob ``outer`` says whether jobs of the same rows follow each other, or of the same columns.
    """
    *_, m, n = sch.get_loops(tail)
    mo, mi = sch.split(m, [None, config.integer("rows")])
    no, ni, b = sch.split(n, [None, config.integer("tn"), MOST_ROWS])
    order = (mo, no) if config.integer("outer") else (no, mo)
    sch.reorder(*order, mi, ni, b)
    spread(sch, (ni, b))
    job = sch.fuse(*order)
    sch.parallel(job)
    return job


def replace_body(sch: s_tir.Schedule, block: SBlockRV, body: tirx.Stmt) -> None:
    """Another ``body`` for ``block``, below a loop; what it reads and writes stays."""
    outer, around = sch.get(block), sch.get_loops(block)[-1]
    replaced = s_tir.SBlock(outer.iter_vars, outer.reads, outer.writes, outer.name_hint, body)
    inside = sch.get(around).body
    statements = list(inside.seq) if isinstance(inside, tirx.SeqStmt) else [inside]
    at = next(
        at
        for at, statement in enumerate(statements)
        if getattr(statement, "block", None) is not None and statement.block.same_as(outer)
    )
    statements[at] = s_tir.SBlockRealize(statements[at].iter_values, statements[at].predicate, replaced)
    _replace(sch, around, statements, {outer: replaced})


def at_first(index: tirx.Expr, bound: Mapping[tirx.Var, tirx.Expr], none: Sequence[tirx.Var]) -> tirx.Expr:
    """``index`` with what its variables are ``bound`` to, and the variables ``none`` of that at zero."""

    def zero(var: tirx.Var) -> tirx.Expr:
        return tirx.const(0, var.ty.dtype) if any(var.same_as(other) for other in none) else var

    result: tirx.Expr = tvm_ffi.structural_map(renamed(index, bound), (tirx.Var, zero))
    return result


def _replace(sch: s_tir.Schedule, place: LoopRV, body: list[tirx.Stmt], kept: dict[s_tir.SBlock, s_tir.SBlock]) -> None:
    """Another ``body`` for the loop at ``place``; ``kept``: blocks of the old one, and what stands for them."""
    loop, inside = sch.get(place), tirx.SeqStmt(body) if len(body) > 1 else body[0]
    new_loop = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, inside, None, loop.annotations)
    sch.state.replace(sch.get_sref(place), new_loop, kept)


def _int(number: int) -> tirx.Expr:
    """Return an integer of 32 bits, as TVM would make it where it can."""
    return tirx.const(number, "int32")


def _call(name: str, *args: tirx.Expr) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("int32", f"tune_amx_{name}", *args))


class _Product:
    """One product, as the block ``wide`` has it."""

    def __init__(
        self,
        realize: s_tir.SBlockRealize,
        loops: Sequence[tirx.For],
        shape: tuple[int, int, int],
        form: DotForm,
        turn: tuple[tirx.Var, int] | None,
        ahead: bool,
    ) -> None:
        block = realize.block
        self.ahead, self.turn = ahead, turn
        (self.rows, self.columns, self.pitch), self.form = shape, form
        self.bound = dict(zip((axis.var for axis in block.iter_vars), realize.iter_values, strict=True))
        *summed, _ = [self.bound[axis.var] for axis in block.iter_vars if axis.iter_type == REDUCE]
        self.steps = [loop for loop in loops if any(loop.loop_var.same_as(value) for value in summed)]
        self.others = [loop.loop_var for loop in loops if not any(loop is step for step in self.steps)]
        loads = nodes_below(block.body, TensorLoad)
        written = block.writes[0].source
        self.sum = next(load for load in loads if load.source.same_as(written))
        self.numbers, self.weight = (load for load in loads if not load.source.same_as(written))

    def in_tiles(self) -> tirx.Stmt:
        """Loops over tiles of rows, around the functions of ``amx_ir``."""
        rows = tile_rows(self.rows)
        together = MOST_SUMS // self.columns
        whole = self.rows // (together * rows)
        last = last_tiles(self.rows, rows, whole * together)
        passes, turns = whole + len(last), self.turn[1] if self.turn else 1
        before = self.turn[0].astype("int32") * passes if self.turn else _int(0)
        lines = math.ceil(self.columns * MOST_ROWS / (passes * turns))
        at = tirx.Var("tile", "int32")
        done: list[tirx.Stmt] = []
        if whole:
            tiles = self._tiles(at * (together * rows), together, rows, before + at, lines)
            done.append(tirx.For(at, _int(0), _int(whole), tirx.ForKind.SERIAL, tiles))
        for number, (first, count, step) in enumerate(last, start=whole):
            done.append(self._tiles(_int(first), count, step, before + number, lines))
        return tirx.SeqStmt(done) if len(done) > 1 else done[0]

    def _tiles(self, first: tirx.Expr, together: int, step: int, number: tirx.Expr, lines: int) -> tirx.Stmt:
        """``together`` tiles, from row ``first`` on, ``step`` rows apart.

        Meanwhile weights of the next columns are fetched, ``lines`` lines at every step of the sum, where ``number``
        passes over the weights were before. The lines of one step are far apart, and those of successive steps
        neighbours: L2's own prefetcher follows many such streams, and one alone does not use the memory's bandwidth.
        (Two cores of Sapphire Rapids, 512 channels, 3 × 3, 7 × 7: 240 µs without, 190 with neighbours in one step, 159
        so.)
        """
        size, form = f"{together}x{self.columns}", self.form.name
        add = _call(
            f"add_{form}_{size}",
            self._address(self.numbers),
            first * self.pitch,
            _int(step * self.pitch),
            _int(self.pitch),
            self._address(self.weight),
            _int(self._panel()),
        )
        if self.ahead:
            passed = number
            for loop in self.steps:
                passed = passed * int(loop.extent) + loop.loop_var.astype("int32")
            panel = self.columns * self._panel()
            place = self._address(self.weight, self.steps), passed * ROW_BYTES + panel, _int(panel // lines)
            add = tirx.SeqStmt([add, _call(f"ahead_{lines}", *place)])
        for loop in reversed(self.steps):
            add = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, add)
        stored = _call(
            f"store_{size}",
            self._address(self.sum),
            first * ROW_BYTES,
            _int(step * ROW_BYTES),
            _int(self.rows * ROW_BYTES),
        )
        return tirx.SeqStmt([_call(f"zero_{size}"), add, stored])

    def _panel(self) -> int:
        """Bytes of the weights of 16 columns."""
        return math.prod(int(size) for size in self.weight.source.ty.shape[1:]) * 4 // self.form.depth

    def _address(self, load: TensorLoad, also: Sequence[tirx.For] = ()) -> tirx.Expr:
        """Return where the first row, column and number of the product lie at this step of the sum.

        Args:
            also: loops of the sum that stand at their first step.
        """
        none = [*self.others, *(loop.loop_var for loop in also)]

        indices = [at_first(index, self.bound, none) for index in load.indices]
        return tirx.address_of(tirx.BufferLoad(load.source, indices))
