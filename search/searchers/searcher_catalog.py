"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable

from schedules.vocabulary.choices import choose, lazy
from search.searchers.searcher import SearchContext, Searcher

_FACTORIES: dict[str, Callable[[SearchContext], Searcher]] = {
    "adaptive": lazy("search.searchers.adaptive:AdaptiveSearch"),
    "annealing": lazy("search.searchers.annealing:AnnealingSearch"),
    "annealing-released": lazy("search.searchers.annealing:AnnealingSearch", trees=10, temperature=0.0),
    "autotvm": lazy("search.searchers.autotvm:AutoTvmSearch"),
    "bayesian": lazy("search.searchers.bayesian:BayesianSearch"),
    "boosted": lazy("search.searchers.boosted_search:BoostedSearch"),
    "coordinate": lazy("search.searchers.coordinate:CoordinateSearch"),
    "evolutionary": lazy("search.searchers.evolutionary:EvolutionarySearch"),
    "random": lazy("search.searchers.random_search:RandomSearch"),
}

SEARCHERS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_searcher`` knows."""


def make_searcher(name: str, context: SearchContext) -> Searcher:
    """A new searcher over ``context.space``.

    Raises:
        UsageError: if ``name``, or the cost model that the context names, is unknown.
    """
    return choose("--searcher", name, _FACTORIES)(context)
