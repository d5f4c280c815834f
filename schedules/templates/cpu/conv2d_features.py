"""What is known of a convolution's config before it is measured: features for cost models, and first guesses."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config
from schedules.space import Columns, Space
from schedules.target import Target
from schedules.templates.common.prefetch import FEWEST_TILES
from schedules.templates.common.ranking import costs, varied
from schedules.templates.common.structure import Anchor, balance

BYTE = 15.0
"""Operations in the time in which one prefetched byte comes from beyond L2. A heuristic."""

NOT_PREFETCHED = 4
"""How many times longer a byte takes that was not prefetched. A heuristic."""


def features(columns: Columns, anchor: Anchor, target: Target) -> dict[str, NDArray[np.float64]]:
    """Analytic features: what a kernel is bound by, in the units of the machine."""
    batch, blocks, height, width, lanes = anchor.spatial
    depth, kh, kw, inner = anchor.reduction
    m, to, th, tw = (columns[name] for name in ("algorithm", "to", "th", "tw"))
    tile = to * th * tw
    side = np.where(m > 0, m, 1.0)
    products = np.where(m > 0, (side + 2) ** 2, kh * kw)
    tiles_h, tiles_w = np.ceil(height / side), np.ceil(width / side)
    # Multiply-adds in vectors, ragged last tiles counted whole; the transforms of Winograd beside them.
    work = batch * blocks * depth * inner * products * tiles_h * tiles_w
    transforms = (m > 0) * batch * tiles_h * tiles_w * products * (depth * 4.0 + blocks * 4.0)
    chunked = (m == 0) | (columns["outer"] > 0)
    jobs = np.where(
        m == 0,
        batch * (blocks / to) * (height / columns["rows"]),
        np.where(chunked, batch * tiles_h / columns["rows"], products * blocks / to),
    )
    weights = blocks * depth * inner * products * target.vector_bytes
    return {
        "work": np.log2(work),
        "transforms": transforms / work,
        "accumulators": tile,
        "loads_per_fma": (to + th * tw) / tile,
        "balance": balance(jobs, target.threads),
        "weights_l2": np.log2(weights / target.l2_bytes),
        "panel_l1": np.log2(to * depth * inner * np.where(m > 0, 1, kh * kw) * target.vector_bytes / target.l1_bytes),
        "chunk_l1": np.log2(
            columns["depth"] * (to * inner * kh * kw + th * tw) * target.vector_bytes / target.l1_bytes
        ),
        "starved": np.maximum(0.0, 8.0 - tile),
        "fetch": BYTE * _fetched(columns, anchor, target, weights) * target.threads / (work * target.vector_bytes / 2),
        "tiles": np.where(chunked, columns["rows"], batch * tiles_h) / th * np.ceil(tiles_w / tw),
        "chunked": chunked.astype(np.float64),
    }


def _fetched(columns: Columns, anchor: Anchor, target: Target, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes that a thread has to fetch from beyond its L2, in units of prefetched weights.

    Directly: where jobs of several groups of rows follow each other a thread reads its rows and all weights, else all
    rows and its weights; rows are not prefetched and come at a quarter of the speed. Winograd reads all weights
    for every chunk, or in phases once, and then passes transformed data on to the next phase, half of it in L2.
    """
    batch, _, height, width, _ = anchor.spatial
    depth, _, _, inner = anchor.reduction
    m, rows, share = columns["algorithm"], columns["rows"], 1 / target.threads
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
    passed = 0.5 * data * ((side + 2) / side) ** 2 * (1 + anchor.spatial[1] / anchor.reduction[0])
    winograd = np.where(in_turn, weights * again, (weights + passed) * share)
    return np.where(m > 0, winograd, direct)


def first_guesses(space: Space) -> tuple[Config, ...]:
    """The configs an expert would try first, six of each algorithm, the algorithms in turn."""
    columns, order = costs(space, _terms)
    telling = [columns[name] for name in ("to", "th", "tw", "outer")]
    by_algorithm = [
        varied(order[columns["algorithm"][order] == m], telling, most=6)
        for m in sorted(set(columns["algorithm"]), reverse=True)
    ]
    turns = itertools.zip_longest(*by_algorithm)
    return tuple(space.config(space.rows[index]) for turn in turns for index in turn if index is not None)


def _terms(columns: Columns, derived: Columns) -> Columns:
    """What makes a first guess bad. The weights are heuristics, tried on few machines and not fitted."""
    tile = derived["accumulators"]
    return {
        # A vector of weights costs nearly two loads: it has to come into L1 first, whence a pixel has been read before.
        "loads": 4.0 * (1.8 * columns["to"] + columns["th"] * columns["tw"]) / tile,
        "starved": 0.5 * np.maximum(0, 10 - tile),
        "idle": 3.0 * (1 - derived["balance"]),
        "fetch": derived["fetch"],
        "unroll": 0.05 * np.abs(np.log2(columns["unroll"]) - 2),
        "grain": 0.02 * np.abs(columns["rows"] - columns["th"]) * derived["chunked"],
        # Below that many tiles of one panel there are no prefetches.
        "waiting": 0.1 * np.maximum(0, np.log2(FEWEST_TILES / derived["tiles"])),
        # Weights that come from L2 for every tile, and sums that go to memory for every chunk.
        "reread": 3.0 * (derived["chunk_l1"] > 0) * (columns["algorithm"] == 0) / (columns["th"] * columns["tw"]),
        "passes": 0.1 * np.log2(columns["depth"].max() / columns["depth"]),
    }
