"""Axes that lie one behind the other in every tensor become one, so that a vector may cross the end of a row.

    for c in 64, h in 56, w in 56:                   for c in 64, p in 3136:
      y[c, h, w] = x[c, h, w] * s[c]         →         y[3136·c + p] = x[3136·c + p] * s[c]

Vectors of 16 do not divide rows of 56. In a loop over all elements that is cut into such vectors, each lane has a row
and a column of its own. Finding them takes several times as long as what is computed. TVM's arithmetic does not see
that row and column make the same address again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer
from tvm.sym.pattern import detect_linear_equation

from schedules.templates.common.structure import (
    REDUCE,
    SPATIAL,
    blocks_in_order,
    extents,
    nest_of,
    nodes_below,
    renamed,
    rooted,
)

TURNED = "tune.turned"
"""Annotation of a stage whose innermost axis became two: what ``turned_axis`` was before."""

FAR = 8
"""Elements between neighbours from which on a vector reads most of its elements from lines of their own."""


def merged(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, if its stages have spatial axes only and store one element each, over the fewest axes and flat tensors.

    Its parameters have one axis each then. Any other function is returned as it is.
    """
    blocks = blocks_in_order(func)
    sizes = [[int(axis.dom.extent) for axis in block.iter_vars] for block in blocks]
    plain = all(isinstance(block.body, tirx.BufferStore) and not extents(block, REDUCE) for block in blocks)
    if not plain or not all(sizes) or any(0 in own for own in sizes):
        return func
    cut = [_cut(block) for block in blocks]
    most = [len(own) - (len(new.iter_vars) == len(own)) for own, new in zip(sizes, cut, strict=True)]
    sizes = [[int(axis.dom.extent) for axis in block.iter_vars] for block in cut]
    groups = [_groups(block, own) for block, own in zip(cut, sizes, strict=True)]
    if all(len(few) > count for few, count in zip(groups, most, strict=True)):
        return func
    flat = {
        buffer: tirx.decl_buffer([math.prod(int(size) for size in buffer.ty.shape)], buffer.ty.dtype, buffer.name)
        for buffer in (*func.params, *func.body.block.alloc_buffers)
    }
    nests = [_rebuilt(*stage, flat) for stage in zip(cut, groups, sizes, strict=True)]
    allocated = [flat[buffer] for buffer in func.body.block.alloc_buffers]
    params = [flat[param] for param in func.params]
    return tirx.PrimFunc(params, rooted(nests, allocated), func.ret_type, func.attrs)


