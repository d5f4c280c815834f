"""Allocators by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodels.choices import choose
from search.allocation import Allocator, RoundRobin
from search.gradient import Gradient
from search.latency_reduction import PACE, ExpectedCut
from search.simple_allocators import FlopProportional, RandomAllocator, Sequential


# Imports stay inside the factories where a strategy pulls in emcee and SciPy: half a second, optional to the others.
def _dynatune(rng: np.random.Generator) -> Allocator:
    from search.dynatune import DynaTune

    return DynaTune(rng)


def _dynatune_released(rng: np.random.Generator) -> Allocator:
    from search.dynatune import DynaTuneReleased

    return DynaTuneReleased(rng)


_FACTORIES: dict[str, Callable[[np.random.Generator], Allocator]] = {
    "dynatune": _dynatune,
    "dynatune-released": _dynatune_released,
    "expected-cut": lambda _: ExpectedCut(),
    "expected-cut-outlook": lambda _: ExpectedCut(own_word=1.0),
    "expected-cut-thompson": lambda rng: ExpectedCut(rng=rng),
    "flop-proportional": lambda _: FlopProportional(),
    "gradient": Gradient,
    "gradient-paced": lambda rng: Gradient(rng, pace=PACE),
    "random": RandomAllocator,
    "round-robin": lambda _: RoundRobin(),
    "round-robin-paced": lambda _: RoundRobin(PACE),
    "sequential": lambda _: Sequential(),
}

ALLOCATORS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_allocator`` knows."""

DEFAULT_ALLOCATOR = "expected-cut"


def make_allocator(name: str, rng: np.random.Generator) -> Allocator:
    """A new allocator; ``rng`` is its only source of randomness.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("allocator", name, _FACTORIES)(rng)
