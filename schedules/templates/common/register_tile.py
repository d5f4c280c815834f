"""The register tile of a CPU kernel: how many sums it has, what it holds in registers, and how its loops are arranged.

A tile multiplies some vectors of weights by some numbers (pixels of an image, rows of a matrix), each spread over a
vector, and keeps one sum for each pair. The sums of one tile must hide the latency of a multiply-add (ports × cycles,
at least 8) and stay in the register file beside the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from schedules.target import Target
from schedules.templates.common.structure import SPARE_REGISTERS

Named = TypeVar("Named")
"""A loop, or its name."""

MOST_NUMBERS = 28
"""Numbers that a tile of one vector of weights may have. Of 32 registers, 28 sums leave room for two vectors of weights
and one operand. More spill: with 56 sums a 3 × 3 convolution took twice as long."""

LANE_SPARE = 5
"""Registers that a tile leaves for weights where LLVM loads numbers four at a time, and holds a vector of each. Of 31
tiles of 16 to 28 sums (3 × 3, 64 → 96 channels, 60 × 60, Neoverse V1), those with at most 27 sums and numbers together
had no spill and 95 to 99 % of the peak by LLVM's machine model, the others 1 to 152 spills and mostly 31 to 85 %."""


def spread(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> None:
    """Vectorise the last of ``loops`` and unroll the others; nothing where there are none."""
    if loops:
        sch.vectorize(loops[-1])
    for loop in loops[:-1]:
        sch.unroll(loop)


def unroll_tile(sch: s_tir.Schedule, block: SBlockRV, count: int) -> None:
    """``spread`` the innermost ``count`` loops of ``block``."""
    spread(sch, sch.get_loops(block)[-count:])


def tile_order(vectors: tuple[Named, int], numbers: tuple[Named, ...], count: int) -> tuple[Named, ...]:
    """The unrolled loops of a register tile, in the order in which the fewest registers hold its operands.

    A tile multiplies some vectors of weights by ``count`` numbers, each spread over a vector. Whatever the inner loop
    runs over is held while the outer one goes on: LLVM keeps the order it is given, and what does not fit the
    registers it stores and loads again in the innermost loop.

    Args:
        vectors: the loop over vectors of weights, and its extent.
        numbers: the loops over the numbers, together ``count`` of them.
    """
    loop, extent = vectors
    return (*numbers, loop) if extent <= count else (loop, *numbers)


SUM_BYTES = 4
"""Bytes of one sum, whatever is multiplied."""


def registers_of(lanes: int, target: Target) -> int:
    """Vector registers that ``lanes`` sums take: more than one where blocks are longer than vectors."""
    return max(1, lanes * SUM_BYTES // target.vector_bytes)


def tile_registers(vectors: NDArray[Any], numbers: NDArray[Any], target: Target) -> NDArray[Any]:
    """Vector registers that a tile of ``vectors`` × ``numbers`` sums takes in ``tile_order``."""
    beside = numbers + LANE_SPARE if target.lane_operands else np.minimum(vectors, numbers) + 1
    held: NDArray[Any] = vectors * numbers + beside
    return held


def few_registers(vectors: NDArray[Any], numbers: NDArray[Any], target: Target) -> NDArray[Any]:
    """Return whether a tile of a matrix product leaves its operands enough registers."""
    sums = vectors * numbers
    fits: NDArray[Any] = sums <= target.vector_registers - SPARE_REGISTERS
    if target.lane_operands:
        fits &= tile_registers(vectors, numbers, target) <= target.vector_registers
    return fits
