"""Facts computed from a convolution's config without measuring: features for cost models, and first guesses."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config
from schedules.processors import Ports
from schedules.space import Columns, Space
from schedules.target import Target
from schedules.templates.amx import amx_conv2d
from schedules.templates.amx.amx_ir import MOST_ROWS
from schedules.templates.amx.amx_product import ALGORITHM, amx_cycles
from schedules.templates.common.prefetch import FEWEST_TILES
from schedules.templates.common.ranking import CYCLES, costs, varied
from schedules.templates.common.structure import FEW_THREADS, Anchor, balance, idle
from schedules.templates.instructions.micro_kernel import taps_of_load
from schedules.templates.nests.loop_nest import Loop, Nest, Role
from schedules.templates.nests.nest_features import cycles, unordered
from schedules.templates.nests.product_nests import CONV2D_AXES, conv2d_loops

BYTE = 15.0
"""Operations that a core does while one prefetched byte arrives from beyond L2. Heuristic, not measured."""

NOT_PREFETCHED = 4
"""How many times longer a byte takes when it was not prefetched. Heuristic, not measured."""


def features(columns: Columns, anchor: Anchor, target: Target) -> dict[str, NDArray[np.float64]]:
    """Analytic features of n configs, (n,) each: how much work there is and what may limit its speed.

    The 4 operations per transformed number are a heuristic, not measured.
    """
    batch, blocks, height, width, lanes = anchor.spatial
    depth, kh, kw, inner = anchor.reduction[:4]
    nest, to, th, tw = _nest(columns, anchor), columns["to"], columns["th"], columns["tw"]
    amx = columns["algorithm"] == ALGORITHM
    m = np.where(amx, 0, columns["algorithm"])
    side = np.where(m > 0, m, 1.0)
    products = np.where(m > 0, (side + 2) ** 2, kh * kw)
    tiles_h, tiles_w = np.ceil(height / side), np.ceil(width / side)
    # Multiply-adds in vectors, ragged last tiles counted whole; the transforms of Winograd beside them. Of bytes, a dot
    # product counts once, and so do the Q multiply-adds of floats that Winograd has in its place.
    quad = 1 if anchor.form is None else anchor.form.depth
    work = batch * blocks * depth * inner * products * tiles_h * tiles_w
    transforms = (m > 0) * batch * tiles_h * tiles_w * products * (depth * 4.0 + blocks * 4.0) / quad
    chunked = (m == 0) | (columns["outer"] > 0)
    parts = columns.get("parts", 1)
    jobs = np.where(
        m == 0,
        nest.extent(Role.JOB) / columns.get("turns", 1),
        np.where(chunked, batch * tiles_h / columns["rows"], products * blocks / to * parts),
    )
    weights = blocks * depth * inner * products * target.vector_bytes * np.where(m > 0, quad, 1)
    nominal = batch * blocks * depth * inner * kh * kw * height * width
    return {
        "work": np.log2(work),
        "transforms": transforms / work,
        "accumulators": nest.vectors * nest.numbers,
        "loads_per_fma": (nest.vectors + nest.numbers) / (nest.vectors * nest.numbers),
        "balance": _balance(jobs, (work, transforms), columns, anchor, target),
        "weights_l2": np.log2(weights / target.l2_bytes),
        "panel_l1": np.log2(
            to * depth * inner * np.where(m > 0, quad, kh * kw) * target.vector_bytes / target.l1_bytes
        ),
        "chunk_l1": np.log2(
            columns["depth"] * (to * inner * kh * kw + th * tw) * target.vector_bytes / target.l1_bytes
        ),
        CYCLES: np.where(amx, _amx_cycles(columns, anchor), _cycles(nest, columns, target)) * work / nominal,
        "fetch": BYTE * _fetched(columns, anchor, target, weights) * target.threads / (work * target.vector_bytes / 2),
        "tiles": np.where(chunked, columns["rows"], batch * tiles_h) / th * np.ceil(tiles_w / tw) / parts,
        "chunked": chunked.astype(np.float64),
    }


def _balance(
    jobs: NDArray[np.float64],
    done: tuple[NDArray[np.float64], NDArray[np.float64]],
    columns: Columns,
    anchor: Anchor,
    target: Target,
) -> NDArray[np.float64]:
    """(n,) ``balance`` of ``jobs`` of products; for many threads also of Winograd's transforms, if they are phases.

    Args:
        done: (n,) operations of products and of transforms.
    """
    share = balance(jobs, target.threads)
    if target.threads <= FEW_THREADS:
        return share
    (work, transforms), m = done, columns["algorithm"]
    down, across = (np.ceil(anchor.spatial[axis] / np.where(m > 0, m, 1.0)) for axis in (2, 3))
    pieces = np.gcd(across.astype(int), np.asarray(columns.get("parts", 1), int))
    rows = anchor.spatial[0] * down * pieces
    inputs, outputs = anchor.reduction[0], anchor.spatial[1]
    moved = sum(part / balance(rows * part, target.threads) for part in (inputs, outputs)) / (inputs + outputs)
    phases: NDArray[np.float64] = (work + transforms) / (work / share + transforms * moved)
    return np.where((m > 0) & (columns["outer"] == 0), phases, share)


def product_cycles(columns: Columns, anchor: Anchor, target: Target, ports: Ports | None = None) -> NDArray[np.float64]:
    """(n,) cycles of a config's products over those of as many independent ones, by ``tile_cycles``."""
    return _cycles(_nest(columns, anchor), columns, target, ports)


