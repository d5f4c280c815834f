"""Implicit GEMM on a GPU's ordinary cores: every product of float32 or int32, as ``cuda_computes`` writes it.

    for g, m, k: rows = gather             blockIdx.x = g, m/tm, n/tn   threadIdx.x = tm/rm · tn/rn
    for g, k, n: columns = gather              for k/tk:
    for g, m, n, k:                                together: rows[tm, tk], columns[tk, tn] → shared memory
        gemm += rows * columns      →              for tk/4:
    for …: view, bias, relu                            rows[rm, 4] → registers
                                                       for 4: columns[rn] → registers; gemm[rm, rn] += …
                                               view, bias, relu on the rm·rn tile while it is in registers

Sizes that tiles do not divide are padded with zeros where they are loaded and cut where they are stored. With few
tiles, as late in a network, ``split`` shares a tile's depth among several blocks and a second kernel adds their parts.
With two ``buffers`` the tiles of the next step are copied while those of this one are multiplied.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym.analyzer import Analyzer

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, blocks_in_order, find_anchor, nodes_below
from schedules.templates.cuda.cuda_computes import GEMM
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP, bind_flat, derived, fetch, unroll_below
from schedules.templates.template import OneAlgorithm
from schedules.vocabulary.errors import check

CHUNK = 4  # depth that a thread keeps of its rows: one 16-byte load from shared memory
ALIGN_WORDS = 4  # added to a row of the tile in shared memory, so that rows begin in different banks
VECTOR = 4  # words of a 16-byte load
REDUCE_THREADS = 128
WORDS = ("float32", "int32*int32")
"""Types of products, as ``cuda_computes`` writes them."""


def _numbers(anchor: Anchor, target: Target, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Return what is known of configs by arithmetic: threads, registers, shared memory, waves and traffic."""
    groups, rows, columns_count = anchor.spatial
    tm, tn, tk, rm, rn = (columns[name] for name in ("tm", "tn", "tk", "rm", "rn"))
    threads = (tm / rm) * (tn / rn)
    tiles = np.ceil(rows / tm) * np.ceil(columns_count / tn) * groups * columns["split"]
    registers = rm * rn + rm * CHUNK + rn + 32
    shared = 4 * (tm * (tk + ALIGN_WORDS) + tk * tn) * columns["buffers"]
    resident = np.minimum(
        np.minimum(target.registers / (registers * threads), target.shared_bytes / shared), 2048 / threads
    )
    slots = np.maximum(np.floor(np.minimum(resident, 16)), 1) * target.threads
    return {
        "threads": threads,
        "registers": registers,
        "shared": shared,
        "waves": tiles / (np.ceil(tiles / slots) * slots),
        "busy": np.minimum(1.0, tiles * threads / (256 * target.threads)),
        "used": rows / (np.ceil(rows / tm) * tm) * columns_count / (np.ceil(columns_count / tn) * tn),
        "loads_per_fma": (rm + rn) / (rm * rn),
        "traffic": 1 / tm + 1 / tn,
    }


def _fits(anchor: Anchor, target: Target, columns: Columns) -> NDArray[np.bool_]:
    """Return which configs a device of ``target`` can run, and none of whose threads idle."""
    (_, rows, columns_count), depth = anchor.spatial, anchor.reduction[0]
    counts = _numbers(anchor, target, columns)
    threads = counts["threads"]
    idle = 1 if min(rows, columns_count) > 1 else 16  # a vector's tile has no work for all who load it
    steps = np.ceil(depth / columns["tk"])
    legal: NDArray[np.bool_] = (
        (columns["rm"] <= columns["tm"])
        & (columns["rn"] <= columns["tn"])
        & (threads >= WARP)
        & (threads % WARP == 0)
        & (threads <= min(target.max_threads, 512))
        & (counts["shared"] <= min(STATIC_BYTES, target.shared_bytes))
        & (counts["registers"] <= 200)
        & (counts["registers"] * threads <= target.registers)
        & (columns["tm"] * columns["tk"] >= threads / idle)
        & (columns["tk"] * columns["tn"] >= threads / idle)
        & (columns["split"] * columns["buffers"] <= steps)
    )
    return legal


