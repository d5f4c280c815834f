"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable

from costmodels.choices import choose, lazy
from search.searcher import SearchContext, Searcher

_FACTORIES: dict[str, Callable[[SearchContext], Searcher]] = {
    "adaptive": lazy("search.adaptive:AdaptiveSearch"),
    "adaptive-bound": lazy("search.adaptive:AdaptiveSearch", acquisition="bound"),
    "adaptive-thompson": lazy("search.adaptive:AdaptiveSearch", acquisition="thompson"),
    "annealing": lazy("search.annealing:AnnealingSearch"),
    "annealing-released": lazy("search.annealing:AnnealingSearch", trees=10, temperature=0.0),
    "autotvm": lazy("search.autotvm:AutoTvmSearch"),
    "bayesian": lazy("search.bayesian:BayesianSearch"),
    "boosted": lazy("search.boosted_search:BoostedSearch"),
    "coordinate": lazy("search.coordinate:CoordinateSearch"),
    "evolutionary": lazy("search.evolutionary:EvolutionarySearch"),
    "random": lazy("search.random_search:RandomSearch"),
}

SEARCHERS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_searcher`` knows."""


def make_searcher(name: str, context: SearchContext) -> Searcher:
    """A new searcher over ``context.space``.

    Raises:
        UsageError: if ``name``, or the cost model that the context names, is unknown.
    """
    return choose("searcher", name, _FACTORIES)(context)
