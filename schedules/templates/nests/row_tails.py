"""Rows whose length no vector divides: what is left over is reduced by a stage of its own.

    for r, k in K: s[r] += f(r, k)    →    for r, k in K₀: main[r] += f(r, k)                       K₀ = K - K mod V
                                           for r, j in 1 + K mod V: s[r] += main[r] if j = 0 else f(r, K₀ + j - 1)

Splitting the loop instead would leave a condition in front of every vector, which then falls apart into scalars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import s_tir, tirx
from tvm.ir import Range

from schedules.templates.common.structure import REDUCE, blocks_in_order, extents, nest_of, renamed, root_nests, rooted


def split_tails(func: tirx.PrimFunc, vector: int) -> tirx.PrimFunc:
    """``func`` with every reduction over a length that ``vector`` does not divide in two stages.

    Args:
        func: blocks in nests of plain loops below the root; ``splits`` of ``Rows`` holds for those that reduce.
    """
    allocated = list(func.body.block.alloc_buffers)
    statements: list[tirx.Stmt] = []
    for nest, block in zip(root_nests(func), blocks_in_order(func), strict=True):
        length = extents(block, REDUCE)
        if length and length[0] % vector and length[0] > vector:
            whole = length[0] - length[0] % vector
            target = block.body.buffer
            main = tirx.decl_buffer(target.ty.shape, target.ty.dtype, f"{target.name}_main")
            allocated.append(main)
            statements += [_main(block, main, whole), _rest(block, main, whole, length[0] - whole)]
        else:
            statements.append(nest)
    return tirx.PrimFunc(func.params, rooted(statements, allocated), func.ret_type, func.attrs)


def _main(block: s_tir.SBlock, main: tirx.Var, whole: int) -> tirx.Stmt:
    """The block over the first ``whole`` elements, into ``main``."""
    axes, names = _fresh_axes(block, whole)
    names[block.body.buffer] = main
    reads = [renamed(region, names) for region in block.reads]
    return _nest(axes, block, names, renamed(block.body, names), reads, f"{block.name_hint}_main")


def _rest(block: s_tir.SBlock, main: tirx.Var, whole: int, left: int) -> tirx.Stmt:
    """The block over ``main`` and the ``left`` elements behind it."""
    axes, names = _fresh_axes(block, left + 1)
    position = next(axis.var for axis in block.iter_vars if axis.iter_type == REDUCE)
    step = names[position]
    whole_row = renamed(block.writes[0], {**names, block.body.buffer: main})
    # At step 0 this names an element that exists, and its value is not used.
    names[position] = step + tirx.const(whole - 1, step.ty.dtype)
    indices = [renamed(index, names) for index in block.body.indices]
    value = block.body.value
    first = tirx.BufferLoad(main, indices)
    added = tirx.if_then_else(step == tirx.const(0, step.ty.dtype), first, renamed(value.b, names))
    body = tirx.BufferStore(block.body.buffer, type(value)(renamed(value.a, names), added), indices)
    reads = [*(renamed(region, names) for region in block.reads), whole_row]
    return _nest(axes, block, names, body, reads, block.name_hint)


def _fresh_axes(block: s_tir.SBlock, length: int) -> tuple[list[tirx.IterVar], dict[tirx.Var, tirx.Expr]]:
    """New axes for a copy of ``block`` whose reduction has ``length`` steps, and what the old ones are called now."""
    axes, names = [], {}
    for axis in block.iter_vars:
        var = tirx.Var(axis.var.name, axis.var.ty.dtype)
        extent = tirx.const(length, var.ty.dtype) if axis.iter_type == REDUCE else axis.dom.extent
        axes.append(tirx.IterVar(Range.from_min_extent(tirx.const(0, var.ty.dtype), extent), var, axis.iter_type))
        names[axis.var] = var
    return axes, names


def _nest(
    axes: Sequence[tirx.IterVar],
    block: s_tir.SBlock,
    names: Mapping[tirx.Var, tirx.Expr],
    body: tirx.Stmt,
    reads: Sequence[tirx.BufferRegion],
    name: str,
) -> tirx.Stmt:
    """Plain loops around a block made from the parts given and the renamed rest of ``block``."""
    writes, init = [renamed(region, names) for region in block.writes], renamed(block.init, names)
    return nest_of(s_tir.SBlock(axes, reads, writes, name, body, init=init, annotations=block.annotations))
