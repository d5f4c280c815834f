"""Tiles of a product on tensor cores, in registers and in shared memory, and its operands as they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import Anchor, renamed
from schedules.templates.cuda.cuda_gemm import prepare_product, vector_lengths
from schedules.templates.cuda.cuda_mma import (
    PIECE_BYTES,
)
from schedules.templates.cuda.cuda_structure import WARP

LEAST_COPY_BYTES = 4
"""Least bytes of one asynchronous copy."""

Index = Any
"""A number or an expression of TVM."""

BANK_BYTES = 128
"""All banks of shared memory."""


@dataclass(frozen=True)
class TensorTile:
    """Tiles of a product; see ``cuda_tensor``.

    Attributes:
        m, n, k: of a block, for one step.
        warps_m, warps_n: warps of a block.
        stages: tiles in shared memory.
        split: blocks that share the depth of a tile.
    """

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    stages: int
    split: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.warps_m * self.warps_n


@dataclass(frozen=True)
class PermutedTile:
    """An operand's tile in shared memory.

    Attributes:
        rows: of the tile.
        width: elements of a row.
        size: bytes per element.
        single: whether threads read single words of four neighbouring rows, not pieces of eight.
    """

    rows: int
    width: int
    size: int
    single: bool = False

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.rows * self.width

    def at(self, row: Index, column: Index) -> Index:
        """Return the place of an element, counted in elements."""
        run = PIECE_BYTES // self.size
        pieces = self.width // run
        first = max(1, BANK_BYTES // PIECE_BYTES // pieces)  # rows that lie in different banks anyway
        turn = row // first
        key = turn % max(1, min(4, pieces // 2)) * 2 if self.single else turn % min(pieces, 8)
        return row * self.width + (column // run ^ key) * run + column % run


@dataclass(frozen=True)
class Gather:
    """An operand as an expression of its indices.

    Attributes:
        element: (g, outer, inner) → the element, zero outside.
        sizes: of outer and inner axis.
        contiguous: which of the two lies contiguous in memory, 0 or 1.
        run: elements along it that one copy takes; 1 if no copy can.
    """

    element: Callable[[Index, Index, Index], tirx.Expr]
    sizes: tuple[int, int]
    contiguous: int
    run: int


@dataclass(frozen=True)
class ProductParts:
    """A product and what follows it, as expressions.

    Attributes:
        rows: of (m, k).
        columns: of (k, n).
        groups: their number.
        end: (g, m, n, the sum) → the statement that stores the result.
    """

    rows: Gather
    columns: Gather
    groups: int
    end: Callable[[Index, Index, Index, tirx.Expr], tirx.Stmt]
    index: str


def product_parts(func: tirx.PrimFunc, anchor: Anchor, size: int) -> ProductParts:
    """Return what ``func`` gathers, and what it does to the sums.

    Args:
        size: bytes per element of the operands.
    """
    sch = s_tir.Schedule(func)
    for name in anchor.prologue:
        if name not in ("rows", "columns"):
            sch.compute_inline(sch.get_sblock(name))
    block, tail = prepare_product(sch, anchor, (1, 1, 1))
    gathers = [sch.get(stage) for stage in sch.get_producers(block)]
    product, end = sch.get(block).writes[0].source, sch.get(tail)
    groups, m, n = anchor.spatial
    k = anchor.reduction[0]
    direct = set(anchor.prologue) == {"rows", "columns"}
    runs = _runs(anchor, PIECE_BYTES // size) if direct else (1, 1)
    along = [anchor.geometry["rows"] == "k", anchor.geometry["columns"] == "n"]

    def gather(at: int, sizes: tuple[int, int]) -> Gather:
        axes, value = [axis.var for axis in gathers[at].iter_vars], gathers[at].body.value

        def element(*indices: Index) -> tirx.Expr:
            return _with_axes(value, axes, indices)

        return Gather(element, sizes, int(along[at]), runs[at] if runs[at] * size >= LEAST_COPY_BYTES else 1)

    def store(g: Index, row: Index, column: Index, total: tirx.Expr) -> tirx.Stmt:
        def loaded(load: TensorLoad) -> tirx.Expr:
            return total if load.source.same_as(product) else load

        body = tvm_ffi.structural_map(end.body, (TensorLoad, loaded))
        return _with_axes(body, [axis.var for axis in end.iter_vars], (g, row, column))

    index = str(end.iter_vars[0].var.ty.dtype)
    return ProductParts(gather(0, (m, k)), gather(1, (k, n)), groups, store, index)


def _runs(anchor: Anchor, most: int) -> tuple[int, int]:
    """Return how many neighbours in memory one copy takes of the rows and of the columns."""
    rows, columns = vector_lengths(anchor, most)
    return rows, columns if anchor.geometry["columns"] == "n" else math.gcd(anchor.reduction[0], most)


def _with_axes(node: Any, axes: Sequence[Var], indices: Sequence[Index]) -> Any:
    """Return ``node`` with ``indices`` in place of ``axes``."""
    known = {}
    for axis, index in zip(axes, indices, strict=True):
        known[axis] = index if isinstance(index, tirx.Expr) else tirx.const(index, axis.ty)
    return renamed(node, known)
