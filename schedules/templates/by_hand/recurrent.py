"""The template of recurrent kernels, which are scheduled by hand, but for threads and the sequences that share R."""

from __future__ import annotations

import math

import numpy as np
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.by_hand.byte_recurrent import BYTE_AXES, BYTES, SUMS, byte_lstm_steps
from schedules.templates.by_hand.recurrent_both_ways import APART, BOTH, MAKERS_BOTH
from schedules.templates.by_hand.recurrent_steps import (
    BACKWARDS,
    LANES,
    LIMITED,
    MAKERS,
    SCHEDULED,
    UNITS,
    groups_of,
)
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, parameter_shapes
from schedules.templates.template import OneAlgorithm

OP = "recurrent"

TILES = (1, 2, 3)
"""Sequences that share what is read of R, which the first cache does not hold: 8 sums each, in 32 registers."""

JOIN_NS = 600
"""Nanoseconds that threads take to meet after a step, for the first guess: what the two threads above lose.
It orders rightly a GRU of 64 units (one thread), and the LSTM and the GRU of ``tests.models`` (two threads)."""

TERMS_PER_NS = 40
"""Multiply-adds of a step per nanosecond and thread, for the first guess: what the one thread above does."""

BYTE_TERMS_PER_NS = 100
"""The same of bytes: what one thread does with R of 256 units, which L2 holds, on a Zen 4: 2.6 µs for 2¹⁸."""


def for_threads(func: tirx.PrimFunc, threads: int, tile: int = 1) -> tirx.PrimFunc:
    """The same kernel for ``threads`` threads, one group of chunks each if it divides them; bytes have no ``tile``."""
    label = str(func.attrs[SCHEDULED])
    if label.endswith(BOTH):
        steps, batch, *_ = (int(size) for size in func.params[0].ty.shape)
        units = int(func.params[1].ty.shape[1])
        return MAKERS_BOTH[label.removesuffix(BOTH)](steps, batch, units, threads, tile)
    limited, label = label.endswith(LIMITED), label.removesuffix(LIMITED)
    kind, backwards = label.removesuffix(BACKWARDS), label.endswith(BACKWARDS)
    steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
    if kind == BYTES:
        shifted = int(func.params[SUMS].ty.shape[0]) > 1
        return byte_lstm_steps(steps, batch, chunks * UNITS, backwards, threads, shifted, by_dots=True)
    return MAKERS[kind](steps, batch, int(func.params[1].ty.shape[1]), backwards, threads, tile, limited)


class RecurrentTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for recurrent kernels."""

    name = OP
    version = 2

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The whole function, if it is a recurrent kernel."""
        label = str(func.attrs[SCHEDULED]) if func.attrs and SCHEDULED in func.attrs else ""
        kind = label.removesuffix(LIMITED).removesuffix(BACKWARDS)
        if kind not in (*MAKERS, BYTES, *(own + BOTH for own in MAKERS_BOTH)):
            return None
        steps, batch, chunks, *_ = (int(size) for size in func.params[0].ty.shape)
        ways = 2 if kind.endswith(BOTH) else 1
        chunks //= ways
        shapes = parameter_shapes(func)
        summed = chunks * UNITS if len(shapes[1]) == len(BYTE_AXES) else shapes[1][1]
        return Anchor("step", (steps, batch, chunks, ways), (summed,), (), (), shapes)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Groups of chunks, one for each thread or for fewer, and how many sequences share what is read of R."""
        _, batch, chunks, ways = anchor.spatial
        groups, _ = groups_of(chunks, target.threads)
        fewer = (count for count in range(target.threads - 1, 0, -1) if chunks % count == 0)
        apart = [APART] if ways > 1 and target.threads > 1 else []
        knob = Knob("groups", tuple(dict.fromkeys((groups, *fewer, *apart))))
        terms = batch * math.prod(anchor.shapes[0][3:]) * anchor.reduction[0]  # of a chunk in a step
        is_bytes = len(anchor.shapes[1]) == len(BYTE_AXES)
        rate = BYTE_TERMS_PER_NS if is_bytes else TERMS_PER_NS
        most = TILES[-1] if target.lanes() == LANES and not is_bytes else 1
        tiles = Knob("tile", tuple(size for size in TILES if size <= most and batch % size == 0))

        def step_ns(columns: Columns, _: Columns) -> Columns:
            side_by_side = columns["groups"] == APART
            count = np.maximum(columns["groups"], 1)
            per_thread = np.ceil(count / target.threads) * (chunks / count)
            turns = np.where(side_by_side, 1, ways)
            joins = JOIN_NS * (side_by_side | (count > 1))
            return {"step": turns * (per_thread * terms / rate + joins) / columns["tile"] ** 0.5}

        return ranked(Space(OP, self.version, (knob, tiles)), step_ns, len(knob.choices))

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` for the config's groups."""
        return for_threads(func, config.integer("groups"), config.integer("tile"))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Nothing is left to do."""
