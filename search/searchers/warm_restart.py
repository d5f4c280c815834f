"""A task's searcher is made anew when sibling tasks (of the same template) have brought results worth starting from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from search.searchers.searcher import SearchContext, Searcher, Siblings
from search.searchers.searcher_catalog import make_searcher

MAX_OWN_TRIALS = 24
"""Trials of its own up to which a task's searcher is made anew. Heuristic: beyond three slots of eight, a task's own
trials say more than those of others."""

MIN_GROWTH = 2.0
"""Factor by which the siblings' results must have grown since the last time: a new searcher has to fit them all.
Heuristic."""

SMALL_SPACE = 32
"""Configs of a space up to which all of them are tried before a model could have helped. Heuristic: four slots."""


class WarmRestart:
    """Decides when a searcher is made anew, and makes it.

    Args:
        searcher: its name in the catalogue.
        context: what it knows without siblings. Their results go before those of this context.
    """

    def __init__(self, searcher: str, context: SearchContext) -> None:
        self._searcher = searcher
        self._context = context
        self._known = 0

    def wanted(self, own_trials: int) -> bool:
        """Return whether siblings can still help a task with ``own_trials`` trials."""
        context = self._context
        return own_trials <= MAX_OWN_TRIALS and context.space.size > SMALL_SPACE

    def searcher_after(
        self, own_trials: int, siblings: Siblings, rng: np.random.Generator | None = None
    ) -> Searcher | None:
        """A new searcher that was told nothing yet, or None where the old one may stay.

        Args:
            own_trials: trials of the task so far.
            siblings: what sibling tasks have brought so far.
            rng: the new searcher's source of randomness; None is that of the context.
        """
        known = sum(len(results) for _, results in siblings)
        if not self.wanted(own_trials) or known == 0 or known < MIN_GROWTH * self._known:
            return None
        self._known = known
        context = replace(self._context, siblings=(*siblings, *self._context.siblings), rng=rng or self._context.rng)
        return make_searcher(self._searcher, context)
