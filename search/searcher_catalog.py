"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable

from costmodels.choices import choose
from search.boosted_search import BoostedSearch
from search.coordinate import CoordinateSearch
from search.evolutionary import EvolutionarySearch
from search.random_search import RandomSearch
from search.searcher import SearchContext, Searcher


# Imports stay inside the factories where a strategy pulls in scikit-learn, SciPy or xgboost, which are optional to a
# run that does not choose it and cost up to a second to import.
def _adaptive(context: SearchContext) -> Searcher:
    from search.adaptive import AdaptiveSearch

    return AdaptiveSearch(context)


def _adaptive_bound(context: SearchContext) -> Searcher:
    from search.adaptive import adaptive_bound

    return adaptive_bound(context)


def _adaptive_thompson(context: SearchContext) -> Searcher:
    from search.adaptive import adaptive_thompson

    return adaptive_thompson(context)


def _annealing(context: SearchContext) -> Searcher:
    from search.annealing import AnnealingSearch

    return AnnealingSearch(context)


def _annealing_released(context: SearchContext) -> Searcher:
    from search.annealing import annealing_released

    return annealing_released(context)


def _autotvm(context: SearchContext) -> Searcher:
    from search.autotvm import AutoTvmSearch

    return AutoTvmSearch(context)


def _bayesian(context: SearchContext) -> Searcher:
    from search.bayesian import BayesianSearch

    return BayesianSearch(context)


_FACTORIES: dict[str, Callable[[SearchContext], Searcher]] = {
    "adaptive": _adaptive,
    "adaptive-bound": _adaptive_bound,
    "adaptive-thompson": _adaptive_thompson,
    "annealing": _annealing,
    "annealing-released": _annealing_released,
    "autotvm": _autotvm,
    "bayesian": _bayesian,
    "boosted": BoostedSearch,
    "coordinate": CoordinateSearch,
    "evolutionary": EvolutionarySearch,
    "random": RandomSearch,
}

SEARCHERS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_searcher`` knows."""

DEFAULT_SEARCHER = "adaptive"


def make_searcher(name: str, context: SearchContext) -> Searcher:
    """A new searcher over ``context.space``.

    Raises:
        UsageError: if ``name`` (or the cost model that the context names) is unknown.
    """
    return choose("searcher", name, _FACTORIES)(context)
