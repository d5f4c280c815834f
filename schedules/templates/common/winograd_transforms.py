"""The transforms of Winograd's convolution as blocks of straight code (method and notation: ``cpu/winograd.py``).

A transform of one tile multiplies a small matrix from the left and its transpose from the right. Its numbers are known,
most of them zero or one, so a tile's code is written here as sums, each named once:

    for c, ty, tx:                                         one block
        for i in vector:
            r00 = 4·d00 - 5·d20 + d40;  …                  the rows of Bᵀ d
            V[c, 0, 0, ty, tx, i] = 4·r00 - 5·r02 + r04;  …  (Bᵀ d) B

As loops over x and y it would be a choice among all rows at every place until the loops are unrolled: of the 0.25 s
that such a kernel took to build, two thirds were spent on choices that came to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import s_tir, tirx
from tvm.ir import Range, Var
from tvm.sym.analyzer import Analyzer

from schedules.templates.common.structure import SPATIAL, blocks_in_order, nest_of, root_nests, rooted

Matrix = tuple[tuple[float, ...], ...]

BT: dict[int, Matrix] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
AT: dict[int, Matrix] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
G: dict[int, Matrix] = {
    2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}

Place = Callable[[Sequence[tirx.Expr], tirx.Expr, tirx.Expr], list[tirx.Expr]]
"""(the block's axes, x, y) → where number x, y of a tile lies in a tensor: its indices but the last, the lane."""


def straight(
    func: tirx.PrimFunc, name: str, matrix: Matrix, sizes: Sequence[int], source: Place, result: Place
) -> tirx.PrimFunc:
    """``func`` with the block ``name`` computing ``matrix`` · tile · ``matrix``ᵀ in straight code.

    Args:
        func: a function whose blocks are all at its root.
        name: a block that reads one tensor and writes one; both have the lanes last.
        matrix: (outputs, inputs) of one side of the transform.
        sizes: extents of the axes over tiles.
        source, result: where the numbers of a tile lie in what is read, and in what is written.
    """
    blocks = blocks_in_order(func)
    position = next(at for at, block in enumerate(blocks) if block.name_hint == name)
    read, written = blocks[position].reads[0].source, blocks[position].writes[0].source
    lanes = written.ty.shape[-1]
    outputs, inputs = len(matrix), len(matrix[0])
    # Axes of one step too, along a tile and its lanes: without them TVM does not find which tiles a reader needs.
    domains = [Range.from_min_extent(tirx.IntImm("int64", 0), tirx.IntImm("int64", size)) for size in (*sizes, 1, 1, 1)]
    axes = [tirx.IterVar(domain, Var(f"v{at}", "int64"), SPATIAL) for at, domain in enumerate(domains)]
    *variables, down, across, vector = [axis.var for axis in axes]
    lane = Var("lane", "int64")

    def read_at(x: int, y: int) -> list[tirx.Expr]:
        return [*source(variables, tirx.IntImm("int64", x), tirx.IntImm("int64", y)), vector * lanes]

    def written_at(x: int, y: int) -> list[tirx.Expr]:
        return [*result(variables, down * outputs + x, across * outputs + y), vector * lanes]

    def lane_of(place: list[tirx.Expr]) -> list[tirx.Expr]:
        return [*place[:-1], place[-1] + lane]

    statements: list[tirx.Stmt] = []

    def named(name: str, value: tirx.Expr) -> tirx.Expr:
        statements.append(tirx.Bind(Var(name, "float32"), value))
        return statements[-1].var

    columns = []
    for y in range(inputs):
        tile = [named(f"d{x}{y}", tirx.BufferLoad(read, lane_of(read_at(x, y)))) for x in range(inputs)]
        columns.append([named(f"r{x}{y}", _sum(row, tile)) for x, row in enumerate(matrix)])
    for x, halves in enumerate(zip(*columns, strict=True)):
        for y, row in enumerate(matrix):
            statements.append(tirx.BufferStore(written, _sum(row, halves), lane_of(written_at(x, y))))
    body = tirx.For(lane, tirx.IntImm("int64", 0), lanes, tirx.ForKind.VECTORIZED, tirx.SeqStmt(statements))
    regions = [
        _region(buffer, place(0, 0), place(size - 1, size - 1))
        for buffer, place, size in ((read, read_at, inputs), (written, written_at, outputs))
    ]
    nests = root_nests(func)
    nests[position] = nest_of(s_tir.SBlock(axes, regions[:1], regions[1:], name, body))
    whole = rooted(nests, list(func.body.block.alloc_buffers))
    return tirx.PrimFunc(func.params, whole, func.ret_type, func.attrs)


def _sum(coefficients: Sequence[float], numbers: Sequence[tirx.Expr]) -> tirx.Expr:
    """Σ coefficient · number without the zeros and the multiplications by one."""
    total: tirx.Expr | None = None
    for value, number in zip(coefficients, numbers, strict=True):
        if value == 0:
            continue
        term = number if abs(value) == 1 else number * tirx.const(abs(float(value)), "float32")
        if total is None:
            total = term if value > 0 else tirx.const(0.0, "float32") - term
        else:
            total = total + term if value > 0 else total - term
    assert total is not None
    return total


def _region(buffer: Var, first: Sequence[tirx.Expr], last: Sequence[tirx.Expr]) -> tirx.BufferRegion:
    """All lanes of ``buffer`` from the place ``first`` to the place ``last``, which are a fixed distance apart."""
    analyzer = Analyzer()
    *within, lanes = [
        Range.from_min_extent(start, analyzer.simplify(end - start + 1)) for start, end in zip(first, last, strict=True)
    ]
    return tirx.BufferRegion(buffer, [*within, Range.from_min_extent(lanes.min, buffer.ty.shape[-1])])
