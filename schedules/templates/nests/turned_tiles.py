"""Moves that turn a tensor, as squares of elements that are turned in registers.

    for c in 64, h in 56, w in 56, s in 2:           for h, for squares of c and (w, s):
      y[c, h, w, s] = f(x[s, h, w, c])         →       16 vectors along c → turned → 16 vectors along (w, s)

A vector of the result reads elements that lie far apart, so the compiler inserts them one by one. A square of n²
elements takes n loads, n · log₂ n shuffles and n stores. The last square of an axis begins earlier where n does
not divide it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer
from tvm.sym.pattern import detect_linear_equation

from schedules.templates.common.structure import SPATIAL, blocks_in_order, extents, nodes_below, renamed, rooted

SIZES = {"float32": 4, "int32": 4, "float16": 2, "int16": 2, "int8": 1, "uint8": 1}
"""Types whose squares are turned → bytes. Squares of 8-byte elements gain nothing, as vectors have so few of them."""

SIDES = (16, 8)
"""Elements of a square's side, the widest first."""

LINE = 64
"""Bytes of a line of the cache."""

MOST_MOVED_TWICE = 1.15
"""Elements moved per element up to which squares end with the rows of an axis. Beyond, they go on in the next row,
where the position of every vector takes divisions. Heuristic."""

MOST_CUTS = 12
"""Axes that are cut, at most: one for each reshape of a chain. Heuristic."""


