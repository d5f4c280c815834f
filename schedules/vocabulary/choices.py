"""Strategies by name: look-up with an error that helps, and import of what was chosen only."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from schedules.vocabulary.errors import UsageError

Choice = TypeVar("Choice")


def choose(flag: str, name: str, known: Mapping[str, Choice]) -> Choice:
    """Return the entry of ``known`` called ``name``, or the Python object behind a name of the form ``module:name``.

    Args:
        flag: the option that takes the name, for the message.

    Raises:
        UsageError: if there is none. The message suggests a similar known name and lists all of them.
    """
    if name in known:
        return known[name]
    if ":" in name:
        try:
            own: Choice = pkgutil.resolve_name(name)
        except (ValueError, ImportError, AttributeError) as error:
            raise UsageError(
                f"{flag} {name}: cannot be imported ({error}); give module:name and have its folder in PYTHONPATH"
            ) from error
        return own
    raise UsageError(f"{flag} {name}: unknown; {did_you_mean(name, known)}choose one of {', '.join(sorted(known))}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a question that names the most similar of ``known``, followed by a space; empty if none is similar.

    Similar names differ by one typing error: a letter too many, missing, wrong, or swapped with its neighbour. Long
    names may differ by one in five letters. So is a name that is short for a known one, as ``rnd`` for ``random``, or
    begins with one.
    """
    if not isinstance(name, str):
        return ""
    distances = {other: edits(name, other) for other in known}
    near = [other for other, distance in distances.items() if distance <= max(1, len(name) // 5)]
    near = near or [other for other in distances if is_short_for(name, other) or (other and name.startswith(other))]
    return f"did you mean {min(near, key=distances.__getitem__)!r}? " if near else ""


def is_short_for(name: str, other: str) -> bool:
    """Return whether ``other`` starts as ``name`` does and has its letters, three at least, in this order."""
    letters = iter(other)
    return len(name) >= 3 and name[0] == other[:1] and all(letter in letters for letter in name)


def edits(one: str, other: str) -> int:
    """Return the fewest insertions, deletions, replacements and swaps of neighbours from ``one`` to ``other``."""
    before, row = [0], list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[-1] = min(row[-1], earlier[j - 2] + 1)
    return row[-1]


def lazy(path: str, **options: Any) -> Callable[..., Any]:
    """A factory for the class or function at ``path`` (``module:name``), imported when the factory is called.

    Some strategies import scikit-learn, emcee or xgboost, which takes up to a second. A run pays only for its own.

    Args:
        options: keyword arguments of every call.
    """

    def make(*arguments: Any) -> Any:
        return pkgutil.resolve_name(path)(*arguments, **options)

    return make