def simple_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with the indices of every stage as simple as the sizes of its axes allow.

    Reshapes have divisions that only these sizes show to be none. Once a stage is inlined, its indices are in terms of
    others, of which a border has numbers outside of the axis.
    """

    def simple(block: s_tir.SBlock) -> s_tir.SBlock:
        if not isinstance(block.body, tirx.BufferStore) or block.init is not None:
            return block
        analyzer = Analyzer()
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        body = _with_indices(block.body, analyzer.simplify)
        reads = [
            tirx.BufferRegion(
                region.source,
                [Range.from_min_extent(analyzer.simplify(span.min), span.extent) for span in region.region],
            )
            for region in block.reads
        ]
        return s_tir.SBlock(block.iter_vars, reads, block.writes, block.name_hint, body, annotations=block.annotations)

    return tvm_ffi.structural_map(func, (s_tir.SBlock, simple), order="post")


def turned_axis(block: s_tir.SBlock) -> int | None:
    """The axis along which a tensor is read one element after the other, where that is not the innermost; else None.

    A loop over it beside vectors of the innermost axis finds what it reads in the first cache.
    """
    if TURNED in block.annotations:
        return int(block.annotations[TURNED])
    turned = (moves.index(1) for moves in steps_of_reads(block) if moves[-1] >= FAR and 1 in moves)
    return next(turned, None)


def steps_of_reads(block: s_tir.SBlock) -> list[list[int]]:
    """Elements that a step of each axis moves a read by, of every read whose position is a sum of such steps."""
    variables = [axis.var for axis in block.iter_vars]
    loads = nodes_below(block.body, TensorLoad)
    moves = (
        _moves(_offset(load.source, [_without_loads(index) for index in load.indices]), variables) for load in loads
    )
    return [steps for steps in moves if steps]


def overlapping(func: tirx.PrimFunc, vector: int) -> tirx.PrimFunc:
    """``func`` of one stage, with vectors in place of its innermost axis, of which the last begins earlier.

        for c in C, p in P: y[c, p] = x[p, c]    →    for c in C, i in ⌈P / V⌉, v in V: y[c, q + v] = x[q + v, c]

    Here q = min(i · V, P - V), and ``turned_axis`` is not None. Some elements are moved twice.
    """
    (block,) = blocks_in_order(func)
    *axes, old = block.iter_vars
    dtype, length = old.var.ty.dtype, int(old.dom.extent)
    for name, size in (("part", -(-length // vector)), ("lane", vector)):
        whole = Range.from_min_extent(tirx.const(0, dtype), tirx.const(size, dtype))
        axes.append(tirx.IterVar(whole, tirx.Var(name, dtype), SPATIAL))
    start = tirx.min(axes[-2].var * tirx.const(vector, dtype), tirx.const(length - vector, dtype))
    body = renamed(block.body, {old.var: start + axes[-1].var})
    annotations = {**dict(block.annotations), TURNED: tirx.const(turned_axis(block), "int32")}
    turned = s_tir.SBlock(axes, block.reads, block.writes, block.name_hint, block.body, annotations=annotations)
    return tirx.PrimFunc(func.params, rooted([_nest(axes, turned, body)], []), func.ret_type, func.attrs)


def _cut(block: s_tir.SBlock) -> s_tir.SBlock:
    """The block with an axis for the blocks and one for what is in a block, where ``axis % size`` is read."""
    axes, values, analyzer = list[tirx.IterVar](), dict[tirx.Var, tirx.Expr](), Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    simple = _with_indices(block.body, analyzer.simplify)
    remainders = nodes_below(simple, tirx.FloorMod)
    for axis in block.iter_vars:
        own = [rest.b for rest in remainders if rest.a.same_as(axis.var)]
        size = int(own[0]) if own and isinstance(own[0], tirx.IntImm) else 1
        extent, dtype = int(axis.dom.extent), axis.var.ty.dtype
        if size < FAR or extent % size or extent == size:
            axes.append(axis)
            continue
        parts = []
        for name, count in (("o", extent // size), ("i", size)):
            whole = Range.from_min_extent(tirx.const(0, dtype), tirx.const(count, dtype))
            parts.append(tirx.IterVar(whole, tirx.Var(f"{axis.var.name}_{name}", dtype), SPATIAL))
            analyzer.bind(parts[-1].var, whole)
        axes += parts
        values[axis.var] = parts[0].var * tirx.const(size, dtype) + parts[1].var
    if not values:
        return s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, simple, annotations=block.annotations
        )
    moved = _with_indices(simple, lambda index: analyzer.simplify(renamed(index, values)))
    body = tirx.BufferStore(moved.buffer, renamed(moved.value, values), moved.indices)
    return s_tir.SBlock(axes, block.reads, block.writes, block.name_hint, body, annotations=block.annotations)


def _with_indices(store: tirx.BufferStore, change: Callable[[tirx.Expr], tirx.Expr]) -> tirx.BufferStore:
    """``store`` with ``change`` of every index of what is read and written."""

    def load(old: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(old.source, [change(index) for index in old.indices])

    value = tvm_ffi.structural_map(store.value, (TensorLoad, load), order="post")
    return tirx.BufferStore(store.buffer, value, [change(index) for index in store.indices])


def _offset(buffer: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
    """The flat position of an element."""
    shape = [int(size) for size in buffer.ty.shape]
    total: tirx.Expr | None = None
    for axis, index in enumerate(indices):
        term = index * tirx.const(math.prod(shape[axis + 1 :]), index.ty.dtype)
        total = term if total is None else total + term
    return tirx.const(0, "int32") if total is None else total


def _groups(block: s_tir.SBlock, sizes: Sequence[int]) -> list[list[int]]:
    """Neighbouring axes that may be one, each group in order; axes of one element are in the group before them."""
    variables = [axis.var for axis in block.iter_vars]
    left, steps = _uses(variables, block.body), list[list[int]]()
    targets = [(block.body.buffer, block.body.indices)]
    for buffer, indices in [*targets, *((load.source, load.indices) for load in nodes_below(block.body, TensorLoad))]:
        own = [_without_loads(index) for index in indices]
        moves = _moves(_offset(buffer, own), variables)
        if moves is not None:
            steps.append(moves)
            left = [total - part for total, part in zip(left, _uses(variables, *own), strict=True)]
    groups, last = [[0]], 0 if sizes[0] > 1 else None
    for axis in range(1, len(sizes)):
        fits = last is None or sizes[axis] == 1
        if last is not None and not fits and not left[axis] and not left[last]:
            fits = all(move[last] == move[axis] * sizes[axis] for move in steps)
        if fits:
            groups[-1].append(axis)
        else:
            groups.append([axis])
        last = axis if sizes[axis] > 1 else last
    return groups


def _uses(variables: Sequence[tirx.Var], *roots: object) -> list[int]:
    """Count the mentions of every variable below ``roots``."""
    named = [var for root in roots for var in nodes_below(root, tirx.Var)]
    return [sum(var.same_as(own) for var in named) for own in variables]


def _without_loads(index: tirx.Expr) -> tirx.Expr:
    """``index`` with a name for each element of a tensor that it reads: that is an access of its own."""
    return tvm_ffi.structural_map(index, (TensorLoad, lambda load: tirx.Var("read", load.ty.dtype)), order="pre")


def _moves(offset: tirx.Expr, variables: Sequence[tirx.Var]) -> list[int] | None:
    """Elements that a step of each variable moves a position by; None if it is no such sum."""
    parts = detect_linear_equation(Analyzer().simplify(offset), list(variables))
    if len(parts) != len(variables) + 1:
        return None
    steps = [Analyzer().simplify(part) for part in parts[:-1]]
    return [int(step) for step in steps] if all(isinstance(step, tirx.IntImm) for step in steps) else None


def _rebuilt(
    block: s_tir.SBlock,
    groups: Sequence[Sequence[int]],
    sizes: Sequence[int],
    flat: Mapping[tirx.Var, tirx.Var],
) -> tirx.Stmt:
    """The nest of a stage over one axis per group.

    Args:
        sizes: of the axes of ``block``.
        flat: tensors → the same with one axis.
    """
    axes, values = list[tirx.IterVar](), dict[tirx.Var, tirx.Expr]()
    analyzer = Analyzer()
    for number, group in enumerate(groups):
        own = [sizes[axis] for axis in group]
        dtype = block.iter_vars[group[0]].var.ty.dtype
        var, extent = tirx.Var(f"p{number}", dtype), tirx.const(math.prod(own), dtype)
        whole = Range.from_min_extent(tirx.const(0, dtype), extent)
        axes.append(tirx.IterVar(whole, var, SPATIAL))
        analyzer.bind(var, whole)
        for position, axis in enumerate(group):
            inner = math.prod(own[position + 1 :])
            value = tirx.floordiv(var, tirx.const(inner, dtype)) if inner > 1 else var
            if math.prod(own[:position]) > 1:
                value = tirx.floormod(value, tirx.const(own[position], dtype))
            kind = block.iter_vars[axis].var.ty.dtype
            values[block.iter_vars[axis].var] = tirx.const(0, kind) if own[position] == 1 else tirx.Cast(kind, value)

    def place(buffer: tirx.Var, indices: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [analyzer.simplify(renamed(_offset(buffer, indices), values))]

    def load(old: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(flat[old.source], place(old.source, old.indices))

    store = block.body
    value = renamed(tvm_ffi.structural_map(store.value, (TensorLoad, load), order="post"), values)
    body = tirx.BufferStore(flat[store.buffer], value, place(store.buffer, store.indices))
    return _nest(axes, block, body)


def _nest(axes: Sequence[tirx.IterVar], block: s_tir.SBlock, body: tirx.BufferStore) -> tirx.Stmt:
    """Plain loops around the block."""
    read: list[tirx.Var] = []
    for load in nodes_below(body.value, TensorLoad):
        if not any(load.source.same_as(buffer) for buffer in read):
            read.append(load.source)
    reads, writes = ([_all_of(buffer) for buffer in buffers] for buffers in (read, [body.buffer]))
    return nest_of(s_tir.SBlock(axes, reads, writes, block.name_hint, body, annotations=block.annotations))


def _all_of(buffer: tirx.Var) -> tirx.BufferRegion:
    return tirx.BufferRegion(buffer, [Range.from_min_extent(tirx.const(0, "int32"), size) for size in buffer.ty.shape])
