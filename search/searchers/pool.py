"""Pool: the configs of one space that were not asked or told yet, as rows of choice indices.

Notation: d = number of knobs, n = number of rows.

Every searcher keeps one, so that "never repeat a config" and "empty when exhausted" are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config
from schedules.space import Space
from schedules.vocabulary.errors import UsageError

Rows = NDArray[np.int32]

MANY = 8192
"""Most rows scored at once. Heuristic, not measured."""

ROUNDS = 20
"""Rounds of draws without enough new rows after which a space counts as exhausted, as in ``Space.sample``."""

PROBES = 256
"""Random rows from which the coverage of a spread batch is measured. Heuristic, not measured."""

TRIES = 32
"""Random batches of which the best covering one is taken. Heuristic, not measured."""


class Pool:
    """Untried rows of a space, enumerated or product."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space = space
        self._rng = rng
        self._lengths = np.array([len(knob.choices) for knob in space.knobs], dtype=np.int64)
        self._tried: set[bytes] = set()
        self._open = np.ones(len(space.rows), dtype=np.bool_) if space.enumerated else None

    def row(self, config: Config) -> Rows | None:
        """(d,) indices of ``config``, or None if this space does not offer it."""
        try:
            row = self.space.row(config)
        except UsageError:
            return None
        return row if self.space.allowed(row[None, :])[0] else None

    def untried(self, rows: Rows) -> NDArray[np.bool_]:
        """(n,) whether each row is valid and was not tried."""
        valid = self.space.allowed(rows)
        if self._open is None:
            return valid & np.array([row.tobytes() not in self._tried for row in rows], dtype=np.bool_)
        fresh = np.zeros(len(rows), dtype=np.bool_)
        fresh[valid] = self._open[self.space.places(rows[valid])]
        return fresh

    def take(self, rows: Rows) -> None:
        """Mark ``rows`` (n, d) as tried."""
        if self._open is not None:
            self._open[self.space.places(rows)] = False
        else:
            self._tried.update(row.tobytes() for row in rows)

    @property
    def remaining(self) -> int | None:
        """Untried configs of an enumerated space; None for a product space."""
        return None if self._open is None else int(self._open.sum())

    def initial(self, count: int) -> Rows:
        """Up to ``count`` untried initial configs of the space, best guess first."""
        return self._untried_of(self.space.initial, count)

    def seeds(self, count: int) -> Rows:
        """Up to ``count`` untried seeds of the space, best guess first."""
        return self._untried_of(self.space.seeds, count)

    def _untried_of(self, configs: Sequence[Config], count: int) -> Rows:
        rows = [row for config in configs if (row := self.row(config)) is not None]
        if not rows:
            return self.none()
        distinct = self._distinct(np.stack(rows))
        return distinct[self.untried(distinct)][:count]

    def draw(self, count: int) -> Rows:
        """Up to ``count`` distinct untried rows, uniformly."""
        if self._open is not None:
            places = np.flatnonzero(self._open)
            chosen: NDArray[np.int64] = self._rng.choice(places, size=min(count, len(places)), replace=False)
            return np.asarray(self.space.rows[chosen])
        drawn = self.none()
        for _ in range(ROUNDS):
            rows = self._rng.integers(self._lengths, size=(count, len(self._lengths))).astype(np.int32)
            drawn = self._distinct(np.concatenate([drawn, rows[self.untried(rows)]]))
            if len(drawn) >= count:
                break
        return drawn[:count]

    def spread(self, count: int) -> Rows:
        """Up to ``count`` untried rows that cover the space: no row is far from all of them.

        The best of ``TRIES`` random batches by the mean distance from ``PROBES`` random rows to their nearest member.
        Covering puts configs inside the space; the more usual maximin distance puts them into its corners, where
        kernels are slow.
        """
        probes = self.draw(PROBES)
        if len(probes) <= count:
            return probes[:count]
        features = self.space.row_features(probes)
        spans = np.ptp(features, axis=0)
        unit = features / np.where(spans > 0, spans, 1.0)
        squares = ((unit[:, None, :] - unit[None, :, :]) ** 2).sum(axis=2)
        batches = [self._rng.choice(len(probes), size=count, replace=False) for _ in range(TRIES)]
        return probes[min(batches, key=lambda batch: float(np.sqrt(squares[:, batch].min(axis=1)).mean()))]

    def scatter(self, count: int) -> Rows:
        """Up to ``count`` valid rows, tried or not, uniformly and perhaps with repeats."""
        if self._open is not None:
            return self.space.rows[self._rng.integers(len(self.space.rows), size=count)]
        rows = self._rng.integers(self._lengths, size=(ROUNDS * count, len(self._lengths))).astype(np.int32)
        return rows[self.space.allowed(rows)][:count]

    def candidates(self, parents: Rows, limit: int = MANY) -> Rows:
        """Untried rows worth scoring: all of an enumerated space up to ``limit``, else samples and mutants."""
        if self._open is not None and self._open.sum() <= limit:
            return self.space.rows[self._open]
        half = self.draw(limit // 2)
        if not len(parents):
            return half
        mutants = self.mutate(parents, limit // 4)
        return self._distinct(np.concatenate([mutants[self.untried(mutants)], half]))

    def mutate(self, parents: Rows, count: int) -> Rows:
        """(count, d) copies of random ``parents`` with one or more knobs moved: half by one step, half anywhere."""
        children = parents[self._rng.integers(len(parents), size=count)].copy()
        width = children.shape[1]
        moved = self._rng.random((count, width)) < 1.0 / width
        moved[np.arange(count), self._rng.integers(width, size=count)] = True
        steps = np.clip(children + self._rng.choice((-1, 1), size=children.shape), 0, self._lengths - 1)
        jumps = self._rng.integers(self._lengths, size=children.shape)
        targets = np.where(self._rng.random(children.shape) < 0.5, steps, jumps)
        return np.where(moved, targets, children).astype(np.int32)

    def neighbours(self, row: Rows) -> Rows:
        """Untried rows one step of one knob away from ``row`` (d,)."""
        steps = np.concatenate([np.eye(len(row), dtype=np.int32), -np.eye(len(row), dtype=np.int32)])
        moved = row + steps
        inside = moved[np.all((moved >= 0) & (moved < self._lengths), axis=1)]
        return inside[self.untried(inside)] if len(inside) else self.none()

    def configs(self, rows: Rows) -> list[Config]:
        """Configs of ``rows``, marked as tried: what ``ask`` returns."""
        self.take(rows)
        return [self.space.config(row) for row in rows]

    def remember(self, configs: Iterable[Config]) -> None:
        """Mark told configs as tried; configs that the space does not offer are ignored."""
        rows = [row for config in configs if (row := self.row(config)) is not None]
        if rows:
            self.take(np.stack(rows))

    def none(self) -> Rows:
        """(0, d)."""
        return np.zeros((0, len(self._lengths)), dtype=np.int32)

    @staticmethod
    def _distinct(rows: Rows) -> Rows:
        """Rows without repeats, in order of first appearance."""
        _, first = np.unique(rows, axis=0, return_index=True)
        return rows[np.sort(first)]
