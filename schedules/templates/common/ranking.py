"""Initial configs: the rows of a space in the order of a cost that is known before anything is measured.

A cost is a sum of named terms of a config's knobs and features. The terms and their weights are heuristics, not
measured, unless a template says otherwise: they say where to begin, and measuring decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedules.space import Columns, Space

CYCLES = "cycles"
"""Name of the feature that says how long a config's products take on one core, caches aside, over the task's nominal
multiply-adds at the core's peak (``instructions/micro_kernel.py``)."""

Terms = Callable[[Columns, Columns], Mapping[str, NDArray[np.float64]]]
"""Knobs and features of n configs → the terms of their cost, (n,) each; the less the better."""


def ranked(space: Space, terms: Terms, count: int, apart: Sequence[str] = ()) -> Space:
    """``space`` with the ``count`` configs of least cost as its initial configs, the best first.

    Args:
        apart: knobs in which no two of these configs may be alike; empty for all.
    """
    columns, order, saving = costs(space, terms)
    best = varied(order, [columns[name] for name in apart or columns], count)
    return replace(space, initial=tuple(space.config(space.rows[row]) for row in best), saving=saving)


def costs(space: Space, terms: Terms) -> tuple[Columns, NDArray[np.intp], float]:
    """The knobs of all rows of ``space``, the rows in order of cost, and its ``saving``, by the feature ``CYCLES``."""
    columns = space.columns(space.rows)
    derived = space.derive(columns) if space.derive is not None else {}
    saving = 1 / float(np.min(derived[CYCLES])) if CYCLES in derived and len(space.rows) else 1.0
    return columns, np.argsort(sum(terms(columns, derived).values()), kind="stable"), saving


def varied(order: Iterable[int], columns: Sequence[NDArray[Any]], most: int) -> list[int]:
    """The first ``most`` of ``order`` of which no two are alike in ``columns``.

    First guesses that differ only in what matters less would tell a search little.
    """
    distinct: dict[tuple[float, ...], int] = {}
    for index in order:
        distinct.setdefault(tuple(float(column[index]) for column in columns), int(index))
        if len(distinct) == most:
            break
    return list(distinct.values())
