"""Which configs of a space a trace holds."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from schedules.space import Space

Rows = NDArray[np.int32]


def sampled(space: Space, key: str, most: int) -> Rows:
    """All rows of a space of no more than ``most``, else its initial configs and a uniform sample; same for a key.

    Of a space too large to list, a quarter are neighbours of the initial configs: uniform samples alone would hold
    nothing that is any good.
    """
    if space.enumerated and len(space.rows) <= most:
        return space.rows
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    configs = dict.fromkeys(space.initial)
    if not space.enumerated:
        steps = list(dict.fromkeys(near for config in space.initial for near in space.neighbours(config)))
        far = list(dict.fromkeys(near for config in steps[:60] for near in space.neighbours(config)))
        configs |= dict.fromkeys(steps[: most // 8])
        configs |= dict.fromkeys(far[index] for index in rng.permutation(len(far))[: most // 8])
    configs |= dict.fromkeys(space.sample(most, rng))
    return np.stack([space.row(config) for config in configs][:most])
