"""Neighbouring axes that all stages pass over together become one axis, and so do the axes of their tensors.

    for c, h, w: m[h, w] = max(m[h, w], x[c, h, w])        for c, p: m[p] = max(m[p], x[c, p])
    for c, h, w: y[c, h, w] = x[c, h, w] - m[h, w]    →    for c, p: y[c, p] = x[c, p] - m[p]

Vectors of 16 do not divide rows of 56 pixels, but images of 56 x 56. Where nothing is reduced,
``merged_axes`` does more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import Placed, nest_of, nodes_below, places, renamed, rooted

Pair = tuple[object, int]
"""Two neighbours, by the first one: axes of a block (by its name), or of a tensor."""


@dataclass(frozen=True)
class _Access:
    """The indices under which a block reads or writes one element of a tensor."""

    block: s_tir.SBlock
    tensor: tirx.Var
    indices: tuple[tirx.Expr, ...]


def joined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` over the fewest axes; itself if no axes can be joined, or if a stage does not store single elements.

    Its parameters have fewer axes, too.
    """
    placed = places(func)
    if not all(_is_plain(place) for place in placed):
        return func
    blocks = [place.realize.block for place in placed]
    accesses = [access for block in blocks for access in _accesses(block)]
    pairs = _joinable(blocks, accesses)
    if not pairs:
        return func
    tensors = {tensor: _smaller(tensor, pairs) for tensor in (*func.params, *func.body.block.alloc_buffers)}
    nests = [_rebuilt(block, pairs, tensors) for block in blocks]
    allocated = [tensors[tensor] for tensor in func.body.block.alloc_buffers]
    params = [tensors[param] for param in func.params]
    return tirx.PrimFunc(params, rooted(nests, allocated), func.ret_type, func.attrs)


def _is_plain(place: Placed) -> bool:
    """Return whether a block has one loop per axis, stores one element, and every region that it names is one."""
    block, values = place.realize.block, place.realize.iter_values
    if place.depth > 1 or len(place.loops) != len(values):
        return False
    if not all(loop.loop_var.same_as(value) for loop, value in zip(place.loops, values, strict=True)):
        return False
    stores = [block.body] if block.init is None else [block.body, block.init]
    regions = [span for region in (*block.reads, *block.writes) for span in region.region]
    return all(isinstance(store, tirx.BufferStore) for store in stores) and all(
        isinstance(span.extent, tirx.IntImm) and int(span.extent) == 1 for span in regions
    )


def _accesses(block: s_tir.SBlock) -> list[_Access]:
    """Every access of ``block``, those that it declares too."""
    stores = [block.body] if block.init is None else [block.body, block.init]
    loads = [load for store in stores for load in nodes_below(store, TensorLoad)]
    read = [(store.buffer, store.indices) for store in stores] + [(load.source, load.indices) for load in loads]
    read += [(region.source, [span.min for span in region.region]) for region in (*block.reads, *block.writes)]
    return [_Access(block, tensor, tuple(indices)) for tensor, indices in read]


def _joinable(blocks: Sequence[s_tir.SBlock], accesses: Sequence[_Access]) -> set[Pair]:
    """The pairs that can be joined in every access.

    A pair of axes and a pair of a tensor's axes that it passes over are joined together, or neither is.
    """
    linked = list[tuple[Pair, Pair]]()
    barred: set[Pair] = {
        (block.name_hint, at)
        for block in blocks
        for at, (one, other) in enumerate(pairwise(block.iter_vars))
        if one.iter_type != other.iter_type
    }
    for block in blocks:
        own = [access for access in accesses if access.block is block]
        plain = [index for access in own for index in access.indices]
        stores = [block.body] if block.init is None else [block.body, block.init]
        within = [index for store in stores for index in _indices_of(store)]
        for at, axis in enumerate(block.iter_vars):
            # All mentions have to be indices of their own: no number is computed of a joined axis.
            named = sum(var.same_as(axis.var) for store in stores for var in nodes_below(store, tirx.Var))
            alone = sum(index.same_as(axis.var) for index in within)
            mixed = any(
                not index.same_as(axis.var) and any(var.same_as(axis.var) for var in nodes_below(index, tirx.Var))
                for index in plain
            )
            if named != alone or mixed:
                barred |= {(block.name_hint, at - 1), (block.name_hint, at)}
    for access in accesses:
        sizes = [int(size) for size in access.tensor.ty.shape]
        passed = set[Pair]()
        for at, (one, other) in enumerate(pairwise(access.block.iter_vars)):
            first, second = (_places(access.indices, axis.var) for axis in (one, other))
            if not first and not second:
                continue
            whole = len(first) == len(second) == 1 and second[0] == first[0] + 1
            if whole and [sizes[first[0]], sizes[second[0]]] == [int(axis.dom.extent) for axis in (one, other)]:
                linked.append(((access.block.name_hint, at), (access.tensor, first[0])))
                passed.add((access.tensor, first[0]))
            else:
                barred.add((access.block.name_hint, at))
        barred |= {(access.tensor, at) for at in range(len(sizes) - 1)} - passed
    while True:
        spread = {pair for link in linked if barred & {*link} for pair in link} - barred
        if not spread:
            return {pair for link in linked for pair in link} - barred
        barred |= spread


