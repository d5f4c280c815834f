"""Implicit GEMM on tensor cores: products of halves, of bytes, and of float32 rounded to TF32.

    for g, m, k: rows = gather             blockIdx.x = split, g, m/tm, n/tn   threadIdx.y = warps   threadIdx.x = lanes
    for g, k, n: columns = gather              begin to copy the tiles of stages - 1 steps
    for g, m, n, k:                            for k/tk:
        gemm += rows * columns      →              wait for the oldest tiles; begin to copy those of a later step
    for …: view, bias, relu                        for tk/depth: fragments of the warp's tile; mma.sync
                                               view, bias, relu on the sums, in registers

Sizes that tiles do not divide are padded with zeros where they are copied and cut where they are stored. With few
tiles, ``split`` shares a tile's depth among several blocks and a second kernel adds their parts. Float32 and integer
sums are exact enough for any order; integers are exact.

The kernel is written by hand (``cuda_tensor_kernel``), its instructions are in ``cuda_mma``.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.task import TENSOR_CORES
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, find_anchor
from schedules.templates.cuda.cuda_computes import GEMM
from schedules.templates.cuda.cuda_gemm import has_warp, stores_once, tiles_for
from schedules.templates.cuda.cuda_mma import COLUMNS, MULTIPLIES, ROWS
from schedules.templates.cuda.cuda_structure import WARP, derived
from schedules.templates.cuda.cuda_tensor_kernel import tensor_kernel
from schedules.templates.cuda.cuda_tensor_parts import TensorTile
from schedules.templates.template import OneAlgorithm

OP = TENSOR_CORES
MOST_REGISTERS = 240
"""Registers of a thread, as ``numbers`` counts them: a device has 255, and NVRTC needs up to 10 more than these."""


def _numbers(anchor: Anchor, target: Target, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Return what is known of configs by arithmetic, as ``cuda_gemm``."""
    (groups, rows, columns_count), kind = anchor.spatial, MULTIPLIES[anchor.geometry["dtype"]]
    tm, tn, tk, wm, wn = (columns[name] for name in ("tm", "tn", "tk", "wm", "wn"))
    fragments_m, fragments_n = tm / wm / ROWS, tn / wn / COLUMNS
    tiles = np.ceil(rows / tm) * np.ceil(columns_count / tn) * groups * columns["split"]
    threads = WARP * wm * wn
    shared = kind.bytes * tk * (tm + tn) * columns["stages"]
    # Fragments of the next step are loaded while those of this one are multiplied.
    registers = 4 * fragments_m * fragments_n + 2 * (4 * fragments_m + 2 * fragments_n) + 40
    resident = np.minimum(target.shared_bytes / shared, target.registers / (registers * threads))
    slots = np.maximum(np.floor(np.minimum(resident, 2048 / threads)), 1) * target.threads
    return {
        "threads": threads,
        "registers": registers,
        "shared": shared,
        "fragments": fragments_m * fragments_n,
        "busy": np.minimum(1.0, tiles / target.threads),
        "waves": tiles / (np.ceil(tiles / slots) * slots),
        "used": rows / (np.ceil(rows / tm) * tm) * columns_count / (np.ceil(columns_count / tn) * tn),
        "loads": (fragments_m + fragments_n / 2) / (fragments_m * fragments_n),
        "traffic": 1 / tm + 1 / tn,
    }


def _fits(anchor: Anchor, target: Target, columns: Columns) -> NDArray[np.bool_]:
    """Return which configs a device of ``target`` can run."""
    depth = anchor.reduction[0]
    counts = _numbers(anchor, target, columns)
    steps = np.ceil(depth / columns["tk"])
    legal: NDArray[np.bool_] = (
        (columns["tm"] % (columns["wm"] * ROWS) == 0)
        & (columns["tn"] % (columns["wn"] * 2 * COLUMNS) == 0)
        & (counts["shared"] <= target.shared_bytes)
        & (counts["registers"] <= MOST_REGISTERS)
        & (counts["registers"] * counts["threads"] <= target.registers)
        & (columns["stages"] <= np.maximum(2, steps))
        & (columns["split"] * 2 <= np.maximum(2, steps))
    )
    return legal


def _terms(anchor: Anchor, target: Target, columns: Columns, _: Columns) -> Columns:
    """Return summands by which configs are ranked; least first."""
    kind = MULTIPLIES[anchor.geometry["dtype"]]
    # In the order of ``cuda_gemm``'s. Heuristic, not measured.
    counts = _numbers(anchor, target, columns)
    return {
        "idle": -2 * np.log2(counts["busy"]),
        "padding": -2 * np.log2(counts["used"]),
        "loads": 2 * counts["loads"],
        "traffic": 32 * counts["traffic"],
        "parts": 0.8 * (columns["split"] > 1) + 0.2 * np.log2(columns["split"]),
        "threads": 0.5 * np.abs(np.log2(counts["threads"] / 128)),
        "depth": 0.3 * np.abs(np.log2(columns["tk"] / kind.depth / 2)),
        "waiting": 0.3 * np.abs(columns["stages"] - 3),
        "waves": -0.3 * np.log2(counts["waves"]),
    }


class CudaTensorTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for products on tensor cores."""

    name = OP
    version = 3

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The product, if tensor cores multiply its type and its result is read once, element by element."""
        anchor = find_anchor(func, GEMM)
        if anchor is None or anchor.geometry["dtype"] not in MULTIPLIES or not has_warp(anchor):
            return None
        return anchor if stores_once(func, anchor) else None

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Tiles of block and warp, depth per step, stages of tiles in shared memory, and blocks that share a depth."""
        groups, rows, columns_count = anchor.spatial
        depth, kind = anchor.reduction[0], MULTIPLIES[anchor.geometry["dtype"]]
        knobs = (
            Knob("tm", tiles_for(rows, (16, 32, 64, 128))),
            Knob("tn", tiles_for(columns_count, (16, 32, 64, 128, 256))),
            Knob("tk", tiles_for(depth, (kind.depth, 2 * kind.depth, 4 * kind.depth))),
            Knob("wm", (1, 2, 4)),
            Knob("wn", (1, 2, 4)),
            Knob("stages", (2, 3, 4)),
            Knob("split", tuple(s for s in (1, 2, 4, 8) if s == 1 or depth >= 8 * kind.depth * s)),
        )
        numbers = derived(partial(_numbers, anchor, target))
        space = Space(OP, self.version, knobs, partial(_fits, anchor, target), numbers)
        return ranked(space, partial(_terms, anchor, target), 8)

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """The product by the config's tile, as a kernel written by hand."""
        tile = TensorTile(*(config.integer(name) for name in ("tm", "tn", "tk", "wm", "wn", "stages", "split")))
        return tensor_kernel(func, anchor, MULTIPLIES[anchor.geometry["dtype"]], tile)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Nothing is left to do."""