def _terms(anchor: Anchor, target: Target, columns: Columns, _: Columns) -> Columns:
    """Return summands by which configs are ranked; least first."""
    # Binary logarithms of a latency, fitted to 220 configs of 30 products of ResNet-50 (batch 1 and 8) and an
    # encoder on an H200. With each product left out of the fit in turn, the fit's rank correlation with what
    # was measured is 0.51 on average (weights by hand: 0.22), and the config that it ranks first takes 1.08
    # times as long as the best (by hand: 1.13). These are its weights, rounded, but for more ``loads`` and some
    # ``traffic``, which hold off tiles smaller than those measured: 0.44 and 1.08, on the same data.
    counts = _numbers(anchor, target, columns)
    return {
        "idle": -0.5 * np.log2(counts["busy"]),
        "padding": -1.5 * np.log2(counts["used"]),
        "loads": 0.8 * counts["loads_per_fma"],
        "traffic": 3 * counts["traffic"],
        "parts": 0.2 * np.log2(columns["split"]),
        "threads": 0.1 * np.abs(np.log2(counts["threads"] / 128)),
        "depth": 0.05 * np.abs(np.log2(columns["tk"] / 16)),
        "waiting": np.where(columns["buffers"] < 2, 0.2, 0.0),
        "waves": -0.1 * np.log2(counts["waves"]),
    }


class CudaGemmTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for products of float32 and of int32."""

    name = GEMM
    version = 2

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The product, if it is of words and its result is read once, element by element."""
        anchor = find_anchor(func, GEMM)
        if anchor is None or anchor.geometry["dtype"] not in WORDS or not has_warp(anchor):
            return None
        return anchor if stores_once(func, anchor) else None

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tiles of block and thread, depth per step, among how many blocks it is shared, and tiles in shared memory."""
        groups, rows, columns_count = anchor.spatial
        depth = anchor.reduction[0]
        knobs = (
            Knob("tm", _sides(rows, (8, 16, 32, 64, 128))),
            Knob("tn", _sides(columns_count, (16, 32, 64, 128))),
            Knob("tk", tiles_for(depth, (8, 16, 32))),
            Knob("rm", (1, 2, 4, 8)),
            Knob("rn", (1, 2, 4, 8)),
            Knob("split", tuple(s for s in (1, 2, 4, 8, 16, 32) if s == 1 or depth >= 64 * s)),
            Knob("buffers", (1, 2)),
        )
        numbers = derived(partial(_numbers, anchor, target))
        space = Space(GEMM, self.version, knobs, partial(_fits, anchor, target), numbers)
        return ranked(space, partial(_terms, anchor, target), 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        tm, tn, tk, rm, rn, split = (config.integer(name) for name in ("tm", "tn", "tk", "rm", "rn", "split"))
        block, tail = prepare_product(sch, anchor, (tm, tn, tk * split))
        rows, columns = sch.get_producers(block)
        if split > 1:
            block = share_depth(sch, block, tail, split)
        g, m, n, k = sch.get_loops(block)[-4:]
        lead = sch.get_loops(block)[:-4]
        width = math.gcd(rn, 4)
        mo, my, mi = sch.split(m, [None, tm // rm, rm])
        no, nx, nj = sch.split(n, [None, tn // rn, rn])
        ko, km, kq = sch.split(k, [None, tk // CHUNK, CHUNK])
        sch.reorder(*lead, g, mo, no, my, nx, ko, km, kq, mi, nj)
        tiles, thread = sch.fuse(*lead, g, mo, no), sch.fuse(my, nx)
        sch.bind(tiles, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        if split > 1:
            tail = sch.cache_write(block, 0, "local")
        else:
            sch.set_scope(block, 0, "local")
        sch.reverse_compute_at(tail, thread, preserve_unit_loops=True)
        if width > 1 and (split > 1 or anchor.spatial[2] % width == 0):
            sch.vectorize(sch.split(sch.get_loops(tail)[-1], [None, width])[1])
        threads = [("threadIdx.x", (tm // rm) * (tn // rn))]
        registers = (sch.cache_read(block, 0, "local"), sch.cache_read(block, 1, "local"))
        sch.compute_at(registers[0], km, preserve_unit_loops=True)
        sch.vectorize(sch.get_loops(registers[0])[-1])
        sch.compute_at(registers[1], kq, preserve_unit_loops=True)
        if width > 1:
            sch.vectorize(sch.split(sch.get_loops(registers[1])[-1], [None, width])[1])
        load_tiles(sch, anchor, (rows, columns), ko, threads)
        sch.decompose_reduction(block, ko)
        if config.integer("buffers") > 1:
            fetch_ahead(sch, ko)
        unroll_below(sch, thread)


def stores_once(func: tirx.PrimFunc, anchor: Anchor) -> bool:
    """Return whether the product's epilogue has one element per element of it, so that it can go with a tile's end."""
    last = blocks_in_order(func)[-1]
    return last.name_hint != anchor.block and math.prod(anchor.spatial) == math.prod(
        int(axis.dom.extent) for axis in last.iter_vars
    )


def prepare_product(sch: s_tir.Schedule, anchor: Anchor, tile: tuple[int, int, int]) -> tuple[SBlockRV, SBlockRV]:
    """Pad the product to multiples of ``tile`` (m, n, k) and bring what follows it into the order (g, m, n).

    Returns:
        The product and the last stage; all between them is inlined.
    """
    for name in anchor.epilogue[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    block, tail = sch.get_sblock(anchor.block), sch.get_sblock(anchor.epilogue[-1])
    sizes = (*anchor.spatial[1:], anchor.reduction[0])
    if any(size % part for size, part in zip(sizes, tile, strict=True)):
        sch.pad_einsum(block, [1, *tile])
        for producer, name in zip(sch.get_producers(block), ("rows", "columns"), strict=True):
            if sch.get(producer).name_hint != name:
                sch.compute_inline(sch.get_sblock(name))
        (after,) = sch.get_consumers(block)
        if sch.get(after).name_hint != sch.get(tail).name_hint:
            sch.compute_inline(after)
    sch.transform_block_layout(tail, _product_order(sch, block, tail))
    _read_in_order(sch, block, tail)
    return block, tail


def _read_in_order(sch: s_tir.Schedule, block: SBlockRV, tail: SBlockRV) -> None:
    """Say in the tail that it reads the product at its own axes.

    It does, by the order it was brought into; but TVM writes (g·N + n) // N for g and forgets that n < N, and then
    takes what a thread reads of a group for a piece of several. No schedule instruction says so, so the trace of such a
    schedule does not lead to it.
    """
    product, old = sch.get(block).writes[0].source, sch.get(tail)
    axes = [axis.var for axis in old.iter_vars]

    def load(original: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(product, axes) if original.source.same_as(product) else original

    def region(original: TensorRegion) -> TensorRegion:
        if not original.source.same_as(product):
            return original
        return tirx.BufferRegion(product, [Range.from_min_extent(axis, tirx.const(1, "int64")) for axis in axes])

    body = tvm_ffi.structural_map(old.body, (TensorLoad, load))
    if tvm_ffi.structural_equal(body, old.body, map_free_vars=True):
        return
    reads = [region(read) for read in old.reads]
    new = s_tir.SBlock(old.iter_vars, reads, old.writes, old.name_hint, body, annotations=old.annotations)
    sch.state.replace(sch.get_sref(tail), new, {old: new})


def _product_order(sch: s_tir.Schedule, block: SBlockRV, tail: SBlockRV) -> tirx.IndexMap:
    """The tail's axes → the indices (g, m, n) at which it reads the product."""
    product = sch.get(block).writes[0].source
    info = sch.get(tail)
    loads = [load for load in nodes_below(info.body, TensorLoad) if load.source.same_as(product)]
    check(loads, "what follows the product does not read it")
    axes = [axis.var for axis in info.iter_vars]
    return tirx.IndexMap(axes, list(loads[0].indices), None)


