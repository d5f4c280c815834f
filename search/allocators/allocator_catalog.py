"""Allocators by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from schedules.vocabulary.choices import choose, lazy
from search.allocators.allocation import Allocator
from search.allocators.gradient import Gradient
from search.allocators.share_per_second import PACE, SharePerSecond
from search.allocators.simple_allocators import FlopProportional, RandomAllocator, RoundRobin, Sequential

_FACTORIES: dict[str, Callable[[np.random.Generator], Allocator]] = {
    "dynatune": lazy("search.allocators.dynatune:DynaTune"),
    "dynatune-released": lazy("search.allocators.dynatune:DynaTune", released=True),
    "flop-proportional": lambda _: FlopProportional(),
    "gradient": Gradient,
    "gradient-paced": lambda rng: Gradient(rng, pace=PACE),
    "random": RandomAllocator,
    "round-robin": lambda _: RoundRobin(),
    "round-robin-paced": lambda _: RoundRobin(PACE),
    "sequential": lambda _: Sequential(),
    "share-per-second": lambda _: SharePerSecond(),
}

ALLOCATORS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_allocator`` knows."""

DEFAULT_ALLOCATOR = "share-per-second"


def make_allocator(name: str, rng: np.random.Generator) -> Allocator:
    """A new allocator; ``rng`` is its only source of randomness.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("--allocator", name, _FACTORIES)(rng)
