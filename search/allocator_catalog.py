"""Allocators by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodels.choices import choose
from search.allocation import Allocator, RoundRobin

_FACTORIES: dict[str, Callable[[np.random.Generator], Allocator]] = {"round-robin": lambda _: RoundRobin()}

ALLOCATORS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_allocator`` knows."""


def make_allocator(name: str, rng: np.random.Generator) -> Allocator:
    """A new allocator; ``rng`` is its only source of randomness.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("allocator", name, _FACTORIES)(rng)