def share_depth(sch: s_tir.Schedule, block: SBlockRV, tail: SBlockRV, split: int) -> SBlockRV:
    """Compute ``split`` partial products over parts of the depth; a kernel of its own adds them and does the rest.

    Returns:
        The block of the partial products, its axes (part, g, m, n | k).
    """
    k = sch.get_loops(block)[-1]
    part, _ = sch.split(k, [split, None])
    partial = sch.rfactor(part, 0)
    g, m, n, part, rest = sch.get_loops(partial)
    sch.reorder(part, g, m, n, rest)
    _, thread = bind_flat(sch, sch.get_loops(tail), REDUCE_THREADS)
    sch.compute_at(block, thread, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    return partial


def load_tiles(
    sch: s_tir.Schedule,
    anchor: Anchor,
    stages: tuple[SBlockRV, SBlockRV],
    step: LoopRV,
    threads: list[tuple[str, int]],
) -> None:
    """Make the two gathers loads into shared memory at every ``step``."""
    contiguous = vector_lengths(anchor, VECTOR)
    for stage, along, inner, width in zip(
        stages, (anchor.geometry["rows"], anchor.geometry["columns"]), ("k", "n"), contiguous, strict=True
    ):
        sch.set_scope(stage, 0, "shared")
        if width > 1 and along == inner:
            _keep_together(sch, stage, width)
        sch.compute_at(stage, step, preserve_unit_loops=True)
        if along != inner:  # neighbours in memory are neighbours along the tile's other axis
            loops = sch.get_loops(stage)
            sch.reorder(loops[-1], loops[-2])
        fetch(sch, stage, 3 if width > 1 and along == inner else 2, threads, width)
        if inner == "k":
            sch.storage_align(stage, 0, -2, 2 * ALIGN_WORDS, ALIGN_WORDS)


def _keep_together(sch: s_tir.Schedule, stage: SBlockRV, width: int) -> None:
    """Make ``width`` neighbours along the innermost axis an axis of their own, so that one guard and one load take all.

    TVM sees that a guard is the same for all of them only where the quotients in it are of other axes. It simplifies
    with the extents of loops, not of a block's axes. So that is done here, and the trace does not lead to it.
    """
    sch.transform_block_layout(stage, lambda g, i, j: [g, i, tirx.floordiv(j, width), tirx.floormod(j, width)])
    old, analyzer = sch.get(stage), Analyzer()
    for axis in old.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    store = old.body
    body = tirx.BufferStore(store.buffer, analyzer.simplify(store.value), store.indices)
    new = s_tir.SBlock(old.iter_vars, old.reads, old.writes, old.name_hint, body, annotations=old.annotations)
    sch.state.replace(sch.get_sref(stage), new, {old: new})


def fetch_ahead(sch: s_tir.Schedule, step: LoopRV) -> None:
    """While the tiles of one ``step`` are multiplied, copy those of the next into other buffers, asynchronously.

    The loop's body is the two loads and the product, in this order. ``PASSES`` make the copies ``cp.async``.
    """
    sch.annotate(step, "software_pipeline_stage", [0, 0, 1])
    sch.annotate(step, "software_pipeline_order", [0, 1, 2])
    sch.annotate(step, "software_pipeline_async_stages", [0])


def vector_lengths(anchor: Anchor, vector: int) -> tuple[int, int]:
    """Elements that one load of the rows and of the columns can take: only where nothing breaks a run of them."""
    run = int(anchor.geometry.get("run", anchor.reduction[0]))
    rows = math.gcd(run, vector) if anchor.geometry["rows"] == "k" else 1
    columns = math.gcd(anchor.spatial[2], vector) if anchor.geometry["columns"] == "n" else 1
    return rows, columns


def tiles_for(size: int, offered: tuple[int, ...]) -> tuple[int, ...]:
    """Tiles no more than twice too large for ``size``; the smallest always."""
    return tuple(tile for tile in offered if tile < 2 * size) or offered[:1]


def _sides(size: int, offered: tuple[int, ...]) -> tuple[int, ...]:
    """Tiles along rows or columns. A single one is a tile of its own: padded to more, the end of the kernel would not
    know which thread has it, since TVM takes the index of a single element for zero.
    """
    return (1,) if size == 1 else tiles_for(size, offered)


def has_warp(anchor: Anchor) -> bool:
    """Return whether some tile of the result has an element for every thread of a warp."""
    few, many = sorted(anchor.spatial[1:])
    return few > 1 or many > WARP // 2