def _indices_of(store: tirx.BufferStore) -> list[tirx.Expr]:
    """The indices of a store and of all loads below it."""
    return [*store.indices, *(index for load in nodes_below(store, TensorLoad) for index in load.indices)]


def _places(indices: Sequence[tirx.Expr], var: tirx.Var) -> list[int]:
    return [at for at, index in enumerate(indices) if index.same_as(var)]


def _runs(owner: object, count: int, pairs: set[Pair]) -> list[range]:
    """Neighbours that become one, in order."""
    starts = [at for at in range(count) if at == 0 or (owner, at - 1) not in pairs]
    return [range(start, end) for start, end in pairwise([*starts, count])]


def _smaller(tensor: tirx.Var, pairs: set[Pair]) -> tirx.Var:
    """A tensor of the same elements with the joined axes."""
    sizes, shape = list(tensor.ty.shape), []
    for run in _runs(tensor, len(sizes), pairs):
        size = sizes[run[0]]
        for at in run[1:]:
            size = size * sizes[at]
        shape.append(size)
    if len(shape) == len(sizes):
        return tensor
    return tirx.decl_buffer(shape, tensor.ty.dtype, tensor.name)


def _rebuilt(block: s_tir.SBlock, pairs: set[Pair], tensors: Mapping[tirx.Var, tirx.Var]) -> tirx.Stmt:
    """The nest of a block over the joined axes."""
    axes, names = list[tirx.IterVar](), dict(tensors)
    for run in _runs(block.name_hint, len(block.iter_vars), pairs):
        first, extent = block.iter_vars[run[0]], 1
        for at in run:
            extent *= int(block.iter_vars[at].dom.extent)
        dtype = first.var.ty.dtype
        var = tirx.Var("_".join(str(block.iter_vars[at].var.name) for at in run), dtype)
        whole = Range.from_min_extent(tirx.const(0, dtype), tirx.const(extent, dtype))
        axes.append(tirx.IterVar(whole, var, first.iter_type))
        names[first.var] = var

    def place(tensor: tirx.Var, indices: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [renamed(indices[run[0]], names) for run in _runs(tensor, len(indices), pairs)]

    def load(old: TensorLoad) -> TensorLoad:
        kept = [old.indices[run[0]] for run in _runs(old.source, len(old.indices), pairs)]
        return tirx.BufferLoad(tensors[old.source], kept)

    def moved(store: tirx.BufferStore) -> tirx.BufferStore:
        value = renamed(tvm_ffi.structural_map(store.value, (TensorLoad, load), order="post"), names)
        return tirx.BufferStore(tensors[store.buffer], value, place(store.buffer, store.indices))

    def region(old: tirx.BufferRegion) -> tirx.BufferRegion:
        at = place(old.source, [span.min for span in old.region])
        return tirx.BufferRegion(
            tensors[old.source], [Range.from_min_extent(index, tirx.const(1, index.ty.dtype)) for index in at]
        )

    init = None if block.init is None else moved(block.init)
    reads, writes = (list(map(region, regions)) for regions in (block.reads, block.writes))
    body = moved(block.body)
    return nest_of(s_tir.SBlock(axes, reads, writes, block.name_hint, body, init=init, annotations=block.annotations))
