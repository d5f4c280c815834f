"""Configs of one space carried over into another of the same template."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from schedules.config import Config, Value
from schedules.space import Knob, Space


def transferred(space: Space, configs: Iterable[Config], most: int) -> list[Config]:
    """Up to ``most`` distinct valid configs of ``space``, each the nearest to one of ``configs``, in their order.

    Every knob takes the choice nearest to the other's value. A knob that the other space lacks, as one for fewer
    threads may, takes its first choice. Where those choices do not go together, the valid config with the fewest steps
    in between stands in; a space too large to list then gives none.
    """
    chosen: dict[Config, None] = {}
    for config in configs:
        if len(chosen) >= most:
            break
        near = _nearest(space, config)
        if near is not None:
            chosen.setdefault(near)
    return list(chosen)


def _nearest(space: Space, config: Config) -> Config | None:
    values = dict(config.items)
    if config.space != space.identity:
        return None
    clipped = space.config([_nearest_choice(knob, values.get(knob.name, knob.choices[0])) for knob in space.knobs])
    if space.contains(clipped):
        return clipped
    if not space.enumerated or not len(space.rows):
        return None
    steps = np.abs(space.rows - space.row(clipped)).sum(axis=1)
    return space.config(space.rows[int(np.argmin(steps))])


def _nearest_choice(knob: Knob, value: Value) -> int:
    """Index of the choice of ``knob`` that is most like ``value``; the first where none can be compared."""
    if value in knob.position:
        return knob.position[value]
    return min(range(len(knob.choices)), key=lambda index: _unlikeness(knob.choices[index], value))


def _unlikeness(choice: Value, value: Value) -> float:
    """In doublings for numbers and, part by part, for tilings; infinite between things of other kinds."""
    if isinstance(choice, int) and isinstance(value, int):
        return _doublings((choice,), (value,))
    if isinstance(choice, tuple) and isinstance(value, tuple) and len(choice) == len(value):
        # The outermost part of a tiling follows from the extent and the others.
        return _doublings(choice[1:], value[1:]) if len(choice) > 1 else _doublings(choice, value)
    return math.inf


def _doublings(ours: Sequence[int], theirs: Sequence[int]) -> float:
    return sum(
        abs(math.log2(a / b)) if a > 0 and b > 0 else abs(float(a - b)) for a, b in zip(ours, theirs, strict=True)
    )
