"""Which products compute in bf16: the most time saved within a bound on the model's error. Pure.

Rounding errors of different products have no common sign, so the squares of what they do to the outputs add up, unless
something behind them magnifies some, such as a softmax that is sure of one class; ``auto_precision`` checks whole sets:

    maximise  Σ gain    over sets of products with    Σ error² ≤ bound²

That is a knapsack, solved by dynamic programming over the errors' squares in units of bound² / ``UNITS``, rounded up:
the set always keeps the bound, and saves as much as the best set within (1 − n / UNITS) of it, with n products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

UNITS = 10_000
"""Units of the squared bound. With 200 products, at most 2 % of it are lost to rounding, and a table has 2 million
entries."""


def choose_products(gains: Mapping[int, float], errors: Mapping[int, float], bound: float) -> frozenset[int]:
    """The products that are to compute in bf16.

    Args:
        gains: product → seconds that it is faster in bf16; one that is slower is never chosen.
        errors: product → error of the model's outputs where it alone computes in bf16, as a share.
        bound: largest error of the whole.
    """
    wanted = {number: gain for number, gain in gains.items() if gain > 0}
    if bound <= 0:
        return frozenset()
    if sum(errors[number] ** 2 for number in wanted) <= bound**2:
        return frozenset(wanted)
    unit = bound**2 / UNITS
    weights = {n: math.ceil(errors[n] ** 2 / unit) if math.isfinite(errors[n]) else UNITS + 1 for n in wanted}
    items = [number for number in sorted(wanted) if weights[number] <= UNITS]
    best = np.zeros(UNITS + 1)
    taken = np.zeros((len(items), UNITS + 1), bool)
    for row, number in enumerate(items):
        weight = weights[number]
        with_it = np.full(UNITS + 1, -math.inf)
        with_it[weight:] = best[: UNITS + 1 - weight] + wanted[number]
        taken[row] = with_it > best
        best = np.maximum(best, with_it)
    left, chosen = UNITS, set[int]()
    for row in reversed(range(len(items))):
        if taken[row, left]:
            chosen.add(items[row])
            left -= weights[items[row]]
    return frozenset(chosen)
