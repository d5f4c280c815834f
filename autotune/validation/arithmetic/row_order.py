"""Rows of outputs that are sorted by a number: those whose numbers are as good as equal may stand in either order.

A detector gives boxes, labels and scores, the best first. Two scores that differ by less than their rounding change
places between two right programs, and every output with them. Of boxes with the score of the last one that is given,
others may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.validation.allowance import ATOL, RTOL

Array = NDArray[Any]


EDGE = 1e-5
"""Relative difference of two scores up to which either row may be the last: some hundred roundings of fp32."""

MOST_OTHERS = 0.1
"""Share of the rows, one at least, that may be other ones of the last score: a wrong kernel changes most of them. Of
200 boxes of an SSD whose scores are nearly all one, one was. Heuristic."""


def rows_in_order(ours: Sequence[Any], theirs: Sequence[Any], together: Sequence[Sequence[int]]) -> list[Any]:
    """``ours`` with rows moved to where ``theirs`` has the most similar ones of as good as equal numbers.

    Rows with the number of the last one are those of ``theirs`` where they are unlike, but for that number.

    Args:
        ours, theirs: all outputs, floats perhaps of other widths.
        together: numbers of outputs whose rows belong together. They stay as they are unless there is a vector of
            floats among them, which falls from row to row.
    """
    moved = list(ours)
    for group in together:
        pairs = [(np.asarray(ours[number]), np.asarray(theirs[number])) for number in group]
        if any(a.shape != b.shape or a.dtype.kind != b.dtype.kind or a.dtype.kind in "OSU" for a, b in pairs):
            continue
        sorts = next((b for _, b in pairs if b.ndim == 1 and b.dtype.kind == "f" and _falls(b)), None)
        if sorts is None or len(sorts) < 2:
            continue
        numbers = sorts.astype(np.float64)
        order = _order(pairs, numbers)
        last = np.flatnonzero(abs(numbers - numbers[-1]) <= EDGE * abs(numbers[-1]))
        others = last[_distances(pairs, order[last], last) > 1]
        if len(others) > max(1, MOST_OTHERS * len(numbers)):
            others = others[:0]
        for number, (_, other) in zip(group, pairs, strict=True):
            moved[number] = np.asarray(ours[number])[order]
            if other is not sorts:
                moved[number][others] = other[others].astype(moved[number].dtype)
    return moved


def _falls(numbers: Array) -> bool:
    return bool(np.isfinite(numbers).all() and (np.diff(numbers) <= 0).all())


def _order(pairs: Sequence[tuple[Array, Array]], numbers: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return which of our rows stands where theirs has its like."""
    order = np.arange(len(numbers))
    unlike = np.flatnonzero(_distances(pairs, order, order) > 1)
    left = list(unlike)
    for row in unlike:
        tied = [
            candidate for candidate in left if abs(numbers[candidate] - numbers[row]) <= ATOL + RTOL * abs(numbers[row])
        ]
        if tied:
            nearest = tied[int(np.argmin(_distances(pairs, np.array(tied), np.full(len(tied), row))))]
            order[row] = nearest
            left.remove(nearest)
    return order if len(set(order)) == len(order) else np.arange(len(order))


def _distances(pairs: Sequence[tuple[Array, Array]], mine: Array, other: Array) -> NDArray[np.float64]:
    """Between our rows ``mine`` and their rows ``other``: the most of any output, 1 being the fixed tolerance."""
    worst = np.zeros(len(mine))
    for a, b in pairs:
        x, y = (rows.reshape(len(rows), -1).astype(np.float64) for rows in (a[mine], b[other]))
        allowed = ATOL + RTOL * np.abs(y) if a.dtype.kind == "f" else np.full(y.shape, 0.5)
        far = np.where(x == y, 0.0, np.abs(x - y) / allowed)
        worst = np.maximum(worst, np.nan_to_num(far, nan=np.inf).max(axis=1, initial=0.0))
    return worst
