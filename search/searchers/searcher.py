"""Searcher: what to try next, as an ask/tell protocol over plain data.

A searcher uses no kernel, file, clock or device. The same context, generator and tells give the same asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from costmodels.posterior import TemplatePosterior
from schedules.config import Config
from schedules.space import Space
from tuning_logs.measurement import Measurement

Result = tuple[Config, Measurement]
Siblings = Sequence[tuple[Space, tuple[Result, ...]]]
"""Per sibling task (of the same template): its space and its results, nearest task first."""


@dataclass(frozen=True)
class SearchContext:
    """The facts that a searcher may know.

    Attributes:
        space: the configs it may ask for.
        rng: its only source of randomness.
        cost_model: name of the cost model for searchers that use one; see ``costmodels.cost_model_catalog``.
        siblings: results of sibling tasks on this machine. Training data: what they recommend is measured like any
            other config.
        template: what is known of the template, but for ``siblings``; None where nothing was recorded.
    """

    space: Space
    rng: np.random.Generator
    cost_model: str = "boosted"
    siblings: Siblings = field(default=(), compare=False)
    template: TemplatePosterior | None = field(default=None, compare=False)


@runtime_checkable
class Searcher(Protocol):
    """Proposes configs of one space and learns from their measurements."""

    def ask(self, count: int) -> list[Config]:
        """Up to ``count`` distinct configs that were not asked or told before; empty when the space is exhausted."""
        ...

    def tell(self, results: Sequence[Result]) -> None:
        """Learn from completed and failed measurements, in any order, also of configs that were never asked."""
        ...
