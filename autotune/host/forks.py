"""State to renew in the child of a fork, which has the memory of its parent and only one of its threads.

A lock that another thread held at that moment is never released in the child, and a queue's turn never comes.
"""

from __future__ import annotations

import functools
import os
import weakref
from typing import Protocol

_life = 0


class Renewable(Protocol):
    """An object with locks, threads or queues."""

    def renew(self) -> None:
        """Replace what does not survive a fork; called in the child, before anything else of it runs."""
        ...


_living: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_children(renewable: Renewable) -> None:
    """Call ``renewable.renew`` in the child of every fork, as long as it lives."""
    _watch()
    _living.add(renewable)


def life() -> int:
    """The number of forks that led to this process since it was first watched: other in a child than in its parent."""
    return _life


@functools.cache
def _watch() -> None:
    os.register_at_fork(after_in_child=_renew)


def _renew() -> None:
    global _life
    _life += 1
    for renewable in list(_living):
        renewable.renew()
