"""Implicit GEMM on tensor cores: products of float16 or bfloat16 with float32 accumulation.

    for g, m, k: rows = gather             blockIdx.x = g, m/tm, n/tn   threadIdx.y = warps   threadIdx.x = 32 lanes
    for g, k, n: columns = gather              for k/tk:
    for g, m, n, k:                                together: rows[tm, tk], columns[tk, tn] → shared memory
        gemm += rows * columns      →              for tk/16: fragments of the warp's tile; multiply 16×16×16
    for …: view, bias, relu                    the tile → shared memory
                                               together: view, bias, relu of the tile

Sizes that tiles do not divide are padded with zeros where they are loaded and cut where they are stored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, find_anchor
from schedules.templates.cuda.cuda_computes import GEMM
from schedules.templates.cuda.cuda_gemm import (
    SharedTile,
    fetch_ahead,
    load_tiles,
    prepare_product,
    stores_once,
    tiles_for,
    vector_lengths,
)
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP, derived, fetch, unroll_below
from schedules.templates.cuda.cuda_wmma import RESULT, SHARED, TILE, intrinsics
from schedules.templates.template import OneAlgorithm

OP = "cuda_tensor"
ALIGN_HALVES = 8  # added to a row of a tile in shared memory: fragments need rows of whole 16-byte pieces
VECTOR = 8  # halves of one 16-byte load
FRAGMENT_REGISTERS = 8  # of one thread, per 16×16 accumulator, and per two operand fragments


class CudaTensorTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for 16-bit products."""

    name = OP
    version = 2

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The product, if it is of 16-bit floats and its result is read once, element by element."""
        anchor = find_anchor(func, GEMM)
        if anchor is None or anchor.geometry["dtype"] not in ("float16", "bfloat16"):
            return None
        return anchor if stores_once(func, anchor) else None

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tiles of block and warp, depth per step, and tiles in shared memory."""
        groups, rows, columns_count = anchor.spatial
        knobs = (
            Knob("tm", tiles_for(rows, (16, 32, 64, 128))),
            Knob("tn", tiles_for(columns_count, (16, 32, 64, 128))),
            Knob("tk", tiles_for(anchor.reduction[0], (16, 32, 64))),
            Knob("wm", (1, 2, 4)),
            Knob("wn", (1, 2, 4)),
            Knob("buffers", (1, 2)),
        )

        def numbers(columns: Columns) -> dict[str, NDArray[np.float64]]:
            tm, tn, tk, wm, wn = (columns[name] for name in ("tm", "tn", "tk", "wm", "wn"))
            fragments = (tm / wm / TILE) * (tn / wn / TILE)
            tiles = np.ceil(rows / tm) * np.ceil(columns_count / tn) * groups
            result = 4 * tm * tn
            return {
                "threads": WARP * wm * wn,
                "registers": FRAGMENT_REGISTERS * (fragments + (tm / wm + tn / wn) / TILE) + 40,
                "result": result,
                "shared": 2 * (tm * (tk + ALIGN_HALVES) + tk * (tn + ALIGN_HALVES)) * columns["buffers"] + result,
                "fragments": fragments,
                "busy": np.minimum(1.0, tiles / target.threads),
                "used": rows / (np.ceil(rows / tm) * tm) * columns_count / (np.ceil(columns_count / tn) * tn),
                "traffic": 1 / tm + 1 / tn,
            }

        def fits(columns: Columns) -> NDArray[np.bool_]:
            found = numbers(columns)
            legal: NDArray[np.bool_] = (
                (found["fragments"] >= 1)
                & (columns["tm"] % (columns["wm"] * TILE) == 0)
                & (columns["tn"] % (columns["wn"] * TILE) == 0)
                & (found["result"] <= STATIC_BYTES)
                & (found["shared"] <= target.shared_bytes)
                & (found["registers"] <= 200)
                & (found["registers"] * found["threads"] <= target.registers)
                & (columns["buffers"] <= np.ceil(anchor.reduction[0] / columns["tk"]))
            )
            return legal

        def terms(columns: Columns, _: Columns) -> Columns:
            # In the order of ``cuda_gemm``'s. Heuristic, not measured.
            found = numbers(columns)
            return {
                "idle": -3 * np.log2(found["busy"]),
                "padding": -2 * np.log2(found["used"]),
                "traffic": 48 * found["traffic"],
                "threads": np.abs(np.log2(found["threads"] / 128)),
                "fragments": 0.5 * np.abs(np.log2(found["fragments"] / 4)),
                "depth": 0.3 * np.abs(np.log2(columns["tk"] / 32)),
                "waiting": 0.5 * (columns["buffers"] < 2),
            }

        return ranked(Space(OP, self.version, knobs, fits, derived(numbers)), terms, 8)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        tm, tn, tk, wm, wn = (config.integer(name) for name in ("tm", "tn", "tk", "wm", "wn"))
        steps = intrinsics(str(anchor.geometry["dtype"]))
        block, tail = prepare_product(sch, anchor, (tm, tn, tk))
        rows, columns = sch.get_producers(block)
        for stage in (rows, columns):
            sch.set_scope(stage, 0, SHARED)
        g, m, n, k = sch.get_loops(block)
        mo, mw, mt, mi = sch.split(m, [None, wm, tm // wm // TILE, TILE])
        no, nw, nt, ni = sch.split(n, [None, wn, tn // wn // TILE, TILE])
        ko, kt, ki = sch.split(k, [None, tk // TILE, TILE])
        sch.reorder(g, mo, no, mw, nw, ko, kt, mt, nt, mi, ni, ki)
        tiles, warp = sch.fuse(g, mo, no), sch.fuse(mw, nw)
        sch.bind(tiles, "blockIdx.x")
        sch.bind(warp, "threadIdx.y")
        threads = [("threadIdx.y", wm * wn), ("threadIdx.x", WARP)]
        store = sch.cache_write(block, 0, "wmma.accumulator")
        sch.set_scope(store, 0, RESULT)
        sch.reverse_compute_at(store, warp, preserve_unit_loops=True)
        sch.reverse_compute_at(tail, tiles, preserve_unit_loops=True)
        fetch(sch, tail, 2, threads, min(4, vector_lengths(anchor, 4)[1]))
        fragments = (sch.cache_read(block, 0, "wmma.matrix_a"), sch.cache_read(block, 1, "wmma.matrix_b"))
        for fragment, step in zip(fragments, ("load_a", "load_b"), strict=True):
            sch.compute_at(fragment, kt, preserve_unit_loops=True)
            _tensorize(sch, fragment, steps[step])
        load_tiles(sch, anchor, (rows, columns), ko, threads, SharedTile(SHARED, ALIGN_HALVES, VECTOR))
        _tensorize(sch, store, steps["store"])
        init = sch.decompose_reduction(block, ko)
        sch.tensorize(sch.get_loops(init)[-2], steps["fill"])
        sch.tensorize(mi, steps["sync"])
        if config.integer("buffers") > 1:
            fetch_ahead(sch, ko)
        unroll_below(sch, kt)


def _tensorize(sch: s_tir.Schedule, block: SBlockRV, intrinsic: str) -> None:
    """Cut the block's two innermost loops into tiles and make each one step."""
    m, n = sch.get_loops(block)[-2:]
    mo, mi = sch.split(m, [None, TILE])
    no, ni = sch.split(n, [None, TILE])
    sch.reorder(mo, no, mi, ni)
    sch.tensorize(mi, intrinsic)
