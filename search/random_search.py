"""Uniform random search: the yardstick of every other searcher."""

from __future__ import annotations

from collections.abc import Sequence

from schedules.config import Config
from search.pool import Pool
from search.searcher import Result, SearchContext, Searcher


class RandomSearch(Searcher):
    """Configs drawn uniformly without repetition; the space's first guesses only if ``guesses``."""

    def __init__(self, context: SearchContext, guesses: bool = False) -> None:
        self._pool = Pool(context.space, context.rng)
        self._guesses = guesses

    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` untried configs, uniformly."""
        chosen = self._pool.configs(self._pool.first(count)) if self._guesses else []
        return [*chosen, *self._pool.configs(self._pool.draw(count - len(chosen)))]

    def tell(self, results: Sequence[Result]) -> None:
        """Only remembers what was tried."""
        self._pool.remember(config for config, _ in results)
