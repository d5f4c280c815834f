"""Coordinate descent from a starting config: Droplet search (Canesche et al., CC 2024).

From the best config, the neighbours one step away in each knob are measured; the best of them becomes the centre if
it is better, and the step along a knob that gained is tried again, twice as far. Where no neighbour is better, the
centre is a local optimum and the search starts again from the next first guess, then from random configs. Departure:
Droplet moves only if a t-test says so; here the median of runs decides, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedules.config import Config
from search.history import History
from search.pool import Pool, Rows
from search.searcher import Result, SearchContext, Searcher


class CoordinateSearch(Searcher):
    """See the module's text."""

    def __init__(self, context: SearchContext) -> None:
        self._rng = context.rng
        self._pool = Pool(context.space, context.rng)
        self._history = History(self._pool)
        self._started: Rows | None = None  # rows told when the descent now going on began
        self._descent = 0  # how many told rows belong to earlier descents
        self._waiting: list[Rows] = []

    def ask(self, count: int) -> list[Config]:
        """Untried neighbours of the centre; a new start where there are none."""
        configs: list[Config] = []
        while len(configs) < count:
            if not self._waiting:
                self._waiting = list(self._around(self._centre()))
            if not self._waiting:
                start = self._start()
                if not len(start):
                    break
                self._descent = len(self._history)
                configs += self._pool.configs(start)
                continue
            row = self._waiting.pop(0)[None, :]
            if self._pool.untried(row)[0]:
                configs += self._pool.configs(row)
        return configs

    def tell(self, results: Sequence[Result]) -> None:
        """Learn; a new centre drops the neighbours of the old one."""
        before = self._centre()
        self._history.tell(results)
        after = self._centre()
        if before is None or after is None or not np.array_equal(before, after):
            self._waiting = self._ahead(before, after)

    def _centre(self) -> Rows | None:
        """(d,) best row of this descent."""
        scores = self._history.scores[self._descent :]
        if not len(scores) or np.isnan(scores).all():
            return None
        best: Rows = self._history.rows[self._descent + int(np.nanargmax(scores))]
        return best

    def _around(self, centre: Rows | None) -> Rows:
        """Untried rows one step from ``centre``, in random order."""
        if centre is None:
            return np.zeros((0, len(self._pool.space.knobs)), dtype=np.int32)
        return self._rng.permutation(self._pool.neighbours(centre))

    def _ahead(self, before: Rows | None, after: Rows | None) -> list[Rows]:
        """The row as far beyond ``after`` as it is from ``before``, if there is one: a gain is tried again at once."""
        if before is None or after is None:
            return []
        beyond = (2 * after - before)[None, :]
        lengths = [len(knob.choices) for knob in self._pool.space.knobs]
        if (beyond < 0).any() or (beyond >= lengths).any():
            return []
        return list(beyond[self._pool.untried(beyond)])

    def _start(self) -> Rows:
        guess = self._pool.first(1)
        return guess if len(guess) else self._pool.draw(1)
