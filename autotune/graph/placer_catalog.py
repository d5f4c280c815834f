"""Every way to place subgraphs, by name."""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.exact import exact
from autotune.graph.placement import Placement, Problem
from autotune.graph.placers import correction, greedy, heft, round_robin, single

PLACERS: dict[str, Callable[[Problem], Placement]] = {
    "single": single,
    "round-robin": round_robin,
    "heft": heft,
    "greedy": greedy,
    "correction": correction,
    "exact": lambda problem: exact(problem).placement,
}
"""Name → placement of a problem."""
