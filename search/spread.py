"""Spread: a first batch that covers a space when nothing is known of it.

Notation: n = probes, d = features, q = size of a batch.
"""

from __future__ import annotations

import numpy as np

from search.pool import Pool, Rows

PROBES = 256
TRIES = 32


def spread(pool: Pool, count: int, rng: np.random.Generator) -> Rows:
    """Up to ``count`` untried rows that leave no probe far away.

    The best of ``TRIES`` random batches by the mean distance from random probes to their nearest member. Covering puts
    configs inside the space; the more usual maximin distance puts them into its corners, where kernels are slow.
    """
    probes = pool.draw(PROBES)
    if len(probes) <= count:
        return probes[:count]
    features = pool.space.row_features(probes)
    spans = np.ptp(features, axis=0)
    unit = features / np.where(spans > 0, spans, 1.0)
    squares = ((unit[:, None, :] - unit[None, :, :]) ** 2).sum(axis=2)
    batches = [rng.choice(len(probes), size=count, replace=False) for _ in range(TRIES)]
    return probes[min(batches, key=lambda batch: float(np.sqrt(squares[:, batch].min(axis=1)).mean()))]
