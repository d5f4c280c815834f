"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable

from costmodels.choices import choose
from search.base import SearchContext, Searcher
from search.boosted_search import BoostedSearch
from search.random_search import RandomSearch

_FACTORIES: dict[str, Callable[[SearchContext], Searcher]] = {"random": RandomSearch, "boosted": BoostedSearch}

SEARCHERS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_searcher`` knows."""


def make_searcher(name: str, context: SearchContext) -> Searcher:
    """A new searcher over ``context.space``.

    Raises:
        UsageError: if ``name`` (or the cost model that the context names) is unknown.
    """
    return choose("searcher", name, _FACTORIES)(context)
