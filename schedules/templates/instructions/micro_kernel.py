"""Cycles of a micro-kernel's innermost loop, by what a core can begin in a cycle (``processors.Ports``).

A step adds one product to each sum of a register tile of some vectors by some numbers:

    cycles = max(products / their ports, loads / load ports, micro-operations / width, latency of a product / overlap)

since no sum can be added to before its last product is done; but the end of one tile overlaps with the beginning of the
next ones, as far as the core looks ahead. Caches, and what surrounds the loop, cost nothing here: it is a bound.
``python -m research.machine_model --cycles`` compares it with LLVM's models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.processors import Ports, processor
from schedules.target import Target
from schedules.templates.instructions.dots import DotForm, best_dot
from schedules.templates.instructions.llvm_target import features_of

LANE_NUMBERS = 4
"""Numbers of one register where a multiply-add takes its number from a lane; of short types, groups of 4 bytes."""

Floats = NDArray[np.float64]


def ports_of(target: Target) -> Ports:
    """The ports of the target's processor; of one that is not in the table nothing is known."""
    entry = processor(target.mcpu)
    return Ports() if entry is None else entry.ports


def product_of(form: DotForm | None, target: Target) -> str:
    """The multiply-add that computes ``form``, as ``Ports`` calls it."""
    return "fma" if form is None else best_dot(form, target.lanes(), features_of(target)).name


def step_loads(
    vectors: NDArray[Any], numbers: NDArray[Any], together: NDArray[Any], target: Target, form: DotForm | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(n,) loads of a step of n tiles of ``vectors`` × ``numbers``, and those of them that are no operands of products.

    Args:
        numbers: that a step loads.
        together: steps in a row whose numbers lie side by side.
    """
    if form is not None and form.rows == 2:  # a register of sums has two rows of half as many lanes
        loads = 2 * vectors + numbers / 2
    elif target.lane_operands:
        loads = vectors + numbers / np.minimum(together, LANE_NUMBERS)
    else:
        # What is used once is an operand of its product.
        once = (numbers <= 1) | ((vectors == 1) & (form is None) & target.broadcast_operands)
        return vectors + numbers, np.where(once, np.minimum(vectors, numbers), vectors + numbers)
    return loads, loads


def peak_cycles(
    products: NDArray[Any],
    loads: tuple[NDArray[Any], NDArray[Any]],
    steps: NDArray[Any] | float,
    ports: Ports,
    product: str,
) -> Floats:
    """(n,) cycles of steps that add ``products`` to a sum each, over the cycles of as many independent products: ≥ 1.

    Args:
        loads: as ``step_loads`` gives them.
        steps: of a tile.
        product: as ``Ports`` calls it. 1 where the processor's is not known.
    """
    if product not in ports.products:
        return np.ones(np.shape(products))
    rate, latency = ports.products[product]
    operations = products + loads[1]
    overlap = 1 + ports.window / (steps * operations)
    bounds = (products / rate, loads[0] / ports.loads, operations / ports.width, latency / overlap)
    relative: Floats = np.maximum.reduce(np.broadcast_arrays(*bounds)) * rate / products
    return relative


def taps_of_load(width: NDArray[Any], taps: int) -> Floats:
    """(n,) taps of a row of a filter that use one load of a pixel, at the most, in tiles of ``width`` columns.

    LLVM unrolls short filters and keeps the pixels that neighbours share: ``width`` + ``taps`` − 1 at stride 1.
    """
    uses: Floats = width * taps / (width + taps - 1)
    return uses


@dataclass(frozen=True)
class Tile:
    """n register tiles, (n,) each.

    Attributes:
        vectors, numbers: a register of sums for each pair.
        together: steps in a row whose numbers lie side by side.
        steps: terms of the sum that are added before the tile is stored.
        of_load: steps that use one load of a number.
    """

    vectors: NDArray[Any]
    numbers: NDArray[Any]
    together: NDArray[Any]
    steps: NDArray[Any] | float
    of_load: NDArray[Any] | float = 1.0


def tile_cycles(tile: Tile, target: Target, form: DotForm | None, ports: Ports | None = None) -> Floats:
    """(n,) ``peak_cycles`` of register tiles, by other ``ports`` than the table's where they are given."""
    loads = step_loads(tile.vectors, tile.numbers / tile.of_load, tile.together, target, form)
    ports = ports or ports_of(target)
    return peak_cycles(tile.vectors * tile.numbers, loads, tile.steps, ports, product_of(form, target))