def _nest(columns: Columns, anchor: Anchor) -> Nest:
    """The nests of n configs; Winograd's products, of floats, have no loops over a window."""
    loops, direct = conv2d_loops(anchor, columns), columns["algorithm"] <= ALGORITHM
    loops |= {axis: Loop(axis, np.where(direct, loops[axis].extent, 1), Role.SUM) for axis in ("kh", "kw")}
    return unordered(anchor, CONV2D_AXES, loops, "o")


def _cycles(nest: Nest, columns: Columns, target: Target, ports: Ports | None = None) -> NDArray[np.float64]:
    direct, form = columns["algorithm"] <= ALGORITHM, nest.anchor.form
    of_load = np.where(direct, taps_of_load(columns["tw"], nest.anchor.reduction[2]), 1.0)
    direct_cycles = cycles(nest, target, form, of_load, ports)
    return direct_cycles if form is None else np.where(direct, direct_cycles, cycles(nest, target, None, ports=ports))


def _amx_cycles(columns: Columns, anchor: Anchor) -> NDArray[np.float64]:
    """(n,) ``amx_cycles`` of a convolution."""
    gather = amx_conv2d.geometry(anchor, anchor.form) if anchor.form is not None else None
    if gather is None:
        return np.ones(len(columns["to"]))
    pixels = (columns["th"] - 1) * gather.width + anchor.spatial[3]
    return amx_cycles(columns["to"] * (anchor.spatial[4] // MOST_ROWS), pixels, columns["th"] * anchor.spatial[3])


def _fetched(columns: Columns, anchor: Anchor, target: Target, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes that one thread reads from beyond its L2; a byte that is not prefetched counts ``NOT_PREFETCHED`` times.

    Direct method: with jobs ordered by rows (``outer`` = 1) and enough groups of rows, a thread reads its own rows and
    all weights; otherwise all rows and its own weights. Rows are not prefetched. Winograd: in chunks, all weights are
    read for every chunk, unless they fit half of L2; in phases they are read once, but transformed data is passed from
    phase to phase, and half of it is taken to be in L2. Both halves are heuristics, not measured.
    """
    batch, _, height, width, _ = anchor.spatial
    depth, _, _, inner = anchor.reduction[:4]
    m, rows, share = columns["algorithm"], columns["rows"], 1 / target.threads
    m = np.where(m == ALGORITHM, 0, m)
    data = batch * depth * inner * height * width * 4.0
    side = np.where(m > 0, m, 1.0)
    groups = batch * np.ceil(height / side) / rows
    in_turn = columns["outer"] > 0
    direct = np.where(
        in_turn & (groups >= target.threads),
        NOT_PREFETCHED * data * share + weights,
        NOT_PREFETCHED * data + weights * share,
    )
    again = np.where(weights > target.l2_bytes / 2, np.maximum(1.0, groups * share), 1.0)
    passed = (
        0.5
        * data
        * (1 if anchor.form is None else anchor.form.depth)
        * ((side + 2) / side) ** 2
        * (1 + anchor.spatial[1] / anchor.reduction[0])
    )
    winograd = np.where(in_turn, weights * again, (weights + passed) * share)
    return np.where(m > 0, winograd, direct)


def first_guesses(space: Space, threads: int, pixels: int) -> tuple[tuple[Config, ...], float]:
    """The configs an expert would try first, six of each algorithm, the algorithms in turn; and ``Space.saving``.

    Args:
        pixels: of all pictures together, which share the weights.
    """
    columns, order, saving = costs(space, partial(_terms, threads=threads, pixels=pixels))
    telling = [columns[name] for name in ("to", "th", "tw", "outer", "turns", "parts") if name in columns]
    by_algorithm = [
        varied(order[columns["algorithm"][order] == m], telling, most=6)
        for m in sorted(set(columns["algorithm"]), reverse=True)
    ]
    turns = itertools.zip_longest(*by_algorithm)
    guesses = tuple(space.config(space.rows[index]) for turn in turns for index in turn if index is not None)
    return guesses, saving


def _terms(columns: Columns, derived: Columns, threads: int, pixels: int) -> Columns:
    """Return the terms that make a first guess bad, for ``ranked``. The weights are heuristics, not measured."""
    tile = derived["accumulators"]
    amx = columns["algorithm"] == ALGORITHM
    return {
        # A vector of weights counts as nearly two loads: it must first come into L1, where pixels already are.
        "loads": 4.0 * np.where(amx, 0, (1.8 * columns["to"] + columns["th"] * columns["tw"]) / tile),
        "starved": np.where(amx, derived[CYCLES], 0.5 * np.maximum(0, 10 - tile)),
        # Weights that are read once come no faster than memory gives them, whatever the tile.
        "idle": 3.0 * idle(derived["balance"], threads, derived[CYCLES] if pixels > 1 else 1.0),
        "fetch": derived["fetch"],
        "unroll": 0.05 * np.abs(np.log2(columns["unroll"]) - 2),
        "grain": 0.02 * np.abs(columns["rows"] - columns["th"]) * derived["chunked"],
        # With fewer tiles per panel there are no prefetches.
        "waiting": 0.1 * np.maximum(0, np.log2(FEWEST_TILES / derived["tiles"])),
        # Weights that are read from L2 for every tile, and sums that go to memory after every chunk.
        "reread": 3.0 * (derived["chunk_l1"] > 0) * (columns["algorithm"] == 0) / (columns["th"] * columns["tw"]),
        "passes": 0.1 * np.log2(columns["depth"].max() / columns["depth"]),
    }
