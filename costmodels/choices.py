"""Strategies by name: look-up with an error that helps, and import of what was chosen only."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from schedules.errors import UsageError

Choice = TypeVar("Choice")


def choose(kind: str, name: str, known: Mapping[str, Choice]) -> Choice:
    """The entry of ``known`` called ``name``, or what a name of the form ``module:name`` stands for in Python.

    Raises:
        UsageError: if there is none. The message suggests the most similar known name and lists all of them.
    """
    if name in known:
        return known[name]
    if ":" in name:
        try:
            own: Choice = pkgutil.resolve_name(name)
        except (ValueError, ImportError, AttributeError) as error:
            raise UsageError(
                f"{kind} {name!r} cannot be imported ({error}); give module:name and have its folder in PYTHONPATH"
            ) from error
        return own
    raise UsageError(f"unknown {kind} {name!r}; {did_you_mean(name, known)}choose one of {', '.join(sorted(known))}")


def did_you_mean(name: str, known: Iterable[str], least: float = 0.5) -> str:
    """A question that names the most similar of ``known``, with a space behind it; empty if none is similar.

    Args:
        least: least similarity, from 0 to 1 (``difflib``'s ratio).
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return f"did you mean {near[0]!r}? " if near else ""


def lazy(path: str, **options: Any) -> Callable[..., Any]:
    """A factory for the class or function at ``path`` (``module:name``), imported when the factory is called.

    Some strategies import scikit-learn, emcee or xgboost, which takes up to a second. A run pays only for its own.

    Args:
        options: keyword arguments of every call.
    """

    def make(*arguments: Any) -> Any:
        return pkgutil.resolve_name(path)(*arguments, **options)

    return make