@dataclass(frozen=True)
class Turn:
    """One tensor that is read in another order than the result is written in.

    Attributes:
        load: the access to it; ``value`` reads nothing else.
        value: an element of the result.
        axes: variables of the result's axes, cut so that there is ``across``.
        sizes: of these axes.
        position: the element of the tensor that is read.
        across: the axis whose neighbours are neighbours in the tensor.
    """

    load: TensorLoad
    value: tirx.Expr
    axes: tuple[tirx.Var, ...]
    sizes: tuple[int, ...]
    position: tirx.Expr
    across: int

    def at(self, places: Sequence[tirx.Expr]) -> tirx.Expr:
        """``position`` at a place along every axis."""
        values = dict(zip(self.axes, places, strict=True))
        return renamed(self.position, values)

    @property
    def side(self) -> int:
        """The side of the largest square that fits; 0 if none does."""
        shorter = min(self.sizes[self.across], math.prod(self.sizes[self.across + 1 :]))
        return next((side for side in SIDES if side <= shorter), 0)

    def along(self, side: int) -> int:
        """Return the first of the last axes, which are one for squares."""
        wastes = {}
        for first in range(len(self.sizes) - 1, self.across, -1):
            length = math.prod(self.sizes[first:])
            if length >= side:
                wastes[first] = -(-length // side) * side / length
        fitting = [first for first, waste in wastes.items() if waste <= MOST_MOVED_TWICE]
        return fitting[0] if fitting else min(wastes, key=wastes.__getitem__)


def turn_of(func: tirx.PrimFunc) -> Turn | None:
    """The turn that ``func`` of one inlined stage is, if its elements depend on one of a tensor and nothing else."""
    blocks = blocks_in_order(func)
    if len(blocks) != 1 or not isinstance(blocks[0].body, tirx.BufferStore):
        return None
    block, store = blocks[0], blocks[0].body
    loads = nodes_below(store.value, TensorLoad)
    if len({str(load) for load in loads}) != 1 or not any(loads[0].source.same_as(param) for param in func.params[:-1]):
        return None
    load, variables = loads[0], [axis.var for axis in block.iter_vars]
    used, read = _mentions(store.value, variables), sum(_mentions(own, variables) for own in loads)
    written = detect_linear_equation(Analyzer().simplify(_position(store.buffer, store.indices)), variables)
    shape = extents(block, SPATIAL)
    dense = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    is_dense = len(written) == len(shape) + 1 and all(
        int(step) == wanted or size == 1
        for step, wanted, size in zip(_numbers(written[:-1]), dense, shape, strict=True)
    )
    if used != read or not is_dense or str(load.ty.dtype) not in SIZES or str(store.buffer.ty.dtype) not in SIZES:
        return None
    position, axes = _cut(_position(load.source, load.indices), list(zip(variables, shape, strict=True)))
    axes = [(var, size) for var, size in axes if size > 1]
    across = [number for number, (var, _) in enumerate(axes[:-1]) if _goes_by_one(position, var)]
    if len(across) != 1 or _goes_by_one(position, axes[-1][0]) or _repeated(position, axes) >= SIDES[-1]:
        return None
    names, sizes = zip(*axes, strict=True)
    turn = Turn(load, store.value, names, sizes, position, across[0])
    return turn if turn.side else None


def _repeated(position: tirx.Expr, axes: Sequence[tuple[tirx.Var, int]]) -> int:
    """Return how often each element stands in a row of the result: such rows need no turn."""
    read = nodes_below(position, tirx.Var)
    last = max((number for number, (var, _) in enumerate(axes) if any(var.same_as(own) for own in read)), default=-1)
    return math.prod(size for _, size in axes[last + 1 :])


def _goes_by_one(position: tirx.Expr, axis: tirx.Var) -> bool:
    """Return whether ``position`` is the place along ``axis`` and something else."""
    parts = detect_linear_equation(position, [axis])
    return len(parts) == 2 and isinstance(parts[0], tirx.IntImm) and int(parts[0]) == 1


def in_squares(func: tirx.PrimFunc, turn: Turn, side: int, chunks: int) -> tirx.PrimFunc:
    """``func`` by squares of ``side`` elements, in so many parallel jobs; its tensors have one axis each."""
    flat = [
        tirx.decl_buffer([math.prod(int(size) for size in param.ty.shape)], param.ty.dtype, param.name)
        for param in func.params
    ]
    source = next(new for new, old in zip(flat, func.params, strict=True) if turn.load.source.same_as(old))
    nest = _Nest(turn, side, source, flat[-1]).parallel(chunks)
    body = tirx.PrimFunc(flat, rooted([nest], []), func.ret_type, func.attrs)
    # Each column has the same names of what its function binds, which TVM takes for one name of several values.
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": body}))["main"]


class _Nest:
    """Writes the loops over squares.

    Args:
        source, result: tensors of one axis.
    """

    def __init__(self, turn: Turn, side: int, source: tirx.Var, result: tirx.Var) -> None:
        self._turn, self._side, self._source, self._result = turn, side, source, result
        self._along = turn.along(side)
        self._length = math.prod(turn.sizes[self._along :])
        width = turn.sizes[turn.across]
        self._columns, self._rows = -(-width // side), -(-self._length // side)
        # Squares side by side fill lines of the tensor that is read.
        self._beside = min(self._columns, max(1, LINE // (side * SIZES[str(source.ty.dtype)])))
        dtype, shape = source.ty.dtype, (side, side)
        self._squares = [tirx.decl_buffer(shape, dtype, name, scope="local") for name in ("square", "other")]

    def parallel(self, chunks: int) -> tirx.Stmt:
        """The loops, the outer one in so many jobs."""
        total = math.prod(self._outer_sizes()) * -(-self._columns // self._beside) * self._rows
        jobs = min(chunks, total)
        per_job = -(-total // jobs)
        job, turn = _variable("job"), _variable("turn")
        place = job * _const(per_job) + turn
        body = self._strip(place)
        if per_job * jobs != total:
            body = tirx.IfThenElse(place < _const(total), body, None)
        reads, writes = ([_all_of(buffer)] for buffer in (self._source, self._result))
        axis = tirx.IterVar(Range.from_min_extent(_const(0), _const(jobs)), job, SPATIAL)
        inner = tirx.For(turn, _const(0), _const(per_job), tirx.ForKind.SERIAL, body)
        block = s_tir.SBlock([axis], reads, writes, "turned", inner, alloc_buffers=self._squares)
        loop = _variable("number")
        realize = s_tir.SBlockRealize([loop], tirx.const(True, "bool"), block)
        kind = tirx.ForKind.PARALLEL if jobs > 1 else tirx.ForKind.SERIAL
        return tirx.For(loop, _const(0), _const(jobs), kind, realize)

    def _outer_sizes(self) -> list[int]:
        sizes, across = self._turn.sizes, self._turn.across
        return [size for axis, size in enumerate(sizes[: self._along]) if axis != across]

    def _strip(self, place: tirx.Expr) -> tirx.Stmt:
        """Squares side by side, at one place of the outer loops."""
        turn, side = self._turn, self._side
        strips = -(-self._columns // self._beside)
        *outer, strip, row = _digits(place, [*self._outer_sizes(), strips, self._rows])
        outer_axes = [axis for axis in range(self._along) if axis != turn.across]
        places, written = dict(zip(outer_axes, outer, strict=True)), _const(0)
        for axis, digit in places.items():
            written += digit * _const(math.prod(turn.sizes[axis + 1 :]))
        beside = _variable("beside")
        column = strip * _const(self._beside) + beside
        first_row = _first(row, side, self._length)
        first_column = _first(column, side, turn.sizes[turn.across])
        places[turn.across] = first_column
        rows = [self._read_at(places, first_row + _const(number)) for number in range(side)]
        stride = math.prod(turn.sizes[turn.across + 1 :])
        body = self._square(rows, written + first_column * _const(stride) + first_row, stride)
        if self._columns % self._beside:
            body = tirx.IfThenElse(column < _const(self._columns), body, None)
        return tirx.For(beside, _const(0), _const(self._beside), tirx.ForKind.SERIAL, body)

    def _read_at(self, places: dict[int, tirx.Expr], row: tirx.Expr) -> tirx.Expr:
        """Return where the vector of a row lies.

        Args:
            places: along all axes but the last ones, which ``row`` is of.
        """
        last = dict(enumerate(_digits(row, self._turn.sizes[self._along :]), self._along))
        return self._turn.at([place for _, place in sorted((places | last).items())])

    def _square(self, rows: Sequence[tirx.Expr], written: tirx.Expr, stride: int) -> tirx.Stmt:
        """Load a square, turn it, and store its columns."""
        side, (one, other) = self._side, self._squares
        ramp = tirx.Ramp(_const(0), _const(1), side)

        def row_of(buffer: tirx.Var, row: int) -> tirx.Expr:
            return tirx.BufferLoad(buffer, [_const(row), ramp])

        steps: list[tirx.Stmt] = []
        for row, place in enumerate(rows):
            vector = tirx.BufferLoad(self._source, [tirx.Ramp(place, _const(1), side)])
            steps.append(tirx.BufferStore(one, vector, [_const(row), ramp]))
        distance = side // 2
        while distance:
            for row in range(side):
                first, lanes = row & ~distance, range(side)
                if row & distance:
                    picked = [side + lane if lane & distance else lane + distance for lane in lanes]
                else:
                    picked = [side + lane - distance if lane & distance else lane for lane in lanes]
                pair = [row_of(one, first), row_of(one, first + distance)]
                mixed = tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in picked])
                steps.append(tirx.BufferStore(other, mixed, [_const(row), ramp]))
            one, other, distance = other, one, distance // 2
        stored = [self._stored(one, column, written + _const(column * stride)) for column in range(side)]
        return tirx.SeqStmt([*steps, *stored])

    def _stored(self, square: tirx.Var, column: int, place: tirx.Expr) -> tirx.Stmt:
        """Store one vector of the result."""
        lane, side = _variable("lane"), self._side
        element = tirx.BufferLoad(square, [_const(column), lane])
        value = tvm_ffi.structural_map(self._turn.value, (TensorLoad, lambda _: element), order="post")
        store = tirx.BufferStore(self._result, value, [place + lane])
        return tirx.For(lane, _const(0), _const(side), tirx.ForKind.VECTORIZED, store)


Axes = list[tuple[tirx.Var, int]]


def _cut(position: tirx.Expr, axes: Axes) -> tuple[tirx.Expr, Axes]:
    """``position`` with ``axes`` cut wherever it has a part of one."""
    for _ in range(MOST_CUTS):
        analyzer = Analyzer()
        for var, size in axes:
            analyzer.bind(var, Range.from_min_extent(tirx.const(0, var.ty.dtype), tirx.const(size, var.ty.dtype)))
        position = _parts_apart(analyzer.simplify(position), axes)
        parts = [part for kind in (tirx.FloorMod, tirx.FloorDiv) for part in nodes_below(position, kind)]
        cuts = (_inner_size(part, number, axes) for part in parts for number in range(len(axes)))
        number, inner = next(((at, size) for at, size in cuts if size), (-1, 0))
        if not inner:
            break
        var, size = axes[number]
        dtype = var.ty.dtype
        outer_var, inner_var = (tirx.Var(f"{var.name}{end}", dtype) for end in ("o", "i"))
        joined = outer_var * tirx.const(inner, dtype) + inner_var
        position = renamed(position, {var: joined})
        axes[number : number + 1] = [(outer_var, size // inner), (inner_var, inner)]
    return position, axes


Part = Any  # tirx.FloorMod or tirx.FloorDiv; TVM has no types to check against


def _inner_size(part: Part, number: int, axes: Axes) -> tuple[int, int]:
    """Return ``number``, and by what that axis is cut for a part of it or of a sum with others; 0 if by nothing."""
    var, size = axes[number]
    if not isinstance(part.b, tirx.IntImm):
        return number, 0
    inner = int(part.b) if part.a.same_as(var) else _common_step(part, var, axes)
    return number, inner if 1 < inner < size and not size % inner else 0


def _common_step(part: Part, var: tirx.Var, axes: Axes) -> int:
    """Return what divides every term of a part but ``var``, which it has once; 0 if it is no such sum."""
    variables = [own for own, _ in axes]
    terms = detect_linear_equation(part.a, variables)
    if len(terms) != len(axes) + 1 or not all(isinstance(term, tirx.IntImm) for term in terms):
        return 0
    own = next(number for number, other in enumerate(variables) if other.same_as(var))
    if int(terms[own]) != 1:
        return 0
    return math.gcd(int(part.b), *(int(term) for number, term in enumerate(terms) if number != own))


def _parts_apart(position: tirx.Expr, axes: Axes) -> tirx.Expr:
    """``position`` with (g·a + v) div g·b as a div b, and its remainder as g·(a mod b) + v, for an axis v below g."""

    def apart(part: Part) -> tirx.Expr:
        for var, size in axes:
            step = _common_step(part, var, axes) if isinstance(part.b, tirx.IntImm) else 0
            if step < 2 or size > step or part.a.same_as(var):
                continue
            dtype = var.ty.dtype
            analyzer = Analyzer()
            analyzer.bind(var, Range.from_min_extent(tirx.const(0, dtype), tirx.const(size, dtype)))
            above = analyzer.simplify(tirx.floordiv(part.a - var, tirx.const(step, dtype)))
            count = tirx.const(int(part.b) // step, dtype)
            if isinstance(part, tirx.FloorDiv):
                return tirx.floordiv(above, count)
            return tirx.floormod(above, count) * tirx.const(step, dtype) + var
        return part

    return tvm_ffi.structural_map(position, ((tirx.FloorMod, tirx.FloorDiv), apart), order="post")


def _position(buffer: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
    """The flat position of an element."""
    shape = [int(size) for size in buffer.ty.shape]
    total = _const(0)
    for axis, index in enumerate(indices):
        total += tirx.Cast("int64", index) * _const(math.prod(shape[axis + 1 :]))
    return total


def _mentions(root: object, variables: Sequence[tirx.Var]) -> int:
    return sum(any(var.same_as(own) for own in variables) for var in nodes_below(root, tirx.Var))


def _numbers(exprs: Sequence[tirx.Expr]) -> list[int]:
    return [int(expr) if isinstance(expr, tirx.IntImm) else -1 for expr in exprs]


def _digits(place: tirx.Expr, sizes: Sequence[int]) -> list[tirx.Expr]:
    """Positions along axes of ``sizes``, of a place in all of them."""
    digits = []
    for axis, size in enumerate(sizes):
        inner = math.prod(sizes[axis + 1 :])
        digit = tirx.floordiv(place, _const(inner)) if inner > 1 else place
        digits.append(tirx.floormod(digit, _const(size)) if axis else digit)
    return digits


def _first(number: tirx.Expr, side: int, length: int) -> tirx.Expr:
    """The first element of a square of an axis; the last square begins earlier."""
    start = number * _const(side)
    return start if length % side == 0 else tirx.min(start, _const(length - side))


def _const(value: int) -> tirx.Expr:
    return tirx.const(value, "int64")


def _variable(name: str) -> tirx.Var:
    return tirx.Var(name, "int64")


def _all_of(buffer: tirx.Var) -> tirx.BufferRegion:
    return tirx.BufferRegion(buffer, [Range.from_min_extent(_const(0), size) for size in buffer.ty.shape])
