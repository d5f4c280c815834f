"""Coordinate descent from a starting config: Droplet search (Canesche et al., CC 2024).

The neighbours of the best config one step away in each knob are measured. The best of them becomes the centre if it is
better, and the step along a knob that gained is tried again, twice as far. Where no neighbour is better, the centre is
a local optimum, and the search starts again from the next initial config, then from random configs. Departure: Droplet
moves only if a t-test says so; here the median of runs decides, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.searchers.history import LearningSearcher
from search.searchers.pool import Rows
from search.searchers.searcher import Result, SearchContext


class CoordinateSearch(LearningSearcher):
    """Coordinate descent with restarts."""

    def __init__(self, context: SearchContext) -> None:
        super().__init__(context)
        self._descent = 0  # how many told rows belong to earlier descents
        self._waiting: list[Rows] = []

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from ``results``; a new centre drops the neighbours of the old one."""
        before = self._centre()
        super().tell(results)
        after = self._centre()
        if before is None or after is None or not np.array_equal(before, after):
            self._waiting = self._ahead(before, after)

    def _propose(self, count: int) -> Rows:
        """Untried neighbours of the centre; a new start where there are none."""
        chosen = [self._pool.none()]
        while sum(map(len, chosen)) < count:
            if not self._waiting:
                self._waiting = list(self._around(self._centre()))
            if self._waiting:
                row = self._waiting.pop(0)[None, :]
                chosen.append(row[self._pool.untried(row)])
            else:
                chosen.append(self._start())
                if not len(chosen[-1]):
                    break
                self._descent = len(self._history)
            self._pool.take(chosen[-1])
        return np.concatenate(chosen)

    def _centre(self) -> Rows | None:
        """(d,) best row of this descent."""
        scores = self._history.scores[self._descent :]
        if not len(scores) or np.isnan(scores).all():
            return None
        best: Rows = self._history.rows[self._descent + int(np.nanargmax(scores))]
        return best

    def _around(self, centre: Rows | None) -> Rows:
        """Untried rows one step from ``centre``, in random order."""
        return self._pool.none() if centre is None else self._rng.permutation(self._pool.neighbours(centre))

    def _ahead(self, before: Rows | None, after: Rows | None) -> list[Rows]:
        """The row as far beyond ``after`` as that is from ``before``, if it exists and is untried."""
        if before is None or after is None:
            return []
        beyond = (2 * after - before)[None, :]
        lengths = [len(knob.choices) for knob in self._pool.space.knobs]
        if (beyond < 0).any() or (beyond >= lengths).any():
            return []
        return list(beyond[self._pool.untried(beyond)])

    def _start(self) -> Rows:
        initial = self._pool.initial(1)
        return initial if len(initial) else self._pool.draw(1)
