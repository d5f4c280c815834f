"""How often Python's garbage collector runs."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 50_000, 20, 50
"""Python's thresholds: new objects, then collections of the younger generation, before one is collected.

Python's own are 700, 10, 10, chosen for smaller programs. Loading TVM makes some 10^5 objects that stay,
and importing a model another 10^5. Collecting took 0.27 s of DenseNet-121's import (3.5 s) with Python's thresholds,
and 0.03 s with these.
"""


def collect_rarely() -> None:
    """For a process of this program's own, before it loads what is large."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def keep_what_is_loaded() -> None:
    """For a fork, and for what forks: what is loaded is never garbage. Looking at it would copy shared pages."""
    gc.freeze()
