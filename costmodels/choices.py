"""Look-up of a named strategy with an error that helps; the catalogs of all rooms share it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from schedules.errors import UsageError

Choice = TypeVar("Choice")


def choose(kind: str, name: str, known: Mapping[str, Choice]) -> Choice:
    """The entry of ``known`` called ``name``.

    Raises:
        UsageError: if there is none; it names the nearest known name, if any is near, and lists all of them.
    """
    if name in known:
        return known[name]
    raise UsageError(f"unknown {kind} {name!r}; {did_you_mean(name, known)}choose one of {', '.join(sorted(known))}")


def did_you_mean(name: str, known: Iterable[str], least: float = 0.5) -> str:
    """A question that names the nearest of ``known``, with a space behind it; empty if none is near.

    Args:
        least: how alike they must be, from 0 to 1 (``difflib``'s ratio).
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return f"did you mean {near[0]!r}? " if near else ""
