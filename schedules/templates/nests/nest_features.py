"""Features and cycles of a space at once, as they follow from the loops of its nests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.processors import Ports
from schedules.target import Target
from schedules.templates.common.ranking import CYCLES
from schedules.templates.common.register_tile import registers_of
from schedules.templates.common.structure import Anchor, balance
from schedules.templates.instructions.dots import DotForm
from schedules.templates.instructions.micro_kernel import Tile, tile_cycles
from schedules.templates.nests.loop_nest import Loop, Nest, Role


def unordered(anchor: Anchor, axes: tuple[str, ...], loops: Mapping[str, Loop], weight_axis: str) -> Nest:
    """The nests of n configs as one, with extents (n,) in no order: all that features read."""
    own = axes[: len(anchor.spatial) + len(anchor.reduction)]  # dot products have one axis more
    return Nest(anchor, own, tuple(loops.values()), weight_axis)


def product_features(nest: Nest, target: Target) -> dict[str, Any]:
    """Analytic features of the register tile and the jobs of n configs, (n,) each."""
    sums = nest.vectors * nest.numbers
    return {
        "accumulators": sums,
        "loads_per_fma": (nest.vectors + nest.numbers) / sums,
        "balance": balance(nest.extent(Role.JOB), target.threads),
        CYCLES: cycles(nest, target, nest.anchor.form),
    }


def cycles(
    nest: Nest, target: Target, form: DotForm | None, of_load: Any = 1.0, ports: Ports | None = None
) -> NDArray[np.float64]:
    """(n,) cycles of a nest's products over those of as many independent ones, by ``tile_cycles``.

    Args:
        form: what is multiplied.
        of_load: steps that use one load of a number.
        ports: instead of those of the target's processor.
    """
    vectors = nest.vectors * registers_of(nest.lanes, target)
    row = nest.extent(Role.REGISTER, Role.PAIR, axis="ow")
    tile = Tile(vectors, nest.numbers, row if nest.anchor.plain else nest.extent(Role.STEP), nest.terms, of_load)
    return tile_cycles(tile, target, form, ports)
