"""All steps of an LSTM or a GRU on a GPU, from the program that the CPU's kernel has (``by_hand/recurrent_steps.py``).

A block has ``units`` hidden units of ``rows`` sequences. Its threads are the gates of its units, times the ``ways``
among which the sum over k is shared:

    blockIdx.x = sequences/rows · hidden/units     threadIdx.x = gates · units     threadIdx.y = ways
        h[step], c[step] → shared memory
        for k of the thread's way:  acc[rows] += h[rows, k] · R[k, gate, unit]
        acc → shared memory
        threads of rows · units:  add the ways up; x, σ, tanh; h[step + 1], c[step + 1]

If a block has all units, the loop over steps lies inside the kernel, and h and c stay in shared memory: a step ends
with a barrier of the block. R is read from the caches in every step, or once into registers where it fits. Otherwise
every step is a launch of one kernel, whose argument is the step; the launches are captured into the CUDA graph.

The layouts of x, R and the result are those of ``by_hand/recurrent_steps.py``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Columns, Knob, Space
from schedules.target import Target
from schedules.templates.by_hand.recurrent_steps import UNITS
from schedules.templates.common.ranking import ranked
from schedules.templates.common.structure import Anchor, parameter_shapes
from schedules.templates.cuda.cuda_recurrent_steps import GATES, Tile, steps_of, walk_of
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP, derived
from schedules.templates.template import OneAlgorithm

OP = "cuda_recurrent"
KEPT = 64  # elements of R that a thread may keep in registers

LAUNCH_NS, BARRIER_NS, SUM_NS = 1500, 300, 1
BYTES_PER_NS, TERMS_PER_NS = 110, 200
"""Costs of a step for the first guesses: a launch in a graph, a barrier, and a multiply-add that waits for the previous
one; what one multiprocessor reads from L2 and multiplies. Heuristics, not measured."""


class CudaRecurrentTemplate(OneAlgorithm[Anchor]):
    """Match, space and rewrite for the steps of recurrent layers."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The entire function, if it is a recurrent layer's."""
        layer = walk_of(func)
        if layer is None:
            return None
        geometry = {"kind": layer.kind}
        spatial = (layer.steps, layer.batch, layer.hidden)
        return Anchor("step", spatial, (layer.hidden,), (), (), parameter_shapes(func), geometry=geometry)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Sequences and units of a block, among how many threads a sum is shared, and whether R stays in registers."""
        _, batch, hidden = anchor.spatial
        gates = GATES[anchor.geometry["kind"]]
        knobs = (
            Knob("rows", tuple(rows for rows in (1, 2, 4, 8) if batch % rows == 0)),
            Knob("units", tuple(dict.fromkeys((8, 16, UNITS, hidden)))),
            Knob("ways", (1, 2, 4, 8)),
            Knob("keep", (0, 1)),
        )

        def numbers(columns: Columns) -> dict[str, NDArray[np.float64]]:
            rows, units, ways, keep = (columns[name] for name in ("rows", "units", "ways", "keep"))
            threads = gates * units * ways
            entire = units == hidden
            waves = np.ceil(batch / rows * hidden / units / target.threads)
            read = np.where(keep == 1, 0, 4 * gates * units * hidden / BYTES_PER_NS)
            terms = gates * units * hidden * rows / TERMS_PER_NS
            return {
                "threads": threads,
                "registers": keep * hidden / ways + 2 * rows + 40,
                "shared": 4 * rows * (hidden + ways * gates * units + units),
                "entire": entire,
                "step": waves * (np.maximum(read, terms) + SUM_NS * hidden / ways)
                + np.where(entire, BARRIER_NS, LAUNCH_NS),
            }

        def fits(columns: Columns) -> NDArray[np.bool_]:
            counts = numbers(columns)
            legal: NDArray[np.bool_] = (
                (counts["threads"] >= WARP)
                & (counts["threads"] <= target.max_threads)
                & (counts["registers"] * counts["threads"] <= target.registers)
                & (counts["shared"] <= min(STATIC_BYTES, target.shared_bytes))
                & ((columns["keep"] == 0) | ((columns["units"] == hidden) & (hidden / columns["ways"] <= KEPT)))
            )
            return legal

        def terms(columns: Columns, _: Columns) -> Columns:
            return {"step": np.log2(numbers(columns)["step"])}

        return ranked(Space(OP, self.version, knobs, fits, derived(numbers)), terms, 8, apart=("rows", "units", "keep"))

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """The same layer, by the config's tile."""
        layer = walk_of(func)
        assert layer is not None
        rows, units, ways, keep = (config.integer(name) for name in ("rows", "units", "ways", "keep"))
        return steps_of(layer, Tile(rows, units, ways, bool(keep))).with_attr("global_symbol", "main")

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Nothing is left to do."""
